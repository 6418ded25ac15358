from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.expr import Load
from compiler.ir.graph import Attr
from compiler.ir.index import Index
from compiler.ir.kernel import Kernel
from compiler.ops.operator import Unsupported
from compiler.ops.views import OPERATORS
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import Attrs, Inputs, Shape, agree, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def defined(name: str, arrays: Inputs, attrs: Attrs | None = None) -> Kernel:
    node, _, types = prepare(RECORDS[name], arrays, attrs or {}, 1)
    kernel = RECORDS[name].define(node, types, RECORDS[name].infer(node, types))
    assert isinstance(kernel, Kernel)
    return kernel


def refused(name: str, arrays: Inputs, attrs: Attrs | None = None) -> str:
    node, _, types = prepare(RECORDS[name], arrays, attrs or {}, 1)
    with pytest.raises(Unsupported) as refusal:
        RECORDS[name].infer(node, types)
    assert refusal.value.fix
    return refusal.value.reason


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Shape, list[int]]:
    """A shape and another of as many elements, with -1 and 0 where they mean the same."""
    factors = draw(st.lists(st.integers(1, 4), max_size=5))

    def grouped() -> list[int]:
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        return [math.prod(factors[a:b]) for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True)]

    source, target = grouped(), grouped()
    for place in range(min(len(source), len(target))):
        if source[place] == target[place] and draw(st.booleans()):
            target[place] = 0
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return tuple(source), target


@given(reshapes())
@settings(max_examples=80)
def test_Reshape_agrees_with_its_reference_and_with_onnxruntime(problem: tuple[Shape, list[int]]) -> None:
    compare(RECORDS["Reshape"], [normal(1, *problem[0]), whole(*problem[1])])


def test_a_zero_of_Reshape_is_none_at_all_where_the_node_says_so() -> None:
    x = np.zeros((0, 3), np.float32)
    assert check(RECORDS["Reshape"], [x, whole(3, 0)], {"allowzero": 1})[0].shape == (3, 0)
    assert check(RECORDS["Reshape"], [x, whole(0, 3)], {"allowzero": 0})[0].shape == (0, 3)
    assert check(RECORDS["Reshape"], [normal(1, 1), whole()])[0].shape == ()


def test_a_Reshape_that_joins_axes_loads_by_one_affine_index() -> None:
    kernel = defined("Reshape", [normal(1, 2, 3, 4), whole(6, 4)])
    (load,) = kernel.blocks[0].values[0].loads
    assert str(load) == "x0[(i0)//3, (i0)%3, i1]"
    assert defined("Reshape", [normal(1, 6, 4), whole(6, 1, 4)]).blocks[0].values[0].loads[0].index[0] == Index.of(
        kernel.shared[0]
    )


@given(SHAPES, st.data())
@settings(max_examples=40)
def test_Flatten_agrees_with_onnxruntime(shape: Shape, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape)))
    compare(RECORDS["Flatten"], [normal(1, *shape)], {"axis": axis})


