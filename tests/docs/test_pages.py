from __future__ import annotations

import re
from datetime import date
from itertools import product
from operator import itemgetter
from pathlib import Path

import pytest

from compiler.contract import PHASES
from service.db.models import JobState
from tests.docs.pages import DOCS, PAGES, ROOT, WIDTH, blocks, commands, long_lines
from tilewright.cli.commands import tree

IN_THE_TREE = re.compile(r"`((?:bench|compiler|docs|migrations|service|tests|tilewright|worker)/[\w./{},-]+)`")
"""Paths in backquotes, with or without braces."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
README = (ROOT / "README.md").read_text()
START = (DOCS / "start.md").read_text()
UNWRAPPED = {"options.md", "rewriting.md"}
"""Pages whose lines are longer than a line of prose should be."""
ARCHITECTURE = (DOCS / "architecture.md").read_text()
INDEX = DOCS / "decisions" / "README.md"
DECISIONS = sorted(set((DOCS / "decisions").glob("*.md")) - {INDEX})
MOST_DECISIONS = 70
LINES_OF_A_DECISION = 55
"""A page on a subject with several decisions has as many times this."""
STATUS = re.compile(r"Status: accepted, (\d{4}-\d\d-\d\d)")
"""The third line of a page: the date of its latest decision."""


def anchors(page: Path) -> set[str]:
    """The anchors that headings get."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert target.is_relative_to(ROOT), f"{page.name} links out of the repository: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


def spelled_out(text: str) -> list[str]:
    """Every path that a text with braces stands for: `a/{b,c}.py` is `a/b.py` and `a/c.py`."""
    parts = [part.split(",") for part in re.split(r"[{}]", text)]
    return ["".join(path) for path in product(*parts)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_in_backquotes_exist(page: Path) -> None:
    for text in IN_THE_TREE.findall(page.read_text()):
        for path in spelled_out(text):
            assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_braces_in_a_path_are_spelled_out() -> None:
    assert spelled_out("compiler/fuse") == ["compiler/fuse"]
    assert spelled_out("compiler/{ir,ops}/a.py") == ["compiler/ir/a.py", "compiler/ops/a.py"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in UNWRAPPED], ids=lambda page: page.name)
def test_lines_of_prose_fit(page: Path) -> None:
    assert long_lines(page.read_text()) == []


def test_rows_and_code_may_be_long_and_prose_may_not() -> None:
    words = "word " * 30
    assert long_lines(f"short\n| {words} |\n```sh\n{words}\n```\n") == []
    assert long_lines(f"short\n{words}\n") == [words]


def test_the_readme_fits_into_one_sitting_and_names_every_page() -> None:
    assert len(README.splitlines()) <= 60
    before, _, _ = README.partition("\n## ")
    assert len(before.splitlines()) <= 35, "what it is and how to begin, on one screen"
    assert sum(len(block.splitlines()) for block in blocks(before, "sh")) == 3, "three commands"
    for page in DOCS.glob("*.md"):
        assert f"docs/{page.name}" in README


def test_the_first_steps_name_every_step_and_the_readme_every_command() -> None:
    steps = re.findall(r"^\d\. \*\*(\w+)\*\*", START, re.MULTILINE)
    assert tuple(steps) == PHASES
    for name in tree():
        assert re.search(rf"\b{name}\b", README), name


def test_the_architecture_names_every_step_state_and_room() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(compiler/\w+)` \|", ARCHITECTURE, re.MULTILINE)
    assert tuple(step for step, _ in rows) == PHASES
    for state in JobState:
        assert state in ARCHITECTURE
    for room in (ROOT / "compiler").glob("*/__init__.py"):
        assert re.search(rf"\b{room.parent.name}\b", ARCHITECTURE), room.parent.name


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for page in PAGES for words in commands(page.read_text()) if words[0] == "make"}
    assert named
    assert named <= targets


def decisions(text: str) -> list[str]:
    """The decisions of a page: its parts under headings, or all of it."""
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)
    return parts[1:] or parts


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_context_decision_and_cost(page: Path) -> None:
    text = page.read_text()
    lines = text.splitlines()
    assert len(lines) <= LINES_OF_A_DECISION * len(decisions(text))
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("|")] == []
    for decision in decisions(text):
        places = [decision.find(part) for part in ("**Context.**", "**Decision.**", "**What it costs.**")]
        assert -1 not in places
        assert places == sorted(places)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_page_of_decisions_has_its_status_and_date_under_the_title(page: Path) -> None:
    title, _, status, after, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    found = STATUS.fullmatch(status)
    assert found, f"the third line is no status: {status}"
    date.fromisoformat(found[1])
    assert after == ""


def test_the_index_of_decisions_lists_every_page_once_under_its_title() -> None:
    listed = re.findall(r"^- \[([^\]]+)\]\(([a-z0-9-]+\.md)\)", INDEX.read_text(), re.MULTILINE)
    titles = [(page.read_text().splitlines()[0].removeprefix("# "), page.name) for page in DECISIONS]
    assert sorted(listed, key=itemgetter(1)) == titles
    assert len(DECISIONS) < MOST_DECISIONS
