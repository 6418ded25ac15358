"""Kernels whose results are known beyond a size that is given while running.

An axis that stands for an open dimension has its capacity as extent, and a kernel keeps what lies beyond the size by a
choice: y[a] = where(a < size[], f(a), 0). Where every result of a kernel is such a choice, or a map of one, nothing has
to be computed for points beyond the size: what is stored there no longer depends on any reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from compiler.ir.expr import Apply, Expr, Load, Position, Where, conjunction, conjuncts
from compiler.ir.index import Axis, FloorDiv, Index
from compiler.ir.kernel import Block, Kernel, Store


@dataclass(frozen=True)
class Bound:
    """`place` < `size`: a sum of axes, each times a number above 0, and a scalar that the kernel is given."""

    place: Index
    size: Load


@dataclass(frozen=True)
class Stored:
    """What one store of a block puts at each point of the shared axes and of the block's own."""

    axes: tuple[Axis, ...]
    store: Store
    value: Expr


@dataclass(frozen=True)
class Beyond:
    """What a kernel stores at points where a bound does not hold: maps of its inputs, mostly numbers."""

    bound: Bound
    stored: tuple[Stored, ...]


def bound_of(condition: Expr, inputs: frozenset[str]) -> Bound | None:
    """A condition as a bound by one of these inputs; None for any other condition."""
    if not isinstance(condition, Apply) or condition.function != "lt":
        return None
    place, size = condition.args
    if not isinstance(place, Position) or not isinstance(size, Load) or size.index or size.slot not in inputs:
        return None
    rises = all(isinstance(atom, Axis) and factor > 0 for atom, factor in place.index.terms)
    return Bound(place.index, size) if rises and place.index.terms else None


def beyond_bounds(kernel: Kernel) -> tuple[Beyond, ...]:
    """The bounds beyond which all that a kernel stores is known, in the order in which they are met.

    Empty where it runs in sequence.
    """
    if kernel.sequential or any(block.sequential for block in kernel.blocks):
        return ()
    found = [(bound, _stored_beyond(kernel, bound)) for bound in bounds_in(kernel)]
    return tuple(Beyond(bound, stored) for bound, stored in found if stored is not None)


def leading(place: Index) -> tuple[Axis | None, int]:
    """The axis that comes first in a bound, and its factor: what all others add is not negative. None where it may be.

    From the size divided by the factor on, rounded up, all its places lie beyond, whatever the others are.
    """
    terms = [(atom, factor) for atom, factor in place.terms if isinstance(atom, Axis)]
    return max(terms, key=lambda term: term[1]) if place.const >= 0 else (None, 1)


@lru_cache(maxsize=64)
def open_axes(kernel: Kernel) -> frozenset[Axis]:
    """Axes of which a size that is known while running may be the end: points beyond it need not be computed."""
    first = (leading(one.bound.place)[0] for one in beyond_bounds(kernel))
    return frozenset(axis for axis in first if axis is not None)


def within(block: Block, bounds: Sequence[Bound]) -> Block:
    """A block at points at which bounds hold: choices that ask for nothing else are made."""

    def made(expr: Expr) -> Expr:
        if not isinstance(expr, Where):
            return expr
        asked = [part for part in conjuncts(expr.condition) if not any(_is(part, bound) for bound in bounds)]
        condition = conjunction(asked)
        return expr.then if condition is None else Where(condition, expr.then, expr.otherwise)

    return replace(block, values=tuple(value.transform(made) for value in block.values))


def neutral_from(value: Expr, axis: Axis, neutral: float, inputs: frozenset[str]) -> tuple[Load, ...]:
    """The sizes from which on a value is `neutral` along an axis, because a choice in it says so."""
    if not isinstance(value, Where) or not _is_number(value.otherwise, neutral):
        return ()
    bounds = [bound_of(part, inputs) for part in conjuncts(value.condition)]
    own = tuple(bound.size for bound in bounds if bound is not None and bound.place == Index.of(axis))
    return (*own, *neutral_from(value.then, axis, neutral, inputs))


