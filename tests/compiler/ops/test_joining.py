from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ops.joining import OPERATORS
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import Attrs, Inputs, Shape, agree, by_onnxruntime, check, compare, normal, prepare

CONCAT, SPLIT = OPERATORS


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[Shape], int]:
    """Shapes that differ along one axis alone, empty parts among them, and that axis."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    extents = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    return [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents], axis


@given(parts(), st.booleans())
@settings(max_examples=80)
def test_Concat_and_Split_agree_with_onnxruntime_and_undo_each_other(
    problem: tuple[list[Shape], int], negative: bool
) -> None:
    shapes, axis = problem
    arrays = [normal(seed, *shape) for seed, shape in enumerate(shapes)]
    attrs = {"axis": axis - len(shapes[0]) if negative else axis}
    compare(CONCAT, arrays, attrs)
    sizes = np.array([shape[axis] for shape in shapes], np.int64)
    again = check(SPLIT, [np.concatenate(arrays, axis), sizes], attrs, len(arrays))
    for part, array in zip(again, arrays, strict=True):
        agree(part, array, 0)


@pytest.mark.parametrize(("extent", "count"), [(6, 3), (7, 3), (7, 2), (5, 5), (4, 1)])
def test_Split_without_sizes_makes_the_last_part_the_smaller_one(extent: int, count: int) -> None:
    x, attrs = normal(1, 2, extent), {"axis": 1, "num_outputs": count}
    parts = check(SPLIT, [x], attrs, count)
    assert len(parts) == count
    for ours, theirs in zip(parts, by_onnxruntime("Split", [x], attrs, count), strict=True):
        agree(ours, theirs, 0)


@pytest.mark.parametrize(("sizes", "count"), [(None, 3), (np.array([1, 2, 3]), None)])
def test_the_last_parts_of_a_Split_need_not_be_asked_for(sizes: np.ndarray | None, count: int | None) -> None:
    x, attrs = normal(1, 6), {} if count is None else {"num_outputs": count}
    found = check(SPLIT, [x, sizes], attrs, 2)
    ends = (2, 4) if sizes is None else (1, 3)
    for part, expected in zip(found, (x[: ends[0]], x[ends[0] : ends[1]]), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_each_operand_of_a_Concat_is_a_block_that_stores_its_slice() -> None:
    node, _, types = prepare(CONCAT, [normal(1, 2, 3), normal(2, 2, 0), normal(3, 2, 4)], {"axis": 1}, 1)
    kernel = CONCAT.define(node, types, CONCAT.infer(node, types))
    assert isinstance(kernel, Kernel)
    assert kernel.shared == ()
    assert [str(block.stores[0]) for block in kernel.blocks] == ["y0[p0_0, p0_1]", "y0[p2_0, p2_1 + 3]"]
    assert [[axis.extent for axis in block.axes] for block in kernel.blocks] == [[2, 3], [2, 4]]


def test_each_part_of_a_Split_is_a_block_that_loads_its_slice() -> None:
    node, _, types = prepare(SPLIT, [normal(1, 5), np.array([2, 3])], {"axis": 0}, 2)
    kernel = SPLIT.define(node, types, SPLIT.infer(node, types))
    assert isinstance(kernel, Kernel)
    assert [str(block.values[0]) for block in kernel.blocks] == ["x0[p0_0]", "x0[p1_0 + 2]"]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16])
def test_elements_of_every_type_are_moved_as_they_are(dtype: Any) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    assert check(CONCAT, [x, x], {"axis": 0}, rtol=0)[0].dtype == dtype


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "outputs", "reason"),
    [
        ("Concat", [normal(1, 2, 3), normal(1, 2, 4)], {"axis": 0}, 1, "do not join"),
        ("Concat", [normal(1, 2, 3), normal(1, 2)], {"axis": 0}, 1, "do not join"),
        ("Concat", [normal(1, 2, 3)], {"axis": 2}, 1, "axis is 2"),
        ("Split", [normal(1, 5), np.array([2, 2])], {"axis": 0}, 2, "does not split"),
        ("Split", [normal(1, 5), np.array([6, -1])], {"axis": 0}, 2, "does not split"),
        ("Split", [normal(1, 5)], {"axis": 1}, 2, "axis is 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(
    name: str, arrays: Inputs, attrs: Attrs, outputs: int, reason: str
) -> None:
    record = {"Concat": CONCAT, "Split": SPLIT}[name]
    node, _, types = prepare(record, arrays, attrs, outputs)
    with pytest.raises(Unsupported, match=reason):
        record.infer(node, types)
