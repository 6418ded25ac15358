"""What products of few rows ask for ahead of its use."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.quantised_rows import QuantisedRows
from compiler.devices.cpu.codegen.rows import APART, PAGES_AHEAD, ask_ahead
from compiler.forms.quantised_panels import QuantisedPanels
from compiler.ir.packing import Panels

STEPS = 4096


@pytest.mark.parametrize("taken", [64, 96, 320, 1280, 2048, 2304, 8448])
def test_one_row_asks_for_a_line_of_every_few_kib(taken: int) -> None:
    writer = Writer()
    ask_ahead(writer, "b", "k", taken, lines=False)
    found = [re.fullmatch(r"(?:if \(k % (\d+) == 0\) )?__builtin_prefetch\(b \+ (\d+)\);", one) for one in writer.lines]
    asked = sorted(
        step * taken + int(one[2]) for one in found if one for step in range(STEPS) if step % int(one[1] or 1) == 0
    )
    apart = [later - earlier for earlier, later in pairwise(asked)]
    assert all(found)
    assert asked[0] == PAGES_AHEAD
    assert min(apart) > APART // 2
    assert max(apart) < 2 * APART


def test_every_line_is_asked_for_where_reading_is_slow() -> None:
    writer = Writer()
    ask_ahead(writer, "b", "k", 320, lines=True)
    assert "line < 320; line += 64" in writer.lines[0]


@pytest.mark.parametrize(
    ("rows", "registers", "dots", "lines"),
    [(1, 16, False, True), (1, 16, True, False), (1, 32, False, False), (1, 32, True, False), (3, 32, True, True)],
)
def test_codes_that_are_multiplied_slowly_are_asked_for_line_by_line(
    rows: int, registers: int, dots: bool, lines: bool
) -> None:
    lanes = registers // 2
    packing = QuantisedPanels(Panels((0,), 1024, 64, 2 * lanes, ((1024, 64), (64, 1))), lanes, 4, 32, centred=True)
    writer = Writer()
    QuantisedRows(rows, packing, registers, 3, fetch=True, dots=dots).write(writer, "k")
    assert any("line += 64" in one for one in writer.lines) == lines
