from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.forms.coded_columns import CodedColumns
from compiler.ir.packing import Panels


def unpacked(packing: CodedColumns, packed: np.ndarray) -> np.ndarray:
    """uint32[columns, depth]: the bits of what packed bytes stand for, place by place."""
    lanes, bits = packing.panels.panel, packing.bits
    table = packed[: packing.table_bytes]
    columns = packed[packing.first :].reshape(-1, packing.column_bytes)
    found = np.zeros((len(columns), packing.panels.depth), np.uint32)
    for number, column in enumerate(columns):
        own, octets = (column[: packing.table_bytes], column[packing.table_bytes :]) if packing.own else (table, column)
        for k in range(packing.panels.depth):
            chunk, rest = divmod(k, packing.chunk)
            if bits == 8:
                index = octets[64 * chunk + 16 * (rest // 4 % 4) + 4 * (rest // 16) + rest % 4]
                value = own.reshape(4, 256)[:, index].copy().view("<u4")[0]
            else:
                word = octets.view("<u4")[chunk * lanes + rest % lanes]
                value = own.view("<u4")[word >> np.uint32(bits * (rest // lanes)) & np.uint32(15)]
            found[number, k] = value
    return found


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from([(1, False), (2, False), (4, False), (4, True), (2, True), (8, False)]),
    st.integers(1, 150),
    st.integers(1, 20),
    st.sampled_from([4, 8, 16]),
    st.integers(0, 99),
)
def test_packed_columns_hold_the_bits_of_every_value(
    kind: tuple[int, bool], depth: int, columns: int, lanes: int, seed: int
) -> None:
    bits, own = kind
    panels = Panels((0,), depth, columns, 16 if bits == 8 else lanes, ((depth, columns), (columns, 1)))
    packing = CodedColumns(panels, bits, own)
    rng = np.random.default_rng(seed)
    book = rng.normal(size=1 << bits).astype(np.float32)
    book[0], book[1] = -0.0, 0.0
    matrix = book[rng.integers(0, len(book), (depth, columns))]
    matrix *= np.exp2(np.arange(columns) % 5 if own else 0).astype(np.float32)
    packed = packing.pack(matrix)
    assert packed.dtype == np.uint8
    assert packed.size == packing.elements
    got = unpacked(packing, packed)[:columns]
    np.testing.assert_array_equal(got, np.ascontiguousarray(matrix.T).view(np.uint32))


def test_a_constant_of_more_values_is_not_packed() -> None:
    packing = CodedColumns(Panels((0,), 8, 8, 8, ((8, 8), (8, 1))), 4, own=False)
    with pytest.raises(ValueError, match="more values than indices of 4 bits"):
        packing.pack(np.arange(64, dtype=np.float32).reshape(8, 8))
