"""Copies that become views of another buffer, and outputs that only give a value another shape.

Such copies are strided windows of another buffer, and operands of a Concat, which are written straight into its output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.fuse.draft import Draft, Op, bind, is_copy, is_guarded_copy, only_block, store_axes
from compiler.fuse.inline import inline
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Block, Kernel
from compiler.ir.tensor import Layout


@dataclass
class Buffers:
    """The buffer of each value, as aliasing decides it."""

    of: dict[int, Buffer]

    def root(self, value: int) -> bool:
        """Whether a value still fills a storage of its own that nothing else uses."""
        own = self.of[value]
        return own.storage == value and not any(b.storage == value for v, b in self.of.items() if v != value)


def place_concats(draft: Draft, buffers: Buffers) -> None:
    """Gives the operands of each Concat a slice of its output's storage, and drops the copies that this makes needless.

    Concats are taken from last to first: in a chain (DenseNet) the longest one owns the memory, and an earlier one
    whose operands already lie side by side there is a view of it.
    """
    for op in reversed(list(draft.ops)):
        parts = concat_parts(op)
        if parts is None:
            continue
        target = op.outputs[0]
        if _already_adjacent(draft, buffers, target, parts):
            draft.views[target] = tuple(source for _, source, _ in parts)
            draft.ops.remove(op)
            continue
        left = [block for block, source, origin in parts if not _move_in(draft, buffers, source, target, origin)]
        _keep_blocks(draft, op, left)


def concat_parts(op: Op) -> list[tuple[Block, int, tuple[int, ...]]] | None:
    """(block, value copied, origin in the output) for each operand of a Concat; None for any other kernel."""
    kernel = op.kernel
    if not isinstance(kernel, Kernel) or len(kernel.outputs) != 1 or kernel.temps or kernel.sequential:
        return None
    parts = []
    for block in kernel.blocks:
        value, store = block.values[0], block.stores[0]
        if block.monoid or not isinstance(value, Load):
            return None
        origin = tuple(index.const for index in store.index)
        dims = kernel.slots[value.slot].type.dims
        moved = replace(store, index=tuple(index - at for index, at in zip(store.index, origin, strict=True)))
        axes = store_axes(moved, dims) if len(dims) == len(origin) else None
        if axes is None or any(
            index != Index.of(axis if axis is not None else 0) for index, axis in zip(value.index, axes, strict=True)
        ):
            return None
        source = next(bound for slot, bound in zip(kernel.inputs, op.inputs, strict=True) if slot.name == value.slot)
        parts.append((block, source, origin))
    return parts if len(parts) > 1 else None


def _already_adjacent(
    draft: Draft, buffers: Buffers, target: int, parts: list[tuple[Block, int, tuple[int, ...]]]
) -> bool:
    """Makes the output a view where its operands already lie in one storage as the Concat wants them."""
    if not buffers.root(target) or target in draft.plain:
        return False
    first = buffers.of[parts[0][1]]
    if first.storage == first.id:
        return False
    view = replace(buffers.of[target], storage=first.storage, strides=first.strides, offset=first.offset)
    for _, source, origin in parts:
        here = buffers.of[source]
        at = view.address(tuple(Index.of(position) for position in origin))
        same = (here.storage, here.strides, here.layout.dims) == (view.storage, view.strides, view.layout.dims)
        if not same or at != Index.of(here.offset):
            return False
    buffers.of[target] = view
    return True


def _move_in(draft: Draft, buffers: Buffers, source: int, target: int, origin: tuple[int, ...]) -> bool:
    """Lets a value be written into a slice of `target`; False when something else decides where it lies."""
    fixed = {*draft.graph.inputs, *draft.graph.outputs, *draft.graph.constants, *draft.plain}
    inner, outer = buffers.of[source], buffers.of[target]
    if source in fixed or inner.layout.dims != outer.layout.dims or not buffers.root(source):
        return False
    if any(outer.layout.block_of(axis) and at % outer.layout.block_of(axis) for axis, at in enumerate(origin)):
        return False
    offset = outer.address(tuple(Index.of(position) for position in origin)).const
    buffers.of[source] = replace(inner, storage=outer.storage, strides=outer.strides, offset=offset)
    draft.views[target] = (*draft.views.get(target, ()), source)
    return True


def _keep_blocks(draft: Draft, op: Op, blocks: list[Block]) -> None:
    """Leaves of a Concat only the copies that are still needed."""
    assert isinstance(op.kernel, Kernel)
    if len(blocks) == len(op.kernel.blocks):
        return
    if not blocks:
        draft.ops.remove(op)
        return
    inputs = {slot.name: bound for slot, bound in zip(op.kernel.inputs, op.inputs, strict=True)}
    outputs = {slot.name: bound for slot, bound in zip(op.kernel.outputs, op.outputs, strict=True)}
    new = bind(replace(op.kernel, blocks=tuple(blocks)), inputs, outputs, op.sources)
    draft.ops.replace([op], new, op)


def place_outputs(draft: Draft, buffers: Buffers) -> None:
    """Lets a value be written straight into the memory of an output that only gives it another shape.

    A recurrent network's last state is such a value, of which an exporter takes away an axis (g2p_encoder).
    """
    for op in list(draft.ops):
        root = _same_memory(op, draft, buffers)
        if root is None:
            continue
        value = op.outputs[0]
        for other, here in buffers.of.items():
            if here.storage == root:
                buffers.of[other] = replace(here, storage=value)
        draft.views[value] = (*draft.views.get(value, ()), *op.inputs)
        draft.ops.remove(op)


def _same_memory(op: Op, draft: Draft, buffers: Buffers) -> int | None:
    """The storage with the same elements, in the same order and no others, as a copy to an output of the network.

    None if there is none.
    """
    load, value = is_copy(op), op.outputs[0]
    if load is None or value not in draft.graph.outputs or value in draft.plain or not buffers.root(value):
        return None
    block = only_block(op)
    assert block is not None
    source, target = buffers.of[op.inputs[0]], buffers.of[value]
    root = buffers.of.get(source.storage)
    fixed = {*draft.graph.inputs, *draft.graph.outputs, *draft.graph.constants, *draft.plain}
    if root is None or any(other in fixed for other, here in buffers.of.items() if here.storage == root.id):
        return None
    if root.type.dtype is not target.type.dtype or root.span != target.span:
        return None
    axes = store_axes(block.stores[0], draft.types[value].dims)
    same = axes is not None and source.address(load.index) == target.address(block.stores[0].index)
    return root.id if same else None


def place_views(draft: Draft, buffers: Buffers) -> None:
    """Turns copies whose source positions are an affine map of their output positions into strided buffers.

    One that cannot be is fused into its readers if these only copy as well (a Pad that a Slice reads, a shuffle of
    channels that a Split does). Then it is not stored, and they may be fused into kernels that compute.
    """
    for op in list(draft.ops):
        if op not in draft.ops:
            continue
        value = op.outputs[0]
        view = _view(op, draft, buffers)
        if view is None:
            _take_in(op, draft)
            continue
        source, buffers.of[value] = view
        draft.views[value] = (source,)
        draft.ops.remove(op)


def _view(op: Op, draft: Draft, buffers: Buffers) -> tuple[int, Buffer] | None:
    """The value that a copy reads, and the strides that read its result in that memory; None if there are none."""
    load, value = is_copy(op), op.outputs[0]
    if load is None or value in draft.kept | draft.plain or not buffers.root(value):
        return None
    block = only_block(op)
    assert block is not None
    axes = store_axes(block.stores[0], draft.types[value].dims)
    if axes is None:
        return None
    read = next(bound for slot, bound in zip(op.kernel.inputs, op.inputs, strict=True) if slot.name == load.slot)
    source = buffers.of[read]
    address = source.address(load.index)
    if any(not isinstance(atom, Axis) for atom, _ in address.terms):
        return None
    strides = [0 if axis is None else address.coefficient(axis) for axis in axes]
    if any((stride or 0) < 0 for stride in strides):  # a buffer begins at its first element: nothing lies before it
        return None
    layout = Layout.plain(len(axes))
    known = tuple(stride or 0 for stride in strides)
    name = buffers.of[value].name
    return read, Buffer(value, draft.types[value], layout, source.storage, known, address.const, name)


def _take_in(op: Op, draft: Draft) -> None:
    """Puts a copy that cannot be a view into its readers.

    All of them must be copies, and together store no more than it does.
    """
    value = op.outputs[0]
    readers = draft.ops.readers(value)
    if not _moves(op) or not readers or value in draft.kept or not all(map(_moves, readers)):
        return
    if sum(draft.types[reader.outputs[0]].elements for reader in readers) > draft.types[value].elements:
        return
    composed = [inline(op, reader, draft) for reader in readers]
    if any(isinstance(one, str) for one in composed):
        return
    for reader, one in zip(readers, composed, strict=True):
        assert isinstance(one, Op)
        draft.ops.replace([reader], one, reader)
    draft.drop_dead()


def _moves(op: Op) -> bool:
    """Whether a kernel only moves elements, from where positions alone say, with constants in between perhaps."""
    block = only_block(op)
    if block is None or not is_guarded_copy(block.values[0]):
        return False
    return not any(
        isinstance(atom, Indirect) for load in block.values[0].loads for i in load.index for atom, _ in i.terms
    )
