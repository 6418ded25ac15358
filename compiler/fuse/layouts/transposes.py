"""Transposes between a kernel that computes and a map, fused into the map.

The map must then write memory in the order in which it reads it.

ConvNeXt's blocks end so: a product over NHWC, transposed to NCHW, added to a residual that lies channels-last. Without
the transpose in between, the addition runs on each result of the product while it is in a register.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.fuse.draft import Draft, Op, is_copy, only_block
from compiler.fuse.epilogue import join
from compiler.fuse.inline import inline
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import Layout


def fuse_transposes(draft: Draft, layouts: Mapping[int, Layout]) -> None:
    """Valid after: no transpose stands between a kernel and its only reader, a map that could be joined to it.

    Such a map writes along the same axis as the kernel.
    """
    for op in list(draft.ops):
        readers = draft.ops.readers(op.outputs[0])
        if op.outputs[0] in draft.kept or len(readers) != 1 or not _is_transpose(op, draft):
            continue
        (reader,), maker = readers, draft.ops.maker(op.inputs[0])
        if maker is None or is_copy(maker) or is_copy(reader) or only_block(reader) is None:
            continue
        whole = inline(op, reader, draft)
        if isinstance(whole, str) or isinstance(join(maker, whole, draft), str):
            continue
        if _written_as_read(whole, op.inputs[0], draft, layouts):
            draft.ops.replace([op, reader], whole, reader)


def _is_transpose(op: Op, draft: Draft) -> bool:
    """Whether a copy only permutes axes."""
    load, block = is_copy(op), only_block(op)
    if load is None or block is None or draft.types[op.inputs[0]].elements != draft.types[op.outputs[0]].elements:
        return False
    read, written = (
        [_axis(index) for index in access.index if index != Index.of(0)] for access in (load, block.stores[0])
    )
    return None not in read and len(set(read)) == len(read) and sorted(map(str, read)) == sorted(map(str, written))


def _axis(index: Index) -> Axis | None:
    """The axis that an index is."""
    axis = index.terms[0][0] if len(index.terms) == 1 else None
    return axis if isinstance(axis, Axis) and index == Index.of(axis) else None


def _written_as_read(op: Op, value: int, draft: Draft, layouts: Mapping[int, Layout]) -> bool:
    """Whether the axis along which a map reads a value in memory is that along which it writes."""
    block = only_block(op)
    assert block is not None
    slot = next(slot.name for slot, bound in zip(op.kernel.inputs, op.inputs, strict=True) if bound == value)
    read = {_innermost(load.index, value, draft, layouts) for load in block.values[0].loads if load.slot == slot}
    return read == {_innermost(block.stores[0].index, op.outputs[0], draft, layouts)} != {None}


def _innermost(index: tuple[Index, ...], value: int, draft: Draft, layouts: Mapping[int, Layout]) -> Axis | None:
    """The axis at the position of an index that is innermost in memory; None for a scalar."""
    layout = layouts.get(value, Layout.plain(draft.types[value].rank))
    return _axis(index[layout.dims[-1][0]]) if index else None
