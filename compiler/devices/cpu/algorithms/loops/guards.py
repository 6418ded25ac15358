"""Conditions under which alone a point of a reduction counts, and the ranges of places that they leave of an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.forms.key_bounds import KeyBound, bound_along, is_inside
from compiler.ir.expr import Apply, Const, Expr, Where, conjunction, conjuncts
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel


def guards_of(block: Block, varies: Callable[[Expr], bool]) -> tuple[list[Expr], tuple[Expr, ...]]:
    """Splits conditions off a reduction's value where the other branch is the identity: those points are skipped.

    Conditions that differ from lane to lane (`varies`) stay where they are.
    """
    if len(block.values) != 1:
        return [], block.values
    value = block.values[0]
    if block.monoid == "sum" and isinstance(value, Apply) and value.function == "mul":
        for position, arg in enumerate(value.args):
            if isinstance(arg, Where) and _is_number(arg.otherwise, 0.0):
                guards, kept = _split_condition(arg, varies)
                args = tuple(kept if at == position else other for at, other in enumerate(value.args))
                return guards, (Apply("mul", args),)
    skipped = {"sum": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}.get(block.monoid)
    if isinstance(value, Where) and skipped is not None and _is_number(value.otherwise, skipped):
        guards, kept = _split_condition(value, varies)
        return guards, (kept,)
    return [], block.values


def _split_condition(value: Where, varies: Callable[[Expr], bool]) -> tuple[list[Expr], Expr]:
    parts = conjuncts(value.condition)
    same = [part for part in parts if not varies(part)]
    different = conjunction([part for part in parts if varies(part)])
    return same, value.then if different is None else Where(different, value.then, value.otherwise)


def _is_number(expr: Expr, number: float) -> bool:
    return isinstance(expr, Const) and float(expr.value) == number


def ranges_of(guards: Sequence[Expr], block: Block, kernel: Kernel) -> dict[Expr, tuple[Axis, KeyBound]]:
    """The guards that say where an axis of a reduction begins or ends, by numbers known before all of its loops."""
    found: dict[Expr, tuple[Axis, KeyBound]] = {}
    for guard in guards:
        for axis in block.reduction:
            bound = bound_along(guard, axis)
            if bound and not bound.limit.axes.intersection(block.reduction) and is_inside(bound.limit, kernel):
                found[guard] = axis, bound
    return found
