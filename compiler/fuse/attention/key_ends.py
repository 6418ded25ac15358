"""Masks of attention that are comparisons with the places of keys, computed by the call that they are for.

A map makes a mask of all keys to say where a cache ends, or that no query sees keys behind its own place. Put into the
call of attention it says where keys end (`compiler.forms.key_bounds`), and kernels skip those beyond. Whether that pays
costs say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler.forms.attention import as_any_attention
from compiler.forms.key_bounds import key_bounds
from compiler.fuse.draft import Op, bind, only_block, store_axes
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType


def ended_attentions(kernels: KernelGraph) -> tuple[tuple[tuple[int, ...], Call], ...]:
    """Every call of attention that may make its mask itself, with the call that it becomes."""
    found: list[tuple[tuple[int, ...], Call]] = []
    for position, call in enumerate(kernels.calls):
        own = op_of(call)
        whole = with_own_mask(own, kernels) if as_any_attention(call.kernel) is not None else own
        if whole is not own:
            found.append(((position,), call_of(whole)))
    return tuple(found)


def ends_keys(call: Call) -> bool:
    """Whether attention leaves out keys by their places."""
    return _count_bounds(op_of(call)) > 0


def with_own_mask(op: Op, kernels: KernelGraph) -> Op:
    """Attention that computes, of what maps make for it, the conditions that say where keys end.

    The same where there is none such.
    """
    placed = _with_places(op, kernels.constants)
    found = placed if _count_bounds(placed) > _count_bounds(op) else op
    for value in op.inputs:
        at = kernels.writer.get(value)
        if at is None or kernels.buffers[value].dtype not in (DType.BOOL, DType.F32):
            continue
        taken = _with_map(found, value, op_of(kernels.calls[at]))
        if taken is None:
            continue
        taken = _with_places(taken, kernels.constants)
        if _count_bounds(taken) > _count_bounds(found):
            return with_own_mask(taken, kernels)
    return found


def _count_bounds(op: Op) -> int:
    view = as_any_attention(op.kernel)
    return 0 if view is None else len(key_bounds(view).bounds)


def _with_map(op: Op, value: int, producer: Op) -> Op | None:
    """An op with a map's expression in the place of its result; None where what makes it is no map."""
    block, kernel, made = only_block(producer), op.kernel, producer.kernel
    if block is None or not isinstance(kernel, Kernel) or not isinstance(made, Kernel):
        return None
    axes = store_axes(block.stores[0], made.outputs[0].type.dims)
    slot = next(slot.name for slot, bound in zip(kernel.inputs, op.inputs, strict=True) if bound == value)
    if axes is None:
        return None
    inner = {one.name: f"made_{one.name}" for one in made.inputs}
    taken = block.values[0].transform(renamed(inner))

    def put(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.slot != slot:
            return expr
        return taken.substitute({axis: at for axis, at in zip(axes, expr.index, strict=True) if axis is not None})

    blocks = tuple(replace(b, values=tuple(each.transform(put) for each in b.values)) for b in kernel.blocks)
    slots = tuple(replace(one, name=inner[one.name]) for one in made.inputs)
    whole = replace(kernel, inputs=(*kernel.inputs, *slots), blocks=blocks)
    inputs = dict(zip((one.name for one in whole.inputs), (*op.inputs, *producer.inputs), strict=True))
    outputs = dict(zip((one.name for one in kernel.outputs), op.outputs, strict=True))
    return bind(whole, inputs, outputs, op.sources)


def _with_places(op: Op, constants: Mapping[int, np.ndarray]) -> Op:
    """Constants that say no more than places do, written so.

    Integers that count up by one along their one long axis, and triangular masks of zeros or true.
    """
    kernel = op.kernel
    assert isinstance(kernel, Kernel)
    places = {
        slot.name: found
        for slot, value in zip(kernel.inputs, op.inputs, strict=True)
        if value in constants and (found := _count(constants[value]) or _triangle(constants[value])) is not None
    }
    if not places:
        return op

    def place(expr: Expr) -> Expr:
        return places[expr.slot].at(expr) if isinstance(expr, Load) and expr.slot in places else expr

    blocks = tuple(replace(b, values=tuple(each.transform(place) for each in b.values)) for b in kernel.blocks)
    inputs, outputs = (
        dict(zip((slot.name for slot in slots), values, strict=True))
        for slots, values in ((kernel.inputs, op.inputs), (kernel.outputs, op.outputs))
    )
    return bind(replace(kernel, blocks=blocks), inputs, outputs, op.sources)


@dataclass(frozen=True)
class _Count:
    """Integers that count up by one from `start`."""

    start: int

    def at(self, load: Load) -> Expr:
        """What a load of them is."""
        (index,) = [at for at in load.index if at != Index.of(0)] or [Index.of(0)]
        return Position(index + self.start, load.type)


def _count(array: np.ndarray) -> _Count | None:
    """A constant as such integers; None for any other."""
    flat = array.reshape(-1)
    if array.dtype not in (np.int32, np.int64) or array.size < 2 or max(array.shape) != array.size:
        return None
    return _Count(int(flat[0])) if bool((np.diff(flat) == 1).all()) else None


@dataclass(frozen=True)
class _Triangle:
    """A mask that is true, or 0, in each row up to the column `more` behind its own number, and `beyond` after it."""

    more: int
    beyond: Const | None

    def at(self, load: Load) -> Expr:
        """What a load of it is."""
        row, column = load.index[-2:]
        seen = Apply("le", (Position(column, DType.I64), Position(row + self.more, DType.I64)))
        return seen if self.beyond is None else Where(seen, Const(0.0, DType.F32), self.beyond)


def _triangle(array: np.ndarray) -> _Triangle | None:
    """A constant as such a mask of its last two axes, all others being 1 long; None for any other."""
    if array.ndim < 2 or array.size != array.shape[-1] * array.shape[-2] or array.shape[-1] < 2:
        return None
    mask = array.reshape(array.shape[-2:])
    seen = mask if mask.dtype == np.bool_ else mask == 0
    more = int(np.count_nonzero(seen[0])) - 1
    if seen.all() or not np.array_equal(seen, np.tri(*mask.shape, more, dtype=np.bool_)):
        return None
    if mask.dtype == np.bool_:
        return _Triangle(more, None)
    beyond = mask[~seen]
    if mask.dtype != np.float32 or not (beyond == beyond[0]).all():
        return None
    return _Triangle(more, Const(float(beyond[0]), DType.F32))


def renamed(names: Mapping[str, str]) -> Callable[[Expr], Expr]:
    """Loads of slots under other names."""
    return lambda expr: replace(expr, slot=names[expr.slot]) if isinstance(expr, Load) else expr


def op_of(call: Call) -> Op:
    """A call, with what it reads and writes by name."""
    return Op(call.kernel, call.inputs, call.outputs, call.sources)


def call_of(op: Op) -> Call:
    """The call that an op is."""
    return Call(op.kernel, op.inputs, op.outputs, (), op.sources)
