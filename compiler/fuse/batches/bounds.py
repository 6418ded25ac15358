"""Kernels of a batch whose size is only known while running, without the choices that keep what lies beyond it.

Samples beyond the size are not computed at all, and for the others each bound holds, if it is one on the sample that a
place belongs to: bounds are taken out first, and looked at once it is known which axis goes over samples.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.forms.bounds import Bound, bounds_in, within
from compiler.forms.size_bounds import Sizes
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel

Bounds = dict[int, tuple[tuple[Bound, int], ...]]
"""By the position of a block: bounds, each with how many places of it there are for each sample."""


def without_bounds(kernels: KernelGraph, count: int, size: int) -> tuple[KernelGraph, list[Bounds]]:
    """Kernels that do not ask whether a place lies below the size of the batch, and of each call what it asked."""
    sizes = Sizes(kernels)
    calls, asked = [], []
    for call in kernels.calls:
        found: Bounds = {}
        kernel = call.kernel
        if isinstance(kernel, Kernel):
            ids = {slot.name: id for slot, id in zip(kernel.inputs, call.inputs, strict=True)}
            blocks = list(kernel.blocks)
            for at, block in enumerate(blocks):
                each = ((one, _places(one, size)) for one in bounds_in(replace(kernel, blocks=(block,))))
                own = tuple(
                    (one, times) for one, times in each if times and sizes.is_times(ids[one.size.slot], count, times)
                )
                if own:
                    found[at] = own
                    blocks[at] = within(block, [one for one, _ in own])
            call = _without_unread(replace(call, kernel=replace(kernel, blocks=tuple(blocks)))) if found else call
        calls.append(call)
        asked.append(found)
    return replace(kernels, calls=tuple(calls)), asked


def _places(bound: Bound, size: int) -> int:
    """How many places a bound has for each sample, if it is on samples; 0 if it cannot be."""
    times, rest = divmod(bound.place.range[1] + 1, size)
    return 0 if rest else times


def _without_unread(call: Call) -> Call:
    """A call without scalars that its kernel no longer reads."""
    kernel = call.kernel
    assert isinstance(kernel, Kernel)
    read = frozenset[str]().union(*(block.reads for block in kernel.blocks))
    kept = [at for at, slot in enumerate(kernel.inputs) if slot.type.rank or slot.name in read]
    return replace(
        call,
        kernel=replace(kernel, inputs=tuple(kernel.inputs[at] for at in kept)),
        inputs=tuple(call.inputs[at] for at in kept),
        in_place=tuple((out, kept.index(into)) for out, into in call.in_place if into in kept),
    )


def is_of_sample(bound: Bound, times: int, axis: Axis | None, size: int) -> bool:
    """Whether the places of sample n are those from n * times to (n + 1) * times - 1."""
    if axis is None:
        return False
    step = axis.extent // size
    low, high = bound.place.substitute({axis: Index.of(Axis(axis.name, step))}).range
    return (bound.place.coefficient(axis) or 0) * step == times and low >= 0 and high < times
