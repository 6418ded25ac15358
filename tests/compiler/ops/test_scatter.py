from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported
from compiler.ops.scatter import OPERATORS
from tests.compiler.ops.single import Shape, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
REDUCTIONS = st.sampled_from(["none", "add", "mul", "min", "max"])


def indices(seed: int, extent: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-extent, extent, shape)


@given(SHAPES, st.data(), REDUCTIONS)
@settings(max_examples=80)
def test_ScatterElements_writes_along_an_axis(shape: Shape, data: st.DataObject, reduction: str) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    chosen = tuple(data.draw(st.integers(1, extent)) for extent in shape)
    arrays = [normal(1, *shape), indices(2, shape[axis], *chosen), normal(3, *chosen)]
    compare(RECORDS["ScatterElements"], arrays, {"axis": axis, "reduction": reduction})


@given(SHAPES, st.data(), REDUCTIONS)
@settings(max_examples=80)
def test_ScatterND_writes_slices(shape: Shape, data: st.DataObject, reduction: str) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    rows = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    chosen = np.stack([indices(place, shape[place], *rows) for place in range(depth)], axis=-1)
    arrays = [normal(1, *shape), chosen, normal(3, *rows, *shape[depth:])]
    compare(RECORDS["ScatterND"], arrays, {"reduction": reduction})


def test_the_last_of_several_updates_of_an_element_wins() -> None:
    x, chosen, updates = np.zeros(3, np.float32), np.array([1, 1, 1]), np.array([5, 6, 7], np.float32)
    assert check(RECORDS["ScatterElements"], [x, chosen, updates])[0].tolist() == [0, 7, 0]
    assert check(RECORDS["ScatterND"], [x, chosen[:, None], updates])[0].tolist() == [0, 7, 0]


def test_axes_that_updates_cover_are_shared_and_parallel() -> None:
    arrays = [normal(1, 4, 3, 5), indices(2, 3, 4, 2, 5), normal(3, 4, 2, 5)]
    node, _, types = prepare(RECORDS["ScatterElements"], arrays, {"axis": 1}, 1)
    kernel = RECORDS["ScatterElements"].define(node, types, RECORDS["ScatterElements"].infer(node, types))
    assert isinstance(kernel, Kernel)
    assert [axis.extent for axis in kernel.shared] == [4, 5]
    assert [axis.extent for axis in kernel.blocks[1].sequential] == [2]


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1, 3])
def test_TensorScatter_writes_into_a_cache(mode: str, axis: int) -> None:
    past, steps = normal(1, 2, 4, 4, 4), 3
    shape = [2, 4, 4, 4]
    shape[axis] = steps
    start = np.array([0, 1]) if mode == "linear" else np.array([3, 1])
    y = check(RECORDS["TensorScatter"], [past, normal(2, *shape), start], {"mode": mode, "axis": axis})[0]
    assert int((y != past).sum()) == 2 * 4 * 4 * steps


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("ScatterElements", ((3, 4), (2, 2), (2, 3))),
        ("ScatterElements", ((3, 4), (2, 5), (2, 5))),
        ("ScatterND", ((3, 4), (2, 3), (2,))),
        ("ScatterND", ((3, 4), (2, 1), (2, 3))),
        ("TensorScatter", ((2, 3, 4), (2, 4, 4), (2,))),
    ],
)
def test_updates_that_do_not_fit_are_refused(name: str, shapes: tuple[Shape, ...]) -> None:
    dtypes = (DType.F32, DType.F32, DType.I64) if name == "TensorScatter" else (DType.F32, DType.I64, DType.F32)
    node, _, _ = prepare(RECORDS[name], [np.zeros(shape) for shape in shapes], {}, 1)
    with pytest.raises(Unsupported, match="fit"):
        RECORDS[name].infer(node, tuple(TensorType(*pair) for pair in zip(dtypes, shapes, strict=True)))