def quotient_of(index: Index) -> tuple[Index, int]:
    """What an index is the quotient of, and by which number; itself and 1 where it is none."""
    if len(index.terms) == 1 and isinstance(atom := index.terms[0][0], FloorDiv) and index == Index.of(atom):
        return atom.index, atom.divisor
    return index, 1


def guarded_loads(kernel: Kernel) -> Iterator[tuple[Load, tuple[Bound, ...]]]:
    """Every load of a kernel, with the bounds below which alone it counts, because choices around it say so."""
    inputs = frozenset(slot.name for slot in kernel.inputs if not slot.type.rank)
    left: list[tuple[Expr, tuple[Bound, ...]]] = []
    for block in kernel.blocks:
        left += [(value, ()) for value in block.values]
        left += [(Position(index), ()) for store in block.stores for index in store.index]
    while left:
        expr, bounds = left.pop()
        if isinstance(expr, Load):
            yield expr, bounds
        if isinstance(expr, Where):
            asked = (bound_of(part, inputs) for part in conjuncts(expr.condition))
            left += [(expr.condition, bounds), (expr.otherwise, bounds)]
            left.append((expr.then, (*bounds, *(bound for bound in asked if bound is not None))))
        else:
            left += [(child, bounds) for child in expr.children]
        left += [(load, bounds) for index in expr.indices for load in Position(index).loads]


def bounds_in(kernel: Kernel) -> Iterator[Bound]:
    """Every bound in the conditions of choices, each once."""
    inputs = frozenset(slot.name for slot in kernel.inputs if not slot.type.rank)
    if not inputs:
        return iter(())
    choices = (
        part for block in kernel.blocks for value in block.values for part in value.walk() if isinstance(part, Where)
    )
    conditions = (condition for choice in choices for condition in conjuncts(choice.condition))
    found = (bound_of(condition, inputs) for condition in conditions)
    return iter(dict.fromkeys(bound for bound in found if bound is not None))


def _stored_beyond(kernel: Kernel, bound: Bound) -> tuple[Stored, ...] | None:
    """What is stored in the outputs where a bound does not hold; None where some of it has to be computed."""
    outputs = frozenset(slot.name for slot in kernel.outputs)
    inputs = frozenset(slot.name for slot in kernel.inputs)
    known: dict[Load, Expr] = {}
    stored: list[Stored] = []
    for block in kernel.blocks:
        values = [None if block.monoid else _known(value, bound, known, inputs) for value in block.values]
        for store, value, given in zip(block.stores, values, block.values, strict=True):
            if store.slot in outputs:
                if value is None or any(Position(index).loads for index in store.index):
                    return None
                stored.append(Stored(block.axes, store, value))
            if value is not None:
                known[Load(store.slot, store.index, given.dtype)] = value
    return tuple(stored)


def _known(value: Expr, bound: Bound, known: Mapping[Load, Expr], inputs: frozenset[str]) -> Expr | None:
    """A block's value beyond a bound in terms of inputs; None where it takes more than maps."""
    beyond = value.transform(lambda expr: known.get(expr, expr) if isinstance(expr, Load) else _settled(expr, bound))
    return beyond if all(load.slot in inputs for load in beyond.loads) else None


def _settled(expr: Expr, bound: Bound) -> Expr:
    """A choice that a bound decides, or between two equal values, without the choice."""
    if not isinstance(expr, Where):
        return expr
    if any(_is(part, bound) for part in conjuncts(expr.condition)) or expr.then == expr.otherwise:
        return expr.otherwise
    return expr


def _is(condition: Expr, bound: Bound) -> bool:
    return condition == Apply("lt", (Position(bound.place), bound.size))


def _is_number(expr: Expr, number: float) -> bool:
    return not expr.children and not expr.indices and getattr(expr, "value", None) == number
