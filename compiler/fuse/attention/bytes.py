"""Attention of bytes: a product of bytes, the softmax that rounds its rows, and the product of those, made one call.

`compiler.forms.byte_attention` is the form. What is between the three is a third or more of what they take: scores go
through memory twice, and their bytes once. It pays where the keys and values of a head stay in a cache, which costs
say.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.forms.attention import softmax_of
from compiler.forms.byte_attention import as_byte_attention
from compiler.fuse.attention.floats import Trio, fitted, joined, product_of
from compiler.fuse.between import needed_elsewhere
from compiler.fuse.draft import Op, bind
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType


def byte_attentions(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every three calls that may be joined so, with the call that they become."""
    found = []
    for position, call in enumerate(kernels.calls):
        readers = kernels.readers[call.outputs[0]] if call.outputs else ()
        first = kernels.writer.get(call.inputs[0]) if call.inputs else None
        if first is not None and len(readers) == 1 and _softmax(call) is not None:
            whole = join_byte_attention(kernels, first, position, readers[0])
            if isinstance(whole, Call):
                found.append(((first, position, readers[0]), whole))
    return tuple(found)


def join_byte_attention(kernels: KernelGraph, first: int, softmax: int, second: int) -> Call | str:
    """One call that does all three, to stand where the second product stood, or the reason why not."""
    scores, over, mixed = (kernels.calls[at] for at in (first, softmax, second))
    plain = _softmax(over)
    if plain is None:
        return "it is no softmax that rounds its rows"
    for call, reader in ((scores, softmax), (over, second)):
        if reason := needed_elsewhere(kernels, call, reader):
            return reason
    trio = Trio(_op(scores), plain[0], plain[1], _op(mixed), DType.I32)
    if product_of(trio.scores, DType.I32) is None or product_of(trio.mixed, DType.I32) is None:
        return "what comes before or after it is no product of bytes"
    types = {id: kernels.buffers[id].type for call in (scores, over, mixed) for id in (*call.inputs, *call.outputs)}
    placed = fitted(trio, types)
    if isinstance(placed, str):
        return placed
    whole = joined(placed, types)
    if as_byte_attention(whole.kernel) is None:
        return "together they are not in the form of attention of bytes, or have too few rows"
    return Call(whole.kernel, whole.inputs, whole.outputs, (), whole.sources)


def _op(call: Call) -> Op:
    return Op(call.kernel, call.inputs, call.outputs, call.sources)


def _softmax(call: Call) -> tuple[Op, Axis] | None:
    """A softmax and the map behind it, with its axis; None for any other call.

    What is computed of its argument before, as a score that was rounded, becomes a map of its own.
    """
    kernel = call.kernel
    if not isinstance(kernel, Kernel) or kernel.sequential or len(kernel.blocks) != 5 or len(call.outputs) != 1:
        return None
    largest, powers, *rest = kernel.blocks
    if largest.monoid != "max" or len(largest.reduction) != 1 or len(powers.values) != 1 or rest[-1].monoid:
        return None
    argument, (own,) = largest.values[0], largest.reduction
    if not isinstance(argument, Load):
        kernel = _with_argument(kernel, argument, own)
    if softmax_of(kernel.blocks[-5:-1]) is None:
        return None
    inputs = {slot.name: id for slot, id in zip(kernel.inputs, call.inputs, strict=True)}
    outputs = {slot.name: id for slot, id in zip(kernel.outputs, call.outputs, strict=True)}
    return bind(kernel, inputs, outputs, call.sources), own


def _with_argument(kernel: Kernel, argument: Expr, own: Axis) -> Kernel:
    """The same with the argument of the softmax stored in a temporary."""
    index = kernel.blocks[1].stores[0].index
    dims = kernel.slots[kernel.blocks[1].stores[0].slot].type.dims
    held = Load("argument", index, DType.F32)

    def instead(block: Block) -> Block:
        values = tuple(value.transform(lambda part: held if part == argument else part) for value in block.values)
        return replace(block, values=values)

    made = Block((own,), (argument,), (Store("argument", index),))
    temps = (*kernel.temps, Slot("argument", TensorType(DType.F32, dims)))
    return replace(kernel, blocks=(made, *map(instead, kernel.blocks)), temps=temps)
