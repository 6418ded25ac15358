"""What products of few rows ask for ahead of its use."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.rows import APART, PAGES_AHEAD, ask_ahead

STEPS = 4096


@pytest.mark.parametrize("taken", [64, 96, 320, 1280, 2048, 2304, 8448])
def test_one_row_asks_for_a_line_of_every_few_kib(taken: int) -> None:
    writer = Writer()
    ask_ahead(writer, "b", "k", taken, rows=1)
    found = [re.fullmatch(r"(?:if \(k % (\d+) == 0\) )?__builtin_prefetch\(b \+ (\d+)\);", one) for one in writer.lines]
    asked = sorted(
        step * taken + int(one[2]) for one in found if one for step in range(STEPS) if step % int(one[1] or 1) == 0
    )
    apart = [later - earlier for earlier, later in pairwise(asked)]
    assert all(found)
    assert asked[0] == PAGES_AHEAD
    assert min(apart) > APART // 2
    assert max(apart) < 2 * APART


@pytest.mark.parametrize("rows", [2, 4])
def test_several_rows_ask_for_every_line(rows: int) -> None:
    writer = Writer()
    ask_ahead(writer, "b", "k", 320, rows)
    assert "line < 320; line += 64" in writer.lines[0]
