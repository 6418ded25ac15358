from __future__ import annotations

import re

from compiler.ops import OPERATORS
from tests.docs.operators_page import PAGE, page
from tests.docs.pages import ROOT


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.docs.operators_page`"


def test_every_operator_has_one_row() -> None:
    rows = re.findall(r"^\| (\w+) \| \d+ to \d+ \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(OPERATORS)


def test_operators_that_are_always_refused_are_marked() -> None:
    marked = re.findall(r"^\| (\w+) \|.*only of constants", page(), re.MULTILINE)
    assert {"NonMaxSuppression", "Unique", "NonZero"} <= set(marked)
    assert "Conv" not in marked
    assert "TopK" not in marked


def test_the_page_names_the_command_that_makes_it() -> None:
    assert "`python -m tests.docs.operators_page`" in PAGE.read_text()
    assert (ROOT / "tests" / "docs" / "operators_page.py").is_file()
