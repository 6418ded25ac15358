from __future__ import annotations

from bench.replay.cases import Case
from bench.replay.difference import Difference
from bench.replay.run import verdict
from bench.replay.table import LISTED, Row, summary, warmed

CASES = [Case(f"m{number}", "cpu") for number in range(LISTED + 2)]
KERNEL = Difference("kernel", "k0_conv", "-a\n+b")
TOOLS = Difference("versions", "toolchain", '"gcc 12" -> "gcc 13"')


def test_a_difference_is_told_once_with_all_its_cases() -> None:
    text = summary([Row(case, [KERNEL]) for case in CASES], "one", "two")
    assert text.count("== kernel k0_conv") == 1
    assert "m5 cpu fp32; and 2 more\n   -a\n   +b\n" in text
    assert text.endswith("one and two, 8 cases: 0 identical, 8 differ, 0 fail alike, 0 skipped\n")


def test_versions_are_told_in_one_line_and_still_differ() -> None:
    rows = [Row(case, [TOOLS]) for case in CASES]
    text = summary(rows, "one", "two")
    assert 'Versions that differ: toolchain "gcc 12" -> "gcc 13"\n' in text
    assert "== versions" not in text
    assert verdict(rows) == 1


def test_failures_in_the_same_words_and_skipped_models_are_told_and_do_not_differ() -> None:
    rows = [Row(CASES[0]), Row(CASES[1], error="line\nrefused"), Row(CASES[2], skipped="offline")]
    text = summary(rows, "one", "two")
    assert "m1 cpu fp32: refused" in text
    assert "m2 cpu fp32: offline" in text
    assert "1 identical, 0 differ, 1 fail alike, 1 skipped" in text
    assert verdict(rows) == 0


def test_where_nothing_was_compiled_nothing_was_shown() -> None:
    assert verdict([Row(CASES[0], error="refused"), Row(CASES[1], skipped="offline")]) == 1
    assert verdict([]) == 1


def test_the_longest_compilations_of_a_commit_are_told() -> None:
    rows = [Row(case, alone=True, seconds=(float(at), 0.0)) for at, case in enumerate(CASES)]
    text = warmed([*rows, Row(CASES[0], error="refused", alone=True)], "one")
    assert "Longest:\n        7.0 s  m7 cpu fp32\n" in text
    assert "m0 cpu fp32: fails: refused" in text
    assert text.endswith("one: 8 of 9 cases compiled\n")
