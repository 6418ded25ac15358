"""Conversions of what is stored in fewer bytes, done where it is read: caches in bf16, or in int8 with scales.

A run gives such a cache as it is stored, so that a conversion of it would store all of it once more, in more bytes. Its
readers convert what they load instead, through the views and transposes that lie between.
"""

from __future__ import annotations

from compiler.fuse.draft import Draft, Op, is_copy, only_block, work
from compiler.fuse.inline import CHEAP_WORK, inline
from compiler.ir.kernel import Kernel


def widen_in_readers(draft: Draft) -> None:
    """Valid after: no map widens an output of the graph for copies and products alone, which could do it themselves."""
    for op in list(draft.ops):
        if _widens_output(op, draft):
            _into_readers(op, draft)


def _widens_output(op: Op, draft: Draft) -> bool:
    """Whether a cheap map reads an output of the graph, point by point, and makes it take more bytes."""
    block = only_block(op)
    if block is None or is_copy(op) or op.outputs[0] in draft.kept or work(block.values[0]) > CHEAP_WORK:
        return False
    made, narrow = draft.types[op.outputs[0]], {value for value in op.inputs if value in draft.graph.outputs}
    return any(
        draft.types[value].dims == made.dims and draft.types[value].dtype.bytes < made.dtype.bytes for value in narrow
    )


def _into_readers(op: Op, draft: Draft) -> None:
    """All readers take the map in, or none does; a copy that has taken it in is a map for its own readers."""
    readers = draft.ops.readers(op.outputs[0])
    wholes = [inline(op, reader, draft) if is_copy(reader) or _sums(reader) else "" for reader in readers]
    if not readers or any(isinstance(whole, str) for whole in wholes):
        return
    for reader, whole in zip(readers, wholes, strict=True):
        assert isinstance(whole, Op)
        draft.ops.replace([reader], whole, reader)
        if is_copy(reader):
            _into_readers(whole, draft)
    draft.drop_dead()


def _sums(op: Op) -> bool:
    return isinstance(op.kernel, Kernel) and any(block.monoid == "sum" for block in op.kernel.blocks)
