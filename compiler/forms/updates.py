"""Kernels that change some elements of a tensor and copy the others: a ScatterND into a cache."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.expr import Load
from compiler.ir.kernel import Block, Kernel, Routine, Slot


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
    if block.monoid or len(block.stores) != 1:
        return False
    (store,), (value,) = block.stores, block.values
    return (
        store.slot == written.name and isinstance(value, Load) and (value.slot, value.index) == (read.name, store.index)
    )
