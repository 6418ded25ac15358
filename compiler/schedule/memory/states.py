"""Which states of a program may be written over what was read of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.ir.border import Growth
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import written_over
from compiler.ir.plans.plan import Plan, ended_before, storage_users
from compiler.ir.states import Carried


def states_of(
    kernels: KernelGraph, plans: Sequence[Plan], pairs: Sequence[tuple[int, int]], growth: Growth | None = None
) -> tuple[Carried, ...]:
    """Pairs of positions, of an output and the input that it is in the next run, with whether both may be one memory.

    They may where under each plan every call that reads the input has ended when a call begins that writes the output,
    but for a call that reads it only at the points that it writes (`written_over`). Then nobody reads what is not there
    any more, whatever else the output's storage holds.
    """
    before = [ended_before(plan.tasks_of_one_device(), plan.lanes, len(kernels.calls)) for plan in plans]
    found = (Carried(out, into, all(_in_place(kernels, ended, out, into) for ended in before)) for out, into in pairs)
    if growth is None:
        return tuple(found)
    names = [kernels.buffers[id].name for id in kernels.inputs]
    return tuple(
        replace(one, rows=growth.rows, room=growth.room)
        if names[one.input] == growth.length[0]
        else replace(one, axis=growth.axes.get(names[one.input]))
        for one in found
    )


def _in_place(kernels: KernelGraph, ended: Sequence[int], output: int, input: int) -> bool:
    made, read = kernels.buffers[kernels.outputs[output]], kernels.buffers[kernels.inputs[input]]
    alike = (made.dtype, made.type.dims, made.layout, made.strides, made.offset)
    if alike != (read.dtype, read.type.dims, read.layout, read.strides, read.offset) or made.storage == read.storage:
        return False
    writers = [at for at, call in enumerate(kernels.calls) if _touches(kernels, call.outputs, made.storage)]
    readers = storage_users(kernels).get(read.storage, ())
    return bool(writers) and all(
        ended[writer] >> reader & 1
        or (reader == writer and (made.storage, read.storage) in written_over(kernels, writer))
        for writer in writers
        for reader in readers
    )


def _touches(kernels: KernelGraph, buffers: Sequence[int], storage: int) -> bool:
    return any(kernels.buffers[id].storage == storage for id in buffers)
