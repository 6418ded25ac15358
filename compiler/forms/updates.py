"""Kernels that change some elements of a tensor and copy the others: a ScatterND or a TensorScatter into a cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.ir.expr import Apply, Expr, Load, Where
from compiler.ir.index import Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot


@dataclass(frozen=True)
class Update:
    """A block that changes some elements of an input and copies the others, so that nothing is done where both are one.

    read     the input
    index    where it is read and the output is written
    written  the output
    changes  under which condition an element is another one; None: never
    """

    read: str
    index: tuple[Index, ...]
    written: str
    changes: Expr | None


def updates_of(block: Block) -> tuple[Update, ...]:
    """What a block changes of each operand that it copies, all or some of its elements, each to the same index."""
    if block.monoid or len(block.stores) != 1:
        return ()
    (store,), (value,) = block.stores, block.values
    sides: tuple[tuple[Expr, Expr | None], ...] = ((value, None),)
    if isinstance(value, Where):
        sides = ((value.then, Apply("not", (value.condition,))), (value.otherwise, value.condition))
    return tuple(
        Update(side.slot, store.index, store.slot, changes)
        for side, changes in sides
        if isinstance(side, Load) and side.index == store.index and side.slot != store.slot
    )


def without_copy(kernel: Kernel | Routine, read: Slot, written: Slot) -> Kernel | None:
    """What is left to do where `written` lies over `read`: its elements are there already.

    None for a kernel that does not first copy all of the one to the other, or reads the one for something else.
    """
    if not isinstance(kernel, Kernel):
        return None
    kept = tuple(block for block in kernel.blocks if not _is_copy(block, read, written))
    if len(kept) == len(kernel.blocks) or not kept or any(read.name in block.reads for block in kept):
        return None
    return replace(kernel, blocks=kept)


def _is_copy(block: Block, read: Slot, written: Slot) -> bool:
    pair = (read.name, written.name)
    return any(one.changes is None and (one.read, one.written) == pair for one in updates_of(block))
