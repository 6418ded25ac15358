from __future__ import annotations

import re
from pathlib import Path

from bench.conformance.judge import STATUSES, Verdict
from bench.conformance.suite import suite
from bench.conformance.table import BEGIN, END, PAGE, groups, kept, section, table, write

VERDICTS = [
    Verdict("test_a", "Relu", "passed"),
    Verdict("test_b", "Conv", "passed"),
    Verdict("test_c", "Conv", "refused", "no | such_thing"),
    Verdict("test_d", "Conv", "wrong", "off"),
    Verdict("test_e", "Conv", "refused", "no | such_thing"),
    Verdict("test_f", "real", "crashed", "x" * 500),
    Verdict("test_g", "Add", "bound", "input"),
]


def test_the_table_counts_and_gives_the_most_frequent_reason() -> None:
    rows = table(VERDICTS).splitlines()[2:]
    assert rows[:2] == ["| Add | 0 | 1 | 0 | 0 | 0 | input |", "| Conv | 1 | 0 | 2 | 1 | 0 | no \\| such\\_thing |"]
    assert rows[2].startswith("| real | 0 | 0 | 0 | 0 | 1 | xxx")
    assert len(rows[2]) < 160
    assert rows[3] == "| all | 2 | 1 | 2 | 1 | 1 |  |"


def test_the_section_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nText.\n")
    write(VERDICTS[:2], page)
    assert page.read_text() == f"# Page\n\nText.\n\n{section(VERDICTS[:2])}"
    assert "Every case passes of: Conv (1), Relu (1)." in page.read_text()
    write(VERDICTS, page)
    assert page.read_text() == f"# Page\n\nText.\n\n{section(VERDICTS)}"
    assert kept(page.read_text()) == section(VERDICTS)
    assert kept("no section") == ""


def test_groups_of_operators_come_before_those_of_models() -> None:
    assert list(groups(VERDICTS)) == ["Add", "Conv", "Relu", "real"]


def test_the_page_speaks_of_every_group_of_the_suite_and_of_every_case() -> None:
    """It may be older than the compiler, but not than the suite: `python -m bench conformance --write`."""
    text = kept(PAGE.read_text())
    assert text.startswith(BEGIN)
    assert text.endswith(f"{END}\n")
    rows = dict(re.findall(r"^\| ([\w-]+) \| ((?:\d+ \| ){5})", text, re.MULTILINE))
    counts = {name: [int(count) for count in row.split("|")[:-1]] for name, row in rows.items()}
    total = counts.pop("all")
    whole = dict(re.findall(r"([\w-]+)\s\((\d+)\)", text.partition("Every case passes of:")[2]))
    assert set(counts) | set(whole) == {case.group for case in suite().values()}
    assert all(len(row) == len(STATUSES) for row in counts.values())
    assert sum(total) == len(suite())
    sums = [sum(column) for column in zip(*counts.values(), strict=True)]
    sums[0] += sum(map(int, whole.values()))
    assert sums == total
