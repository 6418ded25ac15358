from __future__ import annotations

import re

from compiler.frontend.open.sized import MEASURED
from compiler.ops import MODEL_OPERATORS
from tests.docs.operators_page import PAGE, page
from tests.docs.pages import ROOT


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.docs.operators_page`"


def test_every_operator_has_one_row() -> None:
    rows = re.findall(r"^\| (\w+) \| \d+ to \d+ \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(MODEL_OPERATORS)


def test_operators_whose_results_data_size_are_marked() -> None:
    marked = re.findall(r"^\| (\w+) \|.*data may say how large", page(), re.MULTILINE)
    assert sorted(marked) == sorted(MEASURED)
    assert {"NonMaxSuppression", "Unique", "NonZero", "Compress"} == set(marked)


def test_the_page_names_the_command_that_makes_it() -> None:
    assert "`python -m tests.docs.operators_page`" in PAGE.read_text()
    assert (ROOT / "tests" / "docs" / "operators_page.py").is_file()
