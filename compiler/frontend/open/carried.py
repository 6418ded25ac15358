"""What a kernel does along an axis: where points stay apart, and where they are combined.

Read off the definition of an operator, so that whatever has a kernel can be asked, by any operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compiler.ir.expr import Load, Position
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel

Place = tuple[str, int]
"""A slot, and one of its axes."""


@dataclass(frozen=True)
class Carried:
    """Where one axis of an input goes.

    outputs  the places of outputs whose element at position p depends on elements at position p alone
    summed   whether elements are also combined along the axis, by a reduction
    mixed    whether elements at one position meet others in another way: a position computed, or counted
    """

    outputs: frozenset[Place]
    summed: bool
    mixed: bool


def carried(kernel: Kernel, slot: str, axis: int) -> Carried:
    """Follows axis `axis` of an input through the blocks and temporaries of a kernel."""
    outputs = {one.name for one in kernel.outputs}
    waiting, seen = [(slot, axis)], {(slot, axis)}
    found: set[Place] = set()
    summed = mixed = False
    while waiting:
        place = waiting.pop()
        for block in kernel.blocks:
            for read in _reads(block, place):
                if read is None:
                    mixed = True
                elif read in block.reduction:
                    summed = True
                elif read in block.sequential or read in kernel.sequential or _counts(block, read):
                    mixed = True
                else:
                    fresh = set(_written(kernel, block, read, outputs))
                    mixed |= not fresh
                    found |= {one for one in fresh if one[0] in outputs}
                    waiting += fresh - seen
                    seen |= fresh
    return Carried(frozenset(found), summed, mixed)


def _reads(block: Block, place: Place) -> Iterable[Axis | None]:
    """The axis that indexes the place in each load of a block; None where it is no axis alone."""
    slot, axis = place
    for load in _loads(block):
        if load.slot == slot:
            index = load.index[axis]
            alone = len(index.terms) == 1 and index.const == 0 and index.terms[0][1] == 1
            atom = index.terms[0][0] if alone else None
            yield atom if isinstance(atom, Axis) else None


def _loads(block: Block) -> Iterable[Load]:
    for value in block.values:
        yield from value.loads
    for store in block.stores:
        for index in store.index:
            yield from Position(index).loads


def _counts(block: Block, axis: Axis) -> bool:
    """Whether a value depends on where it stands along the axis, beside what it loads there."""
    return any(axis in part.index.axes for value in block.values for part in value.walk() if isinstance(part, Position))


def _written(kernel: Kernel, block: Block, axis: Axis, outputs: set[str]) -> Iterable[Place]:
    """Where the block puts what it computes at a point of the axis."""
    for store in block.stores:
        places = [at for at, index in enumerate(store.index) if index == Index.of(axis)]
        if places:
            yield from ((store.slot, at) for at in places)
        elif axis in kernel.shared and store.slot not in outputs:
            yield from _shared(kernel, store.slot, axis, outputs, {store.slot})


def _shared(kernel: Kernel, slot: str, axis: Axis, outputs: set[str], seen: set[str]) -> Iterable[Place]:
    """The places of outputs that a temporary of each point of a shared axis goes into."""
    for block in kernel.blocks:
        if slot not in block.reads:
            continue
        for store in block.stores:
            places = [at for at, index in enumerate(store.index) if index == Index.of(axis)]
            yield from ((store.slot, at) for at in places)
            if not places and store.slot not in outputs and store.slot not in seen:
                yield from _shared(kernel, store.slot, axis, outputs, {*seen, store.slot})
