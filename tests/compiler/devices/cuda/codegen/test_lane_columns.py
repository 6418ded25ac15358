"""Constants packed for the lanes of a GPU's warps."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cuda.codegen.lane_columns import LaneColumns, RoundedPanels
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
@pytest.mark.parametrize(("lanes", "parts"), [(1, 1), (4, 1), (8, 3)])
def test_packed_columns_hold_each_element_where_its_lane_reads_it(dtype: DType, lanes: int, parts: int) -> None:
    depth, columns = 70, 5
    matrix = np.random.default_rng(1).uniform(-1, 1, (columns, depth)).astype(np.float32)
    panels = Panels((0,), depth, columns, 1, ((depth, 1), (columns, depth)))
    packing = LaneColumns(panels, dtype, lanes, whole=4, parts=parts)
    packed = packing.pack(matrix)
    assert (packed.size, packed.dtype) == (packing.elements, dtype.numpy)
    per_lane = 16 // dtype.bytes
    places = packed.reshape(8, packing.steps, lanes, per_lane).astype(np.float32)
    assert packing.steps % parts == 0
    for column, k in [(0, 0), (1, 5), (4, 69), (2, 33)]:
        step, within = divmod(k, packing.width)
        quad, rest = divmod(within, 4 * lanes)
        lane, element = divmod(rest, 4)
        want = matrix[column, k].astype(dtype.numpy).astype(np.float32)
        assert places[column, step, lane, 4 * quad + element] == want
    assert np.count_nonzero(places) == columns * depth


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_rounded_panels_are_panels_rounded_once(dtype: DType) -> None:
    weights = np.random.default_rng(2).uniform(-1, 1, (6, 9)).astype(np.float32)
    panels = Panels((0,), 9, 6, 4, ((9, 1), (6, 9)))
    packed = RoundedPanels(panels, dtype).pack(weights)
    assert (packed.size, packed.dtype) == (panels.elements, dtype.numpy)
    np.testing.assert_array_equal(packed, panels.pack(weights).astype(dtype.numpy).reshape(-1))
