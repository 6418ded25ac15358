"""Panels of groups: where each element of a matrix lies, and that the rest is padding."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.forms.groups import Groups
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType


@pytest.mark.parametrize(("run", "padded"), [(3, 32), (32, 32), (33, 64), (0, 66)])
def test_runs_of_k_are_padded_to_whole_cache_lines(run: int, padded: int) -> None:
    depth, columns = (2 * run or 66), 20
    matrix = np.random.default_rng(run).integers(1, 100, (depth, columns)).astype(np.float32)
    groups = Groups(Panels((0,), depth, columns, 16, ((depth, columns), (columns, 1))), DType.BF16, run=run)
    runs = 2 if run else 1
    assert groups.groups == runs * padded // 2
    packed = groups.pack(matrix).astype(np.float32).reshape(2, runs, padded // 2, 16, 2)
    assert packed.size == groups.elements
    by_k = packed.transpose(1, 2, 4, 0, 3).reshape(runs, padded, 32)
    size = depth // runs
    assert np.array_equal(by_k[:, :size, :columns].reshape(depth, columns), matrix)
    assert not by_k[:, size:].any()
    assert not by_k[:, :, columns:].any()


def test_sums_of_columns_leave_padding_out() -> None:
    matrix = np.random.default_rng(0).integers(-128, 128, (6, 16)).astype(np.int8)
    groups = Groups(Panels((0,), 6, 16, 16, ((6, 16), (16, 1))), DType.I8, sums=True, run=3)
    packed = groups.pack(matrix)
    assert packed.shape == (1, groups.panel_elements) == (1, (2 * 16 + 1) * 16 * 4)
    assert np.array_equal(packed[0, -64:].view(np.int32), matrix.sum(axis=0, dtype=np.int32))
