"""The dtype in which activations and weights lie in memory: 16-bit floats where the job's precision says so.

Kernels compute in fp32 as before; elements are converted where they are loaded and stored, so that rounding happens
once for each value that goes through memory and never inside a fused kernel. A product whose operands both lie in
memory in 16 bits is then exactly what tensor cores compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace

import numpy as np

from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.kernel import Routine
from compiler.ir.tensor import DType

ELEMENTS: Mapping[str, DType] = {"fp16": DType.F16, "bf16": DType.BF16}
"""What fp32 tensors are in memory, by precision; in others they are themselves."""
LEAST_CONSTANT = 1024
"""Elements of a constant that is worth shortening: scales and biases keep all their digits."""


Takes = Callable[[KernelGraph, int], bool]
"""Whether a device can carry out the call at a position on buffers whose elements are what the graph says."""


def with_storage(kernels: KernelGraph, element: DType, exact: Collection[int] = ()) -> KernelGraph:
    """Every fp32 buffer with elements of a 16-bit float in memory.

    Left as they are: the model's inputs and outputs and what shares memory with them, what Routines touch, small
    constants, and constants that the 16-bit float cannot hold. So are what the calls at the positions `exact` write,
    and constants that they read: they round nothing.
    """
    calls = [kernels.calls[at] for at in exact]
    kept = {*_written(calls), *(id for call in calls for id in call.inputs if id in kernels.constants)}
    return _shortened(kernels, element, _fixed(kernels, element) | {kernels.buffers[id].storage for id in kept})


def with_short_activations(
    kernels: KernelGraph, element: DType, takes: Takes, exact: Collection[int] = ()
) -> KernelGraph:
    """Every fp32 activation, as `with_storage` has it, whose writers and readers all take it; constants stay.

    So does what the calls at the positions `exact` write: they round nothing.

    What a call does not take goes back to fp32, with all that shares its memory. That may leave another call with a
    mixture, so calls are asked until each takes what it has: there are no more rounds than storages.
    """
    kept = [*kernels.constants, *_written([kernels.calls[at] for at in exact])]
    fixed = {*_fixed(kernels, element), *(kernels.buffers[id].storage for id in kept)}
    while True:
        changed = _shortened(kernels, element, fixed)
        refused = {
            changed.buffers[id].storage
            for at, call in enumerate(changed.calls)
            if not takes(changed, at)
            for id in (*call.inputs, *call.outputs)
        }
        if refused <= fixed:
            return changed
        fixed |= refused


def _written(calls: Iterable[Call]) -> list[int]:
    return [id for call in calls for id in call.outputs]


def _shortened(kernels: KernelGraph, element: DType, fixed: Set[int]) -> KernelGraph:
    """With short elements in all fp32 buffers but those of these storages."""
    shortened = {
        id: replace(buffer, element=element)
        for id, buffer in kernels.buffers.items()
        if buffer.type.dtype is DType.F32 and buffer.storage not in fixed
    }
    buffers = {**kernels.buffers, **shortened}
    changed = replace(kernels, buffers=buffers)
    return replace(changed, calls=tuple(_with_equal_aliases(changed, call) for call in kernels.calls))


def _fixed(kernels: KernelGraph, element: DType) -> Set[int]:
    """Storages that stay as they are."""
    routines = [call for call in kernels.calls if isinstance(call.kernel, Routine)]
    ids = {*kernels.inputs, *kernels.outputs}.union(*((*call.inputs, *call.outputs) for call in routines))
    ids |= {id for id, array in kernels.constants.items() if not _may_shorten(array, element)}
    return {kernels.buffers[id].storage for id in ids if id in kernels.buffers}


def _may_shorten(array: np.ndarray, element: DType) -> bool:
    if array.dtype != np.float32 or array.ndim < 2 or array.size < LEAST_CONSTANT:
        return False
    ends = np.array([array.min(), array.max()])  # of what is rounded, which keeps its order
    with np.errstate(over="ignore"):
        return bool(np.isfinite(ends.astype(element.numpy)).all())


def _with_equal_aliases(kernels: KernelGraph, call: Call) -> Call:
    """In-place pairs of which both sides are as wide."""

    def dtype(id: int) -> DType:
        return kernels.buffers[id].dtype

    pairs = tuple((out, into) for out, into in call.in_place if dtype(call.outputs[out]) is dtype(call.inputs[into]))
    return replace(call, in_place=pairs)
