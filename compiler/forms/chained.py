"""What the forms of chains of blocks share, in which a row that some blocks make is multiplied by a later one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.tensor import DType


def is_fp32(kernel: Kernel) -> bool:
    """Whether all blocks compute in fp32 and store that."""
    return all(value.dtype is DType.F32 for block in kernel.blocks for value in block.values) and all(
        kernel.slots[slot].type.dtype is DType.F32 for block in kernel.blocks for slot in block.writes
    )


def is_fp32_one_by_one(kernel: Kernel) -> bool:
    """Whether that holds, each block stores one result, and sums are of fp32 too."""
    return is_fp32(kernel) and all(
        len(block.stores) == 1 and block.accumulator in (None, DType.F32) for block in kernel.blocks
    )


def part_of(
    kernel: Kernel,
    blocks: Sequence[Block],
    row: str,
    axes: tuple[Axis, ...],
    given: tuple[Slot, ...],
    outputs: tuple[Slot, ...],
) -> Kernel:
    """Some blocks as a kernel with the shared `axes`, among which are those of each block.

    `row` is no temporary of it: what is `given` beside the inputs, or among the `outputs`.
    """
    apart = tuple(replace(block, axes=()) for block in blocks)
    used = {slot for block in apart for slot in (*block.reads, *block.writes)}
    inputs = tuple(slot for slot in kernel.inputs if slot.name in used)
    temps = tuple(slot for slot in kernel.temps if slot.name in used and slot.name != row)
    return Kernel(kernel.family, (*inputs, *given), outputs, apart, temps, axes)
