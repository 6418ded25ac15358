"""Maps moved before a Concat, f(concat(x, y)) = concat(f(x), f(y)), into the kernels that make its operands.

Cells of NASNet end in a Concat, and all that reads it begins with a Relu. The Concat is no kernel, since its operands
are written straight into its memory; nor is the Relu, if each of them is written through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.forms.normal_form import substitute
from compiler.fuse.draft import Draft, Op, is_copy, only_block, store_axes
from compiler.fuse.epilogue import join
from compiler.fuse.inline import inline
from compiler.fuse.layouts.alias import concat_parts
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType


def carry_past_concats(draft: Draft) -> bool:
    """Valid after: no map that alone reads a Concat's result could run on each operand where that is made.

    Returns whether maps were joined that the kernels before them may now run.
    """
    shortened = False
    known: dict[tuple[int, str], int] = {}
    for concat in list(draft.ops):
        if concat_parts(concat) is None:
            continue
        for op in draft.ops.readers(concat.outputs[0]):
            if not _is_pointwise(op, draft) or not _pays(draft, concat, op):
                continue
            before = draft.ops.copy(), dict(draft.types), dict(draft.like)
            if _carried(draft, concat, op, known):
                known[concat.outputs[0], _text(op)] = op.outputs[0]
                shortened = shortened or _shortens(op, draft)
            else:
                draft.ops, draft.types, draft.like = before
    return shortened


def _text(op: Op) -> str:
    """What a map computes."""
    block = only_block(op)
    assert block is not None
    return str(block.values[0])


def _is_pointwise(op: Op, draft: Draft) -> bool:
    """Whether a map computes each result from nothing but the element of its one operand at the same place."""
    block = only_block(op)
    if block is None or is_copy(op) or len(op.inputs) != 1:
        return False
    read, made = draft.types[op.inputs[0]], draft.types[op.outputs[0]]
    axes = store_axes(block.stores[0], made.dims)
    if axes is None or read.dims != made.dims or not (read == made or _shortens(op, draft)):
        return False
    parts = list(block.values[0].walk())
    here = tuple(Index.of(0 if axis is None else axis) for axis in axes)
    return all(part.index == here if isinstance(part, Load) else not part.indices for part in parts)


def _shortens(op: Op, draft: Draft) -> bool:
    """Whether a map's results are bytes of longer elements: each operand of a Concat then is stored in fewer."""
    return draft.types[op.outputs[0]].dtype in (DType.U8, DType.I8) and draft.types[op.inputs[0]].dtype.bytes > 1


def _pays(draft: Draft, concat: Op, op: Op) -> bool:
    """Whether nothing more is stored than before: the map's result would be, or its operands then are not."""
    readers = draft.ops.readers(op.outputs[0])
    stored = len(readers) != 1 or op.outputs[0] in draft.kept
    return stored or all(draft.ops.readers(value) == [concat] and value not in draft.kept for value in concat.inputs)


def _carried(draft: Draft, concat: Op, op: Op, known: Mapping[tuple[int, str], int]) -> bool:
    """Runs a map on each operand of a Concat instead of on its result.

    False, and the draft is no longer valid, if one of them cannot run it.

    `known`: results of maps of a Concat, by that Concat's result, that are joined already.
    """
    results = {value: known.get((value, _text(op))) for value in concat.inputs}
    alone = draft.ops.readers(concat.outputs[0]) == [op] and concat.outputs[0] not in draft.kept
    dtype = draft.types[op.outputs[0]].dtype
    made = {
        value: result or draft.fresh(replace(draft.types[value], dtype=dtype), like=value)
        for value, result in results.items()
    }
    joined = replace(concat, inputs=tuple(made.values()), outputs=op.outputs)
    draft.ops.replace([concat, op] if alone else [op], joined, op)
    for value in (value for value, result in results.items() if result is None):
        maker = draft.ops.maker(value)
        if maker is None or is_copy(maker):
            return False
        part = _on(op, value, made[value], draft)
        as_one = inline if _shortens(op, draft) and only_block(maker) is not None else join
        whole = as_one(maker, part, draft)
        if isinstance(whole, str):
            return False
        draft.ops.replace([maker], whole, maker)
    return True


def _on(op: Op, value: int, result: int, draft: Draft) -> Op:
    """The same map of a value with other extents."""
    kernel, block = op.kernel, only_block(op)
    read, made = draft.types[value], draft.types[result]
    assert isinstance(kernel, Kernel)
    assert block is not None
    axes = store_axes(block.stores[0], draft.types[op.outputs[0]].dims)
    assert axes is not None
    fitted = {axis: Axis(axis.name, extent) for axis, extent in zip(axes, read.dims, strict=True) if axis is not None}
    fitting = replace(
        kernel,
        inputs=(replace(kernel.inputs[0], type=read),),
        outputs=(replace(kernel.outputs[0], type=made),),
        shared=tuple(fitted.get(axis, axis) for axis in kernel.shared),
        blocks=(substitute(block, {axis: Index.of(other) for axis, other in fitted.items()}),),
    )
    return Op(fitting, (value,), (result,), op.sources)
