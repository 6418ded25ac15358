"""Which keys the scores of attention leave out, where a comparison with the key's place says so.

Causal masks, lengths of a cache and windows are written as where(place <= last, score, lowest), or as score +
where(place <= last, 0, lowest): from a number that does not depend on the key on, or up to one, all scores are the
lowest. A kernel that finds a score far above the lowest need not read such keys at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.forms.attention import Attention
from compiler.ir.expr import Apply, Const, Expr, Position, Where, conjunction, conjuncts
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel
from compiler.ir.tensor import DType

NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
"""A comparison of integers that holds where another one does not."""
ABSORBS = -1e30
"""A number below it to which a score is added stays as it is, unless the score is larger than any that attention has:
1e22 and more."""
SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""A comparison with its sides exchanged."""


@dataclass(frozen=True)
class KeyBound:
    """Keys from `limit` + `more` on are left out where `is_end` holds, else those before it; `limit` is an integer."""

    limit: Expr
    more: int
    is_end: bool


@dataclass(frozen=True)
class KeyBounds:
    """Scores of keys that a bound leaves out are `lowest`; `kept` computes all others.

    Without bounds `kept` are the maps as they were.
    """

    bounds: tuple[KeyBound, ...]
    lowest: float
    kept: tuple[Block, ...]

    @property
    def are_segments(self) -> bool:
        """Whether data says where the keys of each query begin, and where they end: those of one text of many."""
        return {bound.is_end for bound in self.bounds if bound.limit.loads} == {False, True}


def key_bounds(view: Attention) -> KeyBounds:
    """The bounds of what the maps of attention make of each score.

    A choice is taken apart only where what it chooses may be computed for every key.
    """
    maps = view.maps
    if not maps or len(maps[-1].values) != 1:
        return KeyBounds((), 0.0, maps)
    *before, last = maps
    found, lowest, value = _added(last.values[0], view) or _chosen(last.values[0], view)
    return KeyBounds(found, lowest, (*before, replace(last, values=(value,)))) if found else KeyBounds((), 0.0, maps)


Found = tuple[tuple[KeyBound, ...], float, Expr]
"""Bounds, what scores beyond them are, and what all others are."""


def _chosen(value: Expr, view: Attention) -> Found:
    """Of where(conditions, score, number), perhaps inside each other."""
    found: list[KeyBound] = []
    if not isinstance(value, Where) or not isinstance(value.otherwise, Const):
        return (), 0.0, value
    lowest = value.otherwise
    while isinstance(value, Where) and value.otherwise == lowest:
        parts = [(part, bound_along(part, view.keys)) for part in conjuncts(value.condition)]
        own = [bound for _, bound in parts if bound is not None]
        if not own or not is_inside(value.then, view.kernel):
            break
        found += own
        rest = conjunction([part for part, bound in parts if bound is None])
        value = value.then if rest is None else Where(rest, value.then, lowest)
        if rest is not None:
            break
    return tuple(found), float(lowest.value), value


def _added(value: Expr, view: Attention) -> Found | None:
    """Of a score and masks of zeros and a lowest number, each a choice by places.

    None where one of them is anything else, or where several have a number of their own.
    """
    masks = [(term, *_mask(term, view.keys)) for term in _terms(value)]
    found = [bound for _, bounds, _ in masks for bound in bounds]
    left = [term for term, bounds, _ in masks if not bounds]
    lowest = [number for _, bounds, number in masks if bounds]
    if not found or not left or not all(is_inside(term, view.kernel) for term in left):
        return None
    if len(lowest) > 1 and any(number > float("-inf") for number in lowest):
        return None
    whole = left[0]
    for term in left[1:]:
        whole = Apply("add", (whole, term))
    return tuple(found), lowest[0], whole


def _terms(value: Expr) -> tuple[Expr, ...]:
    """What is added to what."""
    if isinstance(value, Apply) and value.function == "add":
        return (*_terms(value.args[0]), *_terms(value.args[1]))
    return (value,)


def _mask(term: Expr, keys: Axis) -> tuple[tuple[KeyBound, ...], float]:
    """The bounds of a choice between 0 and a number below ABSORBS, with it; none where a condition is no bound."""
    if not isinstance(term, Where) or not isinstance(term.then, Const) or not isinstance(term.otherwise, Const):
        return (), 0.0
    parts = conjuncts(term.condition)
    then, otherwise = float(term.then.value), float(term.otherwise.value)
    if then <= ABSORBS and otherwise == 0 and len(parts) == 1 and isinstance(parts[0], Apply):
        parts = [replace(parts[0], function=NEGATED.get(parts[0].function, ""))] if parts[0].function in NEGATED else []
    elif then != 0 or otherwise > ABSORBS:
        return (), 0.0
    found = [bound_along(part, keys) for part in parts]
    bounds = tuple(bound for bound in found if bound is not None) if None not in found else ()
    return bounds, min(then, otherwise)


def bound_along(condition: Expr, keys: Axis) -> KeyBound | None:
    """A comparison of the key's place, and perhaps a number, with what does not depend on the key."""
    if not isinstance(condition, Apply) or condition.function not in SWAPPED:
        return None
    (left, right), function = condition.args, condition.function
    if keys in right.axes:
        left, right, function = right, left, SWAPPED[function]
    if not isinstance(left, Position) or left.index.coefficient(keys) != 1 or keys in right.axes:
        return None
    offset = left.index.substitute({keys: Index.of(0)})
    if offset.terms or left.type not in (DType.I32, DType.I64):
        return None
    return KeyBound(right, int(function in ("le", "gt")) - offset.const, function in ("lt", "le"))


def is_inside(value: Expr, kernel: Kernel) -> bool:
    """Whether no load of a value may leave its tensor, wherever the value is computed."""
    return all(
        index.range[0] >= 0 and index.range[1] < extent
        for load in value.loads
        for index, extent in zip(load.index, kernel.slots[load.slot].type.dims, strict=True)
    )
