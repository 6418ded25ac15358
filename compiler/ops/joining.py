"""Concat and Split: one block for each part, with loops of its own.

So each part can become a view of the whole.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Load
from compiler.ir.graph import Node
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import TensorType, extent, static
from compiler.ops.attributes import ints
from compiler.ops.build import at, axes_for
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given, input_slots, output_slots
from compiler.ops.traits import Trait


def _infer_concat(node: Node, types: Types) -> tuple[TensorType, ...]:
    first = given(types, 0)
    axis = axis_of(node, first.rank)
    there = [type for type in types if type is not None]
    outer = {(*type.shape[:axis], *type.shape[axis + 1 :]) for type in there}
    if len(outer) > 1 or any(type.rank != first.rank for type in there):
        shapes = ", ".join(str(list(type.shape)) for type in there)
        raise Unsupported(f"shapes {shapes:.300} do not join along axis {axis}", "bind shapes that agree")
    total = sum(static(tuple(type.shape[axis] for type in there)))
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _reference_concat(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    there = arrays_at(arrays, *range(len(arrays)))
    return (np.concatenate(there, axis_of(node, there[0].ndim)),)


def _define_concat(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """One block per operand that has elements, which stores into its slice of the result."""
    slots = input_slots(types)
    axis, begin = axis_of(node, outs[0].rank), 0
    blocks: list[Block] = []
    for part, slot in enumerate(slots):
        axes = axes_for(slot.type.dims, f"p{part}_")
        place = at(axes)
        store = Store("y0", (*place[:axis], place[axis] + begin, *place[axis + 1 :]))
        begin += slot.type.dims[axis]
        if slot.type.elements or (slot is slots[-1] and not blocks):
            blocks.append(Block(axes, (Load(slot.name, place, slot.type.dtype),), (store,)))
    return Kernel("Concat", slots, output_slots(outs), tuple(blocks))


def _split_sizes(node: Node, extent: int, asked: int) -> tuple[int, ...]:
    """Extents of all parts, of which the first `asked` are outputs: the last ones may not be asked for."""
    sizes = ints(node, "split")
    if sizes is None:
        count = node.attrs.get("num_outputs", asked)
        if not isinstance(count, int) or count < 1:
            raise Unsupported(f"num_outputs is {count!r}", "export with the number of parts")
        part = -(-extent // count)
        sizes = (*([part] * (count - 1)), extent - part * (count - 1))
    if sum(sizes) != extent or len(sizes) < asked or any(size < 0 for size in sizes):
        raise Unsupported(f"an extent of {extent} does not split into {list(sizes)}", "export with sizes that add up")
    return sizes


def _infer_split(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis = axis_of(node, x.rank)
    sizes = _split_sizes(node, extent(x.shape[axis]), len(node.outputs))[: len(node.outputs)]
    return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)


def _reference_split(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    axis = axis_of(node, x.ndim)
    sizes = _split_sizes(node, x.shape[axis], len(node.outputs))
    return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis)[: len(node.outputs)])


def _define_split(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """One block per output, which loads its slice of the input."""
    x = given(types, 0)
    axis, begin, blocks = axis_of(node, x.rank), 0, []
    for part, slot in enumerate(output_slots(outs)):
        axes = axes_for(slot.type.dims, f"p{part}_")
        place = at(axes)
        load = Load("x0", (*place[:axis], place[axis] + begin, *place[axis + 1 :]), x.dtype)
        begin += slot.type.dims[axis]
        blocks.append(Block(axes, (load,), (Store(slot.name, place),)))
    return Kernel("Split", (Slot("x0", x),), output_slots(outs), tuple(blocks))


OPERATORS: tuple[Operator, ...] = (
    Operator("Concat", _infer_concat, _reference_concat, _define_concat, traits=Trait.MOVES | Trait.VIEW),
    Operator("Split", _infer_split, _reference_split, _define_split, ((1, "split"),), traits=Trait.MOVES | Trait.VIEW),
)
