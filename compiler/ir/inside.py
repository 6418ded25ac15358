"""Whether loads and stores lie inside their tensors at every point at which they are taken.

An index is bounded by the ranges of its axes, by the conditions of the branches that it stands in, and by what the
expressions of its indirect atoms clamp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.index import Atom, FloorDiv, Index, Indirect, Mod
from compiler.ir.tensor import DType

Bounds = tuple[float, float]
"""Least and greatest number, both included; the least is above the greatest where there is none."""
Known = Mapping[Index, Bounds]
"""Bounds of indices without their constants, by conditions that hold."""
Access = tuple[str, tuple[Index, ...], Known]
"""A slot, where it is read, and what is known there."""
ANY: Bounds = (-math.inf, math.inf)
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_REFUTED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq", "eq": "ne"}


def leaving(values: Sequence[Expr], shapes: Mapping[str, Sequence[int]]) -> str:
    """The first load of expressions that may lie outside of its slot, in words; empty where there is none."""
    if all(_is_plain(load.index, shapes[load.slot]) for value in values for load in value.loads):
        return ""
    for slot, index, known in _loads(values):
        if where := may_leave(index, shapes[slot], known):
            return f"reads {slot}[{', '.join(map(str, index))}] {where}"
    return ""


def _is_plain(index: Sequence[Index], dims: Sequence[int]) -> bool:
    """Whether an index lies inside wherever its axes are, and has no indirect atoms."""
    found = ((position.range, extent, position) for position, extent in zip(index, dims, strict=True))
    return all(low >= 0 and high < extent and not any(_indirect(at)) for (low, high), extent, at in found)


def _loads(values: Sequence[Expr]) -> Iterator[Access]:
    """Each load of expressions, those inside indirect indices included, for each branch that takes it."""
    left: list[tuple[Expr, Known]] = [(value, {}) for value in values]
    seen: set[tuple[int, frozenset[tuple[Index, Bounds]]]] = set()
    while left:
        expr, known = left.pop()
        key = (id(expr), frozenset(known.items()))
        if key in seen:
            continue
        seen.add(key)
        if isinstance(expr, Load):
            yield expr.slot, expr.index, known
        left += ((atom.expr, known) for index in expr.indices for atom in _indirect(index))
        if isinstance(expr, Where):
            left.append((expr.condition, known))
            ways = ((expr.then, True), (expr.otherwise, False))
            left += ((way, there) for way, holds in ways if (there := _where(known, expr.condition, holds)) is not None)
        else:
            left += ((child, known) for child in expr.children)


def may_leave(index: Sequence[Index], dims: Sequence[int], known: Known) -> str:
    """On which axis of a tensor of `dims` an index may lie outside, and where, in words; empty: on none."""
    for axis, (position, extent) in enumerate(zip(index, dims, strict=True)):
        low, high = position.range
        if low < 0 or high >= extent:
            least, greatest = _bounds(position, known)
            if least <= greatest and (least < 0 or greatest >= extent):
                return f"at {least}..{greatest} of axis {axis}"
        for atom in _indirect(position):
            least, greatest = _computed(atom, known)
            if least < atom.low or greatest > atom.high:
                return f"on axis {axis}, as `{atom}` is {least}..{greatest}"
    return ""


def _indirect(index: Index) -> Iterator[Indirect]:
    for atom, _ in index.terms:
        if isinstance(atom, Indirect):
            yield atom
        elif isinstance(atom, FloorDiv | Mod):
            yield from _indirect(atom.index)


def _common(one: Bounds, two: Bounds) -> Bounds:
    return max(one[0], two[0]), min(one[1], two[1])


def _times(one: Bounds, factor: int) -> Bounds:
    return (one[0] * factor, one[1] * factor) if factor > 0 else (one[1] * factor, one[0] * factor)


def _bounds(index: Index, known: Known) -> Bounds:
    """Of an index, whose indirect atoms are taken to lie where they say."""
    found: Bounds = (index.const, index.const)
    for atom, factor in index.terms:
        low, high = _times(_of_atom(atom, known), factor)
        found = found[0] + low, found[1] + high
    for other, ends in known.items():
        factors = dict(index.terms)
        first, own = other.terms[0]
        if (factor := factors.get(first, 0) // own) and len((rest := index - other * factor).terms) < len(index.terms):
            low, high = _times(ends, factor)
            least, greatest = _bounds(rest, {one: at for one, at in known.items() if one != other})
            found = _common(found, (least + low, greatest + high))
    return found


def _of_atom(atom: Atom, known: Known) -> Bounds:
    if not isinstance(atom, FloorDiv | Mod):
        return atom.range
    low, high = _bounds(atom.index, known)
    if not math.isfinite(low) or not math.isfinite(high):
        return atom.range
    first, last = int(low) // atom.divisor, int(high) // atom.divisor
    if isinstance(atom, FloorDiv):
        return first, last
    return (int(low) % atom.divisor, int(high) % atom.divisor) if first == last else atom.range


def _computed(atom: Indirect, known: Known) -> Bounds:
    """What an indirect atom is, whatever it says of itself."""
    return _common(known.get(Index.of(atom), ANY), _values(atom.expr, known))


def _values(expr: Expr, known: Known) -> Bounds:
    """Of an expression. Integers that leave their type wrap round; a float may be NaN beside."""
    if not expr.dtype.is_integer:
        return _floats(expr, known) if expr.dtype.is_float else ANY
    limits = np.iinfo(expr.dtype.numpy)
    every = int(limits.min), int(limits.max)
    found = _integers(expr, known)
    return found if every[0] <= found[0] and found[1] <= every[1] else every


def _integers(expr: Expr, known: Known) -> Bounds:
    match expr:
        case Const(value):
            return int(value), int(value)
        case Where(condition, then, otherwise):
            return _either(then, otherwise, condition, known)
        case Cast(arg, _, saturate) if arg.dtype.is_integer or (saturate and arg.dtype.is_float):
            low, high = _values(arg, known)
            # A NaN becomes 0.
            return (low, high) if arg.dtype.is_integer else (min(low, 0), max(high, 0))
        case Apply("min" | "max" as function, (first, second)):
            return _chosen(function, _values(first, known), _values(second, known))
        case Apply("mod", (_, divisor)) if _values(divisor, known)[0] > 0:
            return 0, _values(divisor, known)[1] - 1
        case Position() | Apply("add" | "sub"):
            index = _linear(expr, wraps=True)
            apart = (atom for atom in _indirect(index) if not _is_within(atom, known))
            return ANY if next(apart, None) else _bounds(index, known)
    return ANY


def _is_within(atom: Indirect, known: Known) -> bool:
    low, high = _computed(atom, known)
    return atom.low <= low and high <= atom.high


def _floats(expr: Expr, known: Known) -> Bounds:
    if expr.dtype not in (DType.F32, DType.F64):
        return ANY
    rounded = expr.dtype.numpy.type
    match expr:
        case Const(value) if not math.isnan(value):
            return float(rounded(value)), float(rounded(value))
        case Where(condition, then, otherwise):
            return _either(then, otherwise, condition, known)
        case Apply("min" | "max" as function, (first, second)):
            return _chosen(function, _values(first, known), _values(second, known))
        case Apply("floor", (arg,)):
            low, high = np.floor(_values(arg, known))
            return float(low), float(high)
        case Apply("add", (first, second)):
            one, two = _values(first, known), _values(second, known)
            return float(rounded(one[0] + two[0])), float(rounded(one[1] + two[1]))
    return ANY


def _either(then: Expr, otherwise: Expr, condition: Expr, known: Known) -> Bounds:
    ways = [_where(known, condition, True), _where(known, condition, False)]
    found = [_values(one, way) for one, way in zip((then, otherwise), ways, strict=True) if way is not None]
    return min(low for low, _ in found), max(high for _, high in found)


def _chosen(function: str, one: Bounds, two: Bounds) -> Bounds:
    least = min if function == "min" else max
    return least(one[0], two[0]), least(one[1], two[1])


def _where(known: Known, condition: Expr, holds: bool) -> Known | None:
    """What is known where a condition holds, or does not; None: that is nowhere."""
    found = dict(known)
    left = [(condition, holds)]
    while left:
        one, true = left.pop()
        if isinstance(one, Const):
            if bool(one.value) is not true:
                return None
        elif isinstance(one, Apply) and one.function == "not":
            left.append((one.args[0], not true))
        elif isinstance(one, Apply) and one.function == ("and" if true else "or"):
            left += ((arg, true) for arg in one.args)
        elif isinstance(one, Apply) and one.function in _REFUTED and one.args[0].dtype.is_integer:
            first, second = map(_linear, one.args)
            if not _learn(found, one.function if true else _REFUTED[one.function], first - second):
                return None
    return found


def _linear(expr: Expr, *, wraps: bool = False) -> Index:
    """An integer expression as an index, of atoms for what is neither a sum nor a position.

    With `wraps` it is right but for multiples of what its type wraps round at.
    """
    limits = np.iinfo(expr.dtype.numpy)
    match expr:
        case Const(value):
            return Index((), int(value))
        case Position(index):
            found = index
        case Apply("add" | "sub" as function, args):
            first, second = (_linear(arg, wraps=wraps) for arg in args)
            found = first + second if function == "add" else first - second
        case _:
            low, high = _values(expr, {})
            return Index.of(Indirect(expr, int(low), int(high)))
    low, high = _bounds(found, {})
    if wraps or (limits.min <= low and high <= limits.max):
        return found
    return Index.of(Indirect(expr, int(limits.min), int(limits.max)))


def _learn(known: dict[Index, Bounds], function: str, index: Index) -> bool:
    """Enters that an index is below, at or above 0; False where it cannot be."""
    own, at = Index(index.terms), -index.const
    if own.terms and own.terms[0][1] < 0:
        own, at, function = own * -1, -at, _TURNED[function]
    least = {"gt": at + 1, "ge": at, "eq": at}.get(function, -math.inf)
    most = {"lt": at - 1, "le": at, "eq": at}.get(function, math.inf)
    if not own.terms:
        return least <= 0 <= most and (function != "ne" or at != 0)
    known[own] = _common(known.get(own, ANY), (least, most))
    return True