@st.composite
def ones(draw: st.DrawFn) -> tuple[Shape, tuple[int, ...]]:
    """A shape and some axes of extent 1, negative ones among them."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=5)))
    free = [axis for axis, extent in enumerate(shape) if extent == 1]
    chosen = draw(st.permutations([axis for axis in free if draw(st.booleans())]))
    return shape, tuple(axis - len(shape) if draw(st.booleans()) else axis for axis in chosen)


@given(ones())
@settings(max_examples=50)
def test_Squeeze_and_Unsqueeze_undo_each_other(problem: tuple[Shape, tuple[int, ...]]) -> None:
    shape, axes = problem
    x = normal(1, *shape)
    (narrow,) = check(RECORDS["Squeeze"], [x, whole(*axes)])
    agree(check(RECORDS["Unsqueeze"], [narrow, whole(*axes)])[0], x, 0)
    if axes:
        compare(RECORDS["Squeeze"], [x, whole(*axes)])
        compare(RECORDS["Unsqueeze"], [narrow, whole(*axes)])


def test_Squeeze_without_axes_removes_every_extent_of_one() -> None:
    compare(RECORDS["Squeeze"], [normal(1, 1, 3, 1, 2, 1)])


@given(SHAPES, st.data())
@settings(max_examples=40)
def test_Transpose_agrees_with_onnxruntime(shape: Shape, data: st.DataObject) -> None:
    compare(RECORDS["Transpose"], [normal(1, *shape)])
    if shape:
        perm = tuple(data.draw(st.permutations(range(len(shape)))))
        compare(RECORDS["Transpose"], [normal(1, *shape)], {"perm": perm})


@st.composite
def slices(draw: st.DrawFn) -> tuple[Shape, tuple[np.ndarray, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)))
    axes = draw(st.permutations(range(len(shape))))[: draw(st.integers(1, len(shape)))]
    far = st.sampled_from((-(2**63), -(2**31), 1000000000, 2**31 - 1, 2**63 - 1))
    starts = [draw(st.integers(-8, 8) | far) for _ in axes]
    steps = [draw(st.sampled_from((-3, -2, -1, 1, 2, 3))) for _ in axes]
    # ONNX Runtime reads the greatest integers as "all of it" backwards too, where ONNX has the least ones for that.
    ends = [draw(st.integers(-8, 8) | (far if step > 0 else far.filter(lambda end: end < 0))) for step in steps]
    signed = [axis - len(shape) if draw(st.booleans()) else axis for axis in axes]
    return shape, (whole(*starts), whole(*ends), whole(*signed), whole(*steps))


@given(slices())
@settings(max_examples=120)
def test_Slice_agrees_with_its_reference_and_with_onnxruntime(problem: tuple[Shape, tuple[np.ndarray, ...]]) -> None:
    shape, bounds = problem
    compare(RECORDS["Slice"], [normal(1, *shape), *bounds])


def test_Slice_without_axes_or_steps_takes_the_first_axes_forwards() -> None:
    compare(RECORDS["Slice"], [normal(1, 4, 5, 6), whole(1, 0), whole(3, -1)])
    compare(RECORDS["Slice"], [normal(1, 4, 5), whole(-1), whole(-5), None, whole(-2)])
    compare(RECORDS["Slice"], [normal(1, 4, 5), *(bound.astype(np.int32) for bound in (whole(1), whole(3), whole(1)))])


def test_a_Slice_is_an_affine_index() -> None:
    kernel = defined("Slice", [normal(1, 9, 5), whole(7), whole(0), whole(0), whole(-2)])
    assert str(kernel.blocks[0].values[0]) == "x0[-2*i0 + 7, i1]"


@given(SHAPES, SHAPES)
@settings(max_examples=60)
def test_Expand_broadcasts_both_ways_or_refuses(shape: Shape, target: Shape) -> None:
    try:
        np.broadcast_shapes(shape, target)
    except ValueError:
        assert "does not broadcast" in refused("Expand", [normal(1, *shape), whole(*target)])
        return
    compare(RECORDS["Expand"], [normal(1, *shape), whole(*target)])


@given(SHAPES, st.data())
@settings(max_examples=40)
def test_Tile_agrees_with_onnxruntime(shape: Shape, data: st.DataObject) -> None:
    repeats = [data.draw(st.integers(0, 3)) for _ in shape]
    problem = (RECORDS["Tile"], [normal(1, *shape), whole(*repeats)])
    if shape:
        compare(*problem)
    else:
        check(*problem)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@given(n=st.integers(1, 2), c=st.integers(1, 3), h=st.integers(1, 3), w=st.integers(1, 3), block=st.integers(1, 3))
@settings(max_examples=25)
def test_DepthToSpace_and_SpaceToDepth_undo_each_other(mode: str, n: int, c: int, h: int, w: int, block: int) -> None:
    attrs: dict[str, Attr] = {"blocksize": block, "mode": mode}
    x = normal(1, n, c * block**2, h, w)
    compare(RECORDS["DepthToSpace"], [x], attrs)
    (wide,) = check(RECORDS["DepthToSpace"], [x], attrs)
    agree(check(RECORDS["SpaceToDepth"], [wide], attrs)[0], x, 0)
    if mode == "DCR":
        compare(RECORDS["SpaceToDepth"], [wide], {"blocksize": block})


VIEWS: list[tuple[str, list[np.ndarray], Attrs]] = [
    ("Reshape", [whole(4, 6)], {}),
    ("Transpose", [], {"perm": (2, 0, 1)}),
    ("Slice", [whole(1), whole(3)], {}),
    ("Expand", [whole(2, 2, 3, 4)], {}),
    ("Tile", [whole(1, 2, 1)], {}),
]


@pytest.mark.parametrize(("name", "parameters", "attrs"), VIEWS, ids=[view[0] for view in VIEWS])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.float64])
def test_elements_of_every_type_are_moved_as_they_are(name: str, parameters: Any, attrs: Attrs, dtype: Any) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    (result,) = check(RECORDS[name], [x, *parameters], attrs, rtol=0)
    assert result.dtype == dtype
    kernel = defined(name, [x, *parameters], attrs)
    assert isinstance(kernel.blocks[0].values[0], Load)


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    x = normal(1, 2, 3, 4)
    assert "cannot be reshaped" in refused("Reshape", [x, whole(5, -1)])
    assert "cannot be reshaped" in refused("Reshape", [x, whole(-1, -1)])
    assert "axis is 4" in refused("Flatten", [x], {"axis": 4})
    assert "extent 1" in refused("Squeeze", [x, whole(0)])
    assert "not all axes" in refused("Squeeze", [x, whole(3)])
    assert "twice" in refused("Unsqueeze", [x, whole(0, 0)])
    assert "no permutation" in refused("Transpose", [x], {"perm": (0, 1)})
    assert "do not fit" in refused("Slice", [x, whole(0), whole(1), whole(0), whole(0)])
    assert "do not fit" in refused("Slice", [x, whole(0, 0, 0, 0), whole(1, 1, 1, 1)])
    assert "repeats" in refused("Tile", [x, whole(2)])
    assert "no batch of images" in refused("DepthToSpace", [x], {"blocksize": 2})
    assert "channels" in refused("DepthToSpace", [normal(1, 1, 6, 2, 2)], {"blocksize": 2})
    assert "blocks of 2 x 2" in refused("SpaceToDepth", [normal(1, 1, 1, 3, 2)], {"blocksize": 2})
    assert "blocksize is 0" in refused("SpaceToDepth", [normal(1, 1, 1, 2, 2)], {"blocksize": 0})


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed(case: Case) -> None:
    assert not run(case, RECORDS[case.op])
