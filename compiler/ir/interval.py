"""What an expression comes to where its axes take fewer values than they may.

Such are the interior of a padded tensor, or one tile of a loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import numpy as np

from compiler.ir.expr import Apply, Cast, Const, Expr, Position, Where
from compiler.ir.index import Axis, FloorDiv, Index, Mod, Range
from compiler.ir.tensor import DType

Limits = Mapping[Axis, Range]
"""Least and greatest value of axes, both included; other axes take all their values."""

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_FOLD: Mapping[str, Callable[..., object]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def range_of(index: Index, limits: Limits) -> Range:
    """Least and greatest value of an index."""
    low = high = index.const
    for atom, factor in index.terms:
        if isinstance(atom, Axis):
            ends = limits.get(atom, atom.range)
        elif isinstance(atom, FloorDiv):
            first, last = range_of(atom.index, limits)
            ends = (first // atom.divisor, last // atom.divisor)
        elif isinstance(atom, Mod):
            first, last = range_of(atom.index, limits)
            same = first // atom.divisor == last // atom.divisor
            ends = (first % atom.divisor, last % atom.divisor) if same else atom.range
        else:
            ends = atom.range
        low += min(ends[0] * factor, ends[1] * factor)
        high += max(ends[0] * factor, ends[1] * factor)
    return (low, high)


def interval(expr: Expr, limits: Limits) -> Range | None:
    """Bounds of an integer expression over positions.

    None where it depends on data, or on functions with no bounds here.
    """
    if isinstance(expr, Position):
        return range_of(expr.index, limits)
    if isinstance(expr, Const) and expr.type.is_integer:
        return (int(expr.value), int(expr.value))
    if not isinstance(expr, Apply) or expr.function not in ("add", "sub", "min", "max"):
        return None
    one, two = (interval(arg, limits) for arg in expr.args)
    if one is None or two is None:
        return None
    if expr.function == "sub":
        return (one[0] - two[1], one[1] - two[0])
    if expr.function == "add":
        return (one[0] + two[0], one[1] + two[1])
    clamp = min if expr.function == "min" else max
    return (clamp(one[0], two[0]), clamp(one[1], two[1]))


def settle(expr: Expr, limits: Limits) -> Expr:
    """An expression of equal value within the limits, with all that they decide decided.

    Conditions, branches, clamps, counts.
    """
    return expr.transform(lambda part: _settled(part, limits))


def decided(condition: Expr, limits: Limits) -> bool | None:
    """Whether a condition holds everywhere or nowhere within the limits; None where neither is known."""
    settled = settle(condition, limits)
    return bool(settled.value) if isinstance(settled, Const) else None


def _settled(expr: Expr, limits: Limits) -> Expr:
    """One form whose parts are settled."""
    if isinstance(expr, Where) and isinstance(expr.condition, Const):
        return expr.then if expr.condition.value else expr.otherwise
    if isinstance(expr, Cast) and isinstance(expr.arg, Const) and expr.arg.type.is_integer and expr.type is DType.F32:
        return Const(float(np.float32(expr.arg.value)), DType.F32)
    if not isinstance(expr, Apply):
        return expr
    if expr.function in ("and", "or"):
        return _logical(expr)
    if len(expr.args) == 2 and all(isinstance(arg, Const) for arg in expr.args) and expr.function in _FOLD:
        return _folded(expr)
    bounds = [interval(arg, limits) for arg in expr.args]
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        return expr
    if expr.function in ("min", "max"):
        return _clamped(expr, bounds[0], bounds[1])
    if expr.function in _COMPARE:
        compare = _COMPARE[expr.function]
        answers = _answers(expr.function, compare, bounds[0], bounds[1])
        return expr if answers is None else Const(answers, DType.BOOL)
    return expr


def _logical(expr: Apply) -> Expr:
    """`and` and `or` of which one side is known."""
    decisive = expr.function == "or"
    for known, other in (expr.args, expr.args[::-1]):
        if isinstance(known, Const):
            return known if bool(known.value) == decisive else other
    return expr


def _folded(expr: Apply) -> Expr:
    dtype = expr.dtype
    if dtype not in (DType.I64, DType.F32):
        return expr
    with np.errstate(all="ignore"):
        value = _FOLD[expr.function](*(dtype.numpy.type(arg.value) for arg in expr.args if isinstance(arg, Const)))
    return Const(float(value) if dtype.is_float else int(value), dtype)  # type: ignore[arg-type, call-overload]


def _clamped(expr: Apply, one: Range, two: Range) -> Expr:
    first, second = expr.args
    if expr.function == "max":
        return first if one[0] >= two[1] else second if two[0] >= one[1] else expr
    return first if one[1] <= two[0] else second if two[1] <= one[0] else expr


def _answers(function: str, compare: Callable[[int, int], bool], one: Range, two: Range) -> bool | None:
    """What a comparison of two ranges always gives."""
    if function in ("eq", "ne"):
        if one[1] < two[0] or two[1] < one[0]:
            return function == "ne"
        return compare(one[0], two[0]) if one[0] == one[1] == two[0] == two[1] else None
    answers = {compare(a, b) for a in one for b in two}
    return answers.pop() if len(answers) == 1 else None
