"""Attention of few queries cut into parts of its keys, so that lanes share what belongs to one head.

Each part gives its products with the values as they are, the largest score and the sum of the weights; a call that
follows scales the parts to the largest score of all and adds them up (flash decoding: Dao, Haziza, Massa and Sizov,
2023). A part has every so manieth key, so that all have as much to do however far a cache is filled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.forms.attention import RUN, Attention, as_few_queries, own_scores, partial_softmax, stored
from compiler.fuse.attention.key_ends import call_of
from compiler.fuse.draft import bind
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import Apply, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

KIND = "key_parts"
"""Its name among what a backend has algorithms for."""


@dataclass(frozen=True)
class KeyParts:
    """Two calls instead of one of attention, and the buffers between them."""

    parts: Call
    whole: Call
    buffers: tuple[Buffer, ...]


def in_key_parts(kernels: KernelGraph, call: Call, count: int) -> KeyParts | None:
    """A call with its keys in so many parts.

    None where it is no attention of few queries, and where some part would have no key.
    """
    view = as_few_queries(call.kernel)
    if view is None or view.part is not None or view.keys.extent <= (count - 1) * RUN:
        return None
    part, numbers = Axis("part", count), TensorType(DType.F32, (count, *(axis.extent for axis in view.kernel.shared)))
    slots = (
        Slot("largest", numbers),
        Slot("total", numbers),
        Slot("mixed", TensorType(DType.F32, (*numbers.dims, view.columns.extent))),
    )
    fresh = max(kernels.buffers) + 1
    buffers = tuple(Buffer.whole(fresh + at, slot.type) for at, slot in enumerate(slots))
    between = {slot.name: buffer.id for slot, buffer in zip(slots, buffers, strict=True)}
    inputs, outputs = (
        dict(zip((slot.name for slot in own), values, strict=True))
        for own, values in ((call.kernel.inputs, call.inputs), (call.kernel.outputs, call.outputs))
    )
    parts = bind(_of_part(view, part, slots), inputs, between, call.sources)
    whole = bind(_of_all(view, part, slots), {**inputs, **between}, outputs, call.sources)
    return KeyParts(call_of(parts), call_of(whole), buffers)


def _of_part(view: Attention, part: Axis, slots: tuple[Slot, ...]) -> Kernel:
    """The kernel that gives `slots`: the largest score, the sum of the weights and the product with the values."""
    kernel, keys, (largest, total, mixed) = view.kernel, view.keys, slots
    at_key, at_point = (Index.of(keys),), (Index.of(part), *map(Index.of, kernel.shared))
    maps = (view.scores, *view.maps)
    own = Block((keys,), (own_scores(stored(maps[-1]), keys, part),), (Store("own", at_key),))
    softmax = partial_softmax(
        stored(own),
        keys,
        (Store(largest.name, at_point), Store("shift", ()), Store("powers", at_key), Store(total.name, at_point)),
    )
    product = replace(
        view.mixed,
        values=(Apply("mul", (stored(softmax[2]), view.v)),),
        stores=(Store(mixed.name, (*at_point, Index.of(view.columns))),),
    )
    scores = {store.slot for block in maps for store in block.stores}
    temps = [slot for slot in kernel.temps if slot.name in scores]
    temps += _temps(own=(keys.extent,), shift=(), powers=(keys.extent,))
    blocks, shared = (*maps, own, *softmax, product), (part, *kernel.shared)
    return Kernel(kernel.family, kernel.inputs, slots, blocks, tuple(temps), shared)


def _temps(**dims: tuple[int, ...]) -> tuple[Slot, ...]:
    """Temporaries of floats by name."""
    return tuple(Slot(name, TensorType(DType.F32, own)) for name, own in dims.items())


def _of_all(view: Attention, part: Axis, slots: tuple[Slot, ...]) -> Kernel:
    """The kernel that makes attention over all keys of what the parts gave, and what follows it."""
    kernel, columns = view.kernel, view.columns
    at_part, at_point = (Index.of(part),), (Index.of(part), *map(Index.of, kernel.shared))
    largest, total = (Load(slot.name, at_point, DType.F32) for slot in slots[:2])
    mixed = Load(slots[2].name, (*at_point, Index.of(columns)), DType.F32)
    most, weight, whole = Load("most", (), DType.F32), Load("weight", at_part, DType.F32), Load("whole", (), DType.F32)
    summed = Load("summed", (Index.of(columns),), DType.F32)
    blocks = (
        Block((), (largest,), (Store("most", ()),), (part,), "max", DType.F32),
        Block((part,), (Apply("exp", (Apply("sub", (largest, most)),)),), (Store("weight", at_part),)),
        Block((), (Apply("mul", (weight, total)),), (Store("whole", ()),), (part,), "sum", DType.F32),
        Block(
            (columns,), (Apply("mul", (weight, mixed)),), (Store("summed", summed.index),), (part,), "sum", DType.F32
        ),
        Block((columns,), (Apply("mul", (summed, Apply("reciprocal", (whole,)))),), view.mixed.stores),
    )
    kept = {store.slot for block in (view.mixed, *view.epilogue) for store in block.stores}
    temps = [*_temps(most=(), weight=(part.extent,), whole=(), summed=(columns.extent,))]
    temps += [slot for slot in kernel.temps if slot.name in kept]
    inputs = (*kernel.inputs, *slots)
    return Kernel(kernel.family, inputs, kernel.outputs, (*blocks, *view.epilogue), tuple(temps), kernel.shared)
