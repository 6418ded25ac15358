"""What lies between a call and one that is to take it in."""

from __future__ import annotations

from compiler.ir.buffers import Call, KernelGraph


def needed_elsewhere(kernels: KernelGraph, call: Call, reader: int) -> str:
    """Why a call's result must be stored, though the call at `reader` would compute it itself; empty if it need not."""
    if len(call.outputs) != 1:
        return "the first has several results"
    (between,) = call.outputs
    if between in kernels.outputs:
        return "the result between them is an output of the model"
    if kernels.readers[between] != (reader,):
        return "the result between them is read elsewhere too"
    storage = kernels.buffers[between].storage
    if storage != between:
        return "the result between them is a part of another buffer"
    if kernels.lying_in[storage] != (between,):
        return "another buffer lies in the memory of the result between them"
    return ""


def still_in_place(
    kernels: KernelGraph, first: Call, second: Call, inputs: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """The pairs of `second`, once it has taken in `first`, but for memory that this reads at other points too.

    `inputs` are those of the call that both become.
    """
    taken = {kernels.buffers[id].storage for id in first.inputs}
    return tuple(
        (out, inputs.index(second.inputs[into]))
        for out, into in second.in_place
        if second.inputs[into] in inputs and kernels.buffers[second.inputs[into]].storage not in taken
    )
