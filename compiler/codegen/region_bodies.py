"""Bodies of regions as every kind of device carries them out: constants as operands, values written over others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.codegen.weights import physical_array
from compiler.forms.updates import without_copy
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.region import Loop, Region, Use
from compiler.ir.tensor import DType, Layout


@dataclass(frozen=True)
class Laid:
    """A constant in the layout and the dtype that a buffer of a body has."""

    layout: Layout
    dtype: DType
    elements: int

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """Its elements in the order of the layout, with one axis."""
        return physical_array(constant, self.layout).astype(self.dtype.numpy, copy=False).reshape(-1)


def uses_of(region: Region, number: int) -> dict[tuple[int, int], Use]:
    """The constants that the calls of one of a region's bodies read, by call and operand."""
    return {(use.call, use.operand): use for use in region.uses if use.body == number}


def packed(
    body: KernelGraph, uses: Mapping[tuple[int, int], Use], packings: Sequence[Mapping[int, Packing]]
) -> Iterator[tuple[Use, Packing]]:
    """How a body's constants are to lie, where that is not as they are; `packings` are of its calls' kernels."""
    for (call, operand), use in uses.items():
        packing = packings[call].get(operand)
        if packing is None:
            buffer = body.buffers[use.constant]
            if buffer.layout.is_plain and buffer.dtype is buffer.type.dtype:
                continue
            packing = Laid(buffer.layout, buffer.dtype, buffer.span)
        yield use, packing


def carried_in_place(body: KernelGraph, loop: Loop) -> list[int | None]:
    """Of each carried value the call that writes the new one over the old one, which nothing reads after it; or None.

    The old value, and the new one, must fill a storage of their own.
    """
    stores, reads = (
        [{body.buffers[id].storage for id in side} for side in sides]
        for sides in ([call.outputs for call in body.calls], [call.inputs for call in body.calls])
    )
    found: list[int | None] = []
    for carried in range(loop.carried):
        old, new = body.inputs[1 + carried], body.outputs[loop.decides + carried]
        writers = [at for at, written in enumerate(stores) if body.buffers[new].storage in written]
        found.append(None)
        if len(writers) != 1 or any(body.buffers[id].storage != id for id in (old, new)):
            continue
        (writer,) = writers
        call = body.calls[writer]
        pairs = {(call.outputs[out], call.inputs[into]) for out, into in call.in_place}
        needed = any(old in read for read in reads[writer + 1 :])
        once = [body.buffers[id].storage for id in call.inputs].count(old) == 1
        if (new, old) in pairs and once and not needed:
            found[-1] = writer
    return found


def updating(workload: Workload, body: KernelGraph, call: Call, carried: int, loop: Loop) -> Workload:
    """The kernel that writes a carried value over the old one, without a copy of it to itself."""
    read = workload.kernel.inputs[call.inputs.index(body.inputs[1 + carried])]
    written = workload.kernel.outputs[call.outputs.index(body.outputs[loop.decides + carried])]
    kernel = without_copy(workload.kernel, read, written)
    return replace(workload, kernel=kernel) if kernel else workload
