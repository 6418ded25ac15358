"""The page that compares with other services names tests that there are."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.docs.pages import DOCS

ROOT = DOCS.parent
ROW = re.compile(r"^\| (\d+) \| .+ \| (works|partly|no) \| .*\| (?:`([^`]+)`)? ?\|$", re.MULTILINE)
PAGE = (DOCS / "comparison.md").read_text()
ROWS = [(int(number), state, shown) for number, state, shown in ROW.findall(PAGE)]


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_feature_has_one_row() -> None:
    assert [number for number, _, _ in ROWS] == list(range(1, 92))


def test_what_works_names_a_test_that_is_there() -> None:
    named = [(state, *shown.partition("::")[::2]) for _, state, shown in ROWS if shown]
    assert named
    for _, file, test in named:
        found = functions(ROOT / file)
        assert test in found if test else any(name.startswith("test_") for name in found), file
    assert {state for state, _, _ in named} == {"works", "partly"}
    assert len(named) == sum(state != "no" for _, state, _ in ROWS)


def test_the_sums_are_those_of_the_rows() -> None:
    counted = Counter(state for _, state, _ in ROWS)
    sums = f"| **all {len(ROWS)}** | {counted['works']} | {counted['partly']} | {counted['no']} |"
    assert sums in PAGE
