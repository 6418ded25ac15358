"""Where rows lie in shared memory: the C that says it, against what constants are packed as, and against the banks."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cuda.codegen.panels import swizzled
from compiler.devices.cuda.codegen.rows import Padded, Rows, Swizzled

LAYOUTS = (Padded(64), Padded(128), Swizzled(64), Swizzled(128))


def place(rows: Rows, row: int, byte: int) -> int:
    """The offset that the C text gives."""
    return int(eval(rows.place(str(row), str(byte)).replace("/", "//")))


@pytest.mark.parametrize("rows", LAYOUTS, ids=str)
def test_every_byte_has_a_place_of_its_own_within_the_tile(rows: Rows) -> None:
    places = {place(rows, row, byte) for row in range(16) for byte in range(rows.row_bytes)}
    assert len(places) == 16 * rows.row_bytes
    assert max(places) < 16 * rows.pitch


@pytest.mark.parametrize("rows", LAYOUTS, ids=str)
def test_the_same_chunk_of_eight_rows_is_in_different_banks(rows: Rows) -> None:
    for chunk in range(rows.row_bytes // 16):
        banks = {place(rows, row, 16 * chunk) // 16 % 8 for row in range(8)}
        assert len(banks) == 8


@pytest.mark.parametrize("rows", LAYOUTS, ids=str)
def test_the_bytes_of_a_chunk_stay_side_by_side(rows: Rows) -> None:
    for row in range(9):
        for byte in range(rows.row_bytes):
            assert place(rows, row, byte) == place(rows, row, byte // 16 * 16) + byte % 16


@pytest.mark.parametrize("rows", LAYOUTS[2:], ids=str)
def test_copies_of_threads_and_packed_constants_lie_in_the_same_order(rows: Rows) -> None:
    tile = np.arange(24 * rows.row_bytes // 2, dtype=np.int16).reshape(24, -1)
    packed = swizzled(tile).reshape(-1)
    for row, k in np.ndindex(*tile.shape):
        assert packed[place(rows, row, 2 * k) // 2] == tile[row, k]


def test_there_are_no_other_swizzles() -> None:
    with pytest.raises(AssertionError):
        Swizzled(32)
