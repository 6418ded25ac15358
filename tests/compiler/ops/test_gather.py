from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tensor import DType, TensorType
from compiler.ops import gather, selection
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import Attrs, Shape, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in (*gather.OPERATORS, *selection.OPERATORS)}
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def indices(seed: int, extent: int, *shape: int) -> np.ndarray:
    """Indices from -extent to extent - 1."""
    return np.random.default_rng(seed).integers(-extent, extent, shape)


@given(SHAPES, st.lists(st.integers(0, 3), max_size=2).map(tuple), st.data(), st.sampled_from([np.int32, np.int64]))
@settings(max_examples=60)
def test_Gather_takes_rows_of_any_axis(shape: Shape, chosen: Shape, data: st.DataObject, dtype: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    arrays = [normal(1, *shape), indices(2, shape[axis], *chosen).astype(dtype)]
    compare(RECORDS["Gather"], arrays, {"axis": axis})


@given(SHAPES, st.data())
@settings(max_examples=60)
def test_GatherElements_takes_elements_along_an_axis(shape: Shape, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    chosen = tuple(data.draw(st.integers(1, extent)) for extent in shape)
    compare(RECORDS["GatherElements"], [normal(1, *shape), indices(2, shape[axis], *chosen)], {"axis": axis})


@given(SHAPES, st.data())
@settings(max_examples=60)
def test_GatherND_takes_slices(shape: Shape, data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    batch = data.draw(st.integers(0, len(shape) - depth))
    rows = (*shape[:batch], *data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    chosen = np.stack([indices(place, shape[batch + place], *rows) for place in range(depth)], axis=-1)
    compare(RECORDS["GatherND"], [normal(1, *shape), chosen], {"batch_dims": batch})


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_OneHot_marks_the_index_counted_from_either_end(axis: int, dtype: Any) -> None:
    arrays = [np.array([[0, -1, 2], [7, -9, 1]]).astype(dtype), np.array(4, np.int64), np.array([2.0, 5.0], np.float32)]
    y = check(RECORDS["OneHot"], arrays, {"axis": axis})[0]
    marked = np.moveaxis(y, axis % 3, -1)
    assert marked[0, 0].tolist() == [5, 2, 2, 2]
    assert marked[0, 1].tolist() == [2, 2, 2, 5]
    assert marked[1, 0].tolist() == marked[1, 1].tolist() == [2, 2, 2, 2]


def test_an_index_outside_its_axis_does_not_leave_the_tensor() -> None:
    node, _, types = prepare(RECORDS["Gather"], [normal(1, 4), np.array([9, -9])], {}, 1)
    kernel = RECORDS["Gather"].define(node, types, RECORDS["Gather"].infer(node, types))
    from compiler.ir.evaluate import evaluate
    from compiler.ir.kernel import Kernel

    assert isinstance(kernel, Kernel)
    x = normal(1, 4)
    np.testing.assert_array_equal(evaluate(kernel, [x, np.array([9, -9])])[0], x[[3, 0]])


@given(SHAPES, st.data())
@settings(max_examples=60)
def test_Compress_keeps_runs_of_a_known_condition(shape: Shape, data: st.DataObject) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    extent = int(np.prod(shape)) if axis is None else shape[axis]
    condition = np.array(data.draw(st.lists(st.booleans(), min_size=1, max_size=extent)))
    attrs: Attrs = {} if axis is None else {"axis": axis}
    compare(RECORDS["Compress"], [normal(1, *shape), condition], attrs)


def test_what_gives_as_many_results_as_the_data_ask_for_is_refused() -> None:
    with pytest.raises(Unsupported, match="depends on data"):
        RECORDS["NonZero"].infer(*_nodes("NonZero"))
    with pytest.raises(Unsupported, match="depends on it"):
        RECORDS["Compress"].infer(*_nodes("Compress"))


def _nodes(name: str) -> tuple[Any, Any]:
    node, _, types = prepare(RECORDS[name], [normal(1, 3)], {}, 1)
    return node, types


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("Gather", ((3, 4), (2,)), {"axis": 2}),
        ("GatherElements", ((3, 4), (2,)), {}),
        ("GatherElements", ((3, 4), (3, 5)), {}),
        ("GatherND", ((3, 4), (2, 3)), {}),
        ("GatherND", ((3, 4), (2, 1)), {"batch_dims": 1}),
    ],
)
def test_indices_that_do_not_fit_are_refused(name: str, shapes: tuple[Shape, Shape], attrs: Attrs) -> None:
    node, _, _ = prepare(RECORDS[name], [np.zeros(shapes[0]), np.zeros(shapes[1], np.int64)], attrs, 1)
    with pytest.raises(Unsupported):
        RECORDS[name].infer(node, (TensorType(DType.F32, shapes[0]), TensorType(DType.I64, shapes[1])))
