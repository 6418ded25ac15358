"""Inputs that must be known when compiling and have few legal values: each value with a flag that it is the one.

An axis, or a set of axes, is one of a tensor's. So every value is compiled as if it were a constant, and the right
result chosen while running, as of the branches of an If.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

from compiler.frontend.open.measured import selected
from compiler.frontend.open.places import gathered
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import from_the_end
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.traits import Trait

MOST = 36
"""Values of all inputs of a call together that are compiled side by side."""
SETS = having(Trait.REDUCTION) | {"Squeeze", "Unsqueeze"}
"""Operators whose `axes` mean the same in any order."""
Few = list[tuple[np.ndarray, int]]
"""Legal values, and for each the scalar (bool) that is true where the input is it."""


def few_values(values: OpenValues, op: str, ids: Sequence[int | None], position: int, name: str) -> Few | None:
    """The legal values of an input that data say, any other of which is an error of the run; None: they are not few."""
    id, data = ids[position], ids[0]
    if id is None or data is None or position == 0:
        return None
    kind, rank = values.graph.type(id), values.graph.type(data).rank
    if not kind.elements:
        return [(np.zeros(kind.dims, kind.dtype.numpy), values.constant(np.ones((), np.bool_)))]
    if name == "axis" and kind.elements == 1 and 0 < rank <= MOST:
        return _one_axis(values, op, id, rank)
    if name == "axes" and op in SETS:
        count = kind.elements
        rank += count if op == "Unsqueeze" else 0
        return _set_of_axes(values, op, id, rank, count) if count <= rank and comb(rank, count) <= MOST else None
    return None


def _one_axis(values: OpenValues, op: str, id: int, rank: int) -> Few:
    kind = values.graph.type(id)
    given = values.cast(values.reshape(id, ()), DType.I64)
    says = f"input 'axis' of {op} {values.source!r:.100} must be an axis of a tensor of rank {rank}"
    values.demand(given, -rank, rank - 1, says)
    place = from_the_end(values, given, values.scalar(rank))
    axes = [np.full(kind.dims, axis, kind.dtype.numpy) for axis in range(rank)]
    return [(array, values.node("Equal", (place, values.scalar(axis)))) for axis, array in enumerate(axes)]


def _set_of_axes(values: OpenValues, op: str, id: int, rank: int, count: int) -> Few:
    """By the sum of two to the power of each axis: it has as many bits as there are axes only if these all differ."""
    kind = values.graph.type(id)
    places = from_the_end(values, values.cast(values.reshape(id, (count,)), DType.I64), values.scalar(rank))
    powers = np.array([0, *(2**axis for axis in range(rank)), 0], np.int64)
    bits = gathered(values, values.constant(powers), values.node("Add", (places, values.scalar(1))), 0)
    total = values.node("ReduceSum", (bits, None), {"axes": (0,), "keepdims": 0, "noop_with_empty_axes": 1})
    found: Few = []
    for axes in combinations(range(rank), count):
        flag = values.node("Equal", (total, values.scalar(sum(2**axis for axis in axes))))
        found.append((np.array(axes, kind.dtype.numpy).reshape(kind.dims), flag))
    return found


def one_of(
    values: OpenValues, op: str, name: str, few: Few, results: Sequence[Sequence[int | None]]
) -> list[int | None]:
    """Of the results for legal values those for the one that it is. Raises Unsupported where types or ranks differ."""
    flags = [flag for _, flag in few]
    if len(few) == 1 and flags[0] in values.graph.constants:
        return [*results[0]]
    count = values.joined(
        [values.node("Unsqueeze", (values.cast(flag, DType.I64), None), {"axes": (0,)}) for flag in flags]
    )
    fitting = values.node("ReduceSum", (count, None), {"axes": (0,), "keepdims": 0, "noop_with_empty_axes": 1})
    listed = ", ".join(str(array.tolist()) for array, _ in few[:6]) + (", ..." if len(few) > 6 else "")
    says = f"input {name!r} of {op} {values.source!r:.100} must be one of {listed}, also counted from the end"
    values.demand(fitting, 1, 1, says)
    return [None if None in column else selected(values, flags, column) for column in zip(*results, strict=True)]
