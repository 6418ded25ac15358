from __future__ import annotations

from typing import Any

import pytest

from compiler.frontend.open.carried import carried
from compiler.ir.kernel import Kernel
from compiler.ops import OPERATORS
from tests.compiler.ops.single import normal, prepare


def kernel_of(op: str, shapes: list[tuple[int, ...]], **attrs: Any) -> Kernel:
    node, _, types = prepare(OPERATORS[op], [normal(1, *shape) for shape in shapes], attrs, 1)
    found = OPERATORS[op].define(node, types, OPERATORS[op].infer(node, types))
    assert isinstance(found, Kernel)
    return found


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "slot", "axis", "outputs"),
    [
        ("Relu", [(3, 4)], {}, "x0", 1, {("y0", 1)}),
        ("Add", [(3, 4), (4,)], {}, "x1", 0, {("y0", 1)}),
        ("Transpose", [(3, 4, 5)], {"perm": (2, 0, 1)}, "x0", 0, {("y0", 1)}),
        ("MatMul", [(6, 3, 4), (4, 5)], {}, "x0", 0, {("y0", 0)}),
        ("MatMul", [(6, 3, 4), (4, 5)], {}, "x1", 1, {("y0", 2)}),
        ("Conv", [(2, 3, 8, 8), (4, 3, 3, 3)], {}, "x0", 0, {("y0", 0)}),
        ("Softmax", [(3, 4)], {"axis": 1}, "x0", 0, {("y0", 0)}),
        ("LayerNormalization", [(3, 5, 4), (4,), (4,)], {"axis": -1}, "x0", 1, {("y0", 1)}),
    ],
)
def test_an_axis_whose_points_stay_apart_goes_to_one_axis_of_the_result(
    op: str, shapes: Any, attrs: Any, slot: str, axis: int, outputs: Any
) -> None:
    way = carried(kernel_of(op, shapes, **attrs), slot, axis)
    assert (way.outputs, way.summed, way.mixed) == (frozenset(outputs), False, False)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "slot", "axis"),
    [
        ("MatMul", [(3, 4), (4, 5)], {}, "x0", 1),
        ("Conv", [(2, 3, 8, 8), (4, 3, 3, 3)], {}, "x0", 1),
        ("Softmax", [(3, 4)], {"axis": 1}, "x0", 1),
        ("LayerNormalization", [(3, 5, 4), (4,), (4,)], {"axis": 1}, "x0", 1),
    ],
)
def test_an_axis_that_is_reduced_is_summed(op: str, shapes: Any, attrs: Any, slot: str, axis: int) -> None:
    assert carried(kernel_of(op, shapes, **attrs), slot, axis).summed


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "slot", "axis"),
    [
        ("Conv", [(2, 3, 8, 8), (4, 3, 3, 3)], {}, "x0", 2),
        ("Trilu", [(3, 4)], {}, "x0", 1),
        ("DepthToSpace", [(2, 4, 3, 3)], {"blocksize": 2}, "x0", 2),
        ("Flatten", [(2, 3, 4)], {"axis": 1}, "x0", 1),
    ],
)
def test_an_axis_whose_places_are_computed_or_counted_is_mixed(
    op: str, shapes: Any, attrs: Any, slot: str, axis: int
) -> None:
    assert carried(kernel_of(op, shapes, **attrs), slot, axis).mixed
