"""Kernels seen as attention of bytes: what both products multiply are bytes, the softmax is in fp32.

    s[j] = maps of  sum k . (q[k] - zq) (k[k, j] - zk)     at each row, for each key j, the sum in int32
    w[j] = round(softmax(s)[j] / scale) + zw               saturated to bytes
    y[e] = maps of  sum j . (w[j] - zw) (v[j, e] - zv)     for each column e, the sum in int32

Quantised transformers are of this form. Scores may be rounded to bytes and back among the maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.forms.attention import MIN_QUERIES, Heads, batch_and_rows, is_product, softmax_of, stored
from compiler.forms.integer import BYTES, VECTORS, Operand, operand_of
from compiler.forms.normal_form import contract_temps, without_unit_axes
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Routine
from compiler.ir.tensor import DType


@dataclass(frozen=True)
class ByteAttention(Heads):
    """A kernel in this form; zero points are numbers.

    scores    the block of the first product; `maps` what follows on each score
    mixed     the block of the second product; `epilogue` what follows on each y
    weight    a weight as the softmax gives it
    rounded   the byte that is made of `weight` once that is divided by `scale`
    q, k      the factors of a score; `w`, `v` those of a result
    """

    kernel: Kernel
    scores: Block
    maps: tuple[Block, ...]
    mixed: Block
    epilogue: tuple[Block, ...]
    weight: Load
    rounded: Expr
    scale: float
    q: Operand
    k: Operand
    w: Operand
    v: Operand


def as_byte_attention(kernel: Kernel | Routine) -> ByteAttention | None:
    """A kernel in this form, or None when it is not in it or has too few rows to repay packing its keys."""
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return None
    kernel = without_unit_axes(contract_temps(kernel))
    place = next((at for at, block in enumerate(kernel.blocks) if block.monoid == "max"), 0)
    if not place or len(kernel.blocks) < place + 6 or any(slot.type.rank > 1 for slot in kernel.temps):
        return None
    scores, *maps = kernel.blocks[:place]
    over = softmax_of(kernel.blocks[place : place + 4])
    rounding, mixed, *epilogue = kernel.blocks[place + 4 :]
    if over is None or over[0] != stored((scores, *maps)[-1]) or len(mixed.axes) != 1:
        return None
    keys, columns, weight = over[1], mixed.axes[0], stored(kernel.blocks[place + 3])
    if not is_product(scores, 1, DType.I32) or not is_product(mixed, 1, DType.I32) or mixed.reduction != (keys,):
        return None
    if rounding.monoid or rounding.axes != (keys,) or len(rounding.values) != 1:
        return None
    byte = Load(rounding.stores[0].slot, rounding.stores[0].index, rounding.values[0].dtype)
    if not _is_chain(kernel, (scores, *maps), keys) or not _is_chain(kernel, (mixed, *epilogue), columns, byte):
        return None
    found = _divided(rounding.values[0], weight)
    q, k = _operands(scores, keys)
    w, v = _operands(mixed, columns)
    if found is None or q is None or k is None or w is None or v is None or keys not in v.value.axes:
        return None
    if w.value != byte:
        return None
    batch, rows = batch_and_rows(kernel, k.value, v.value)
    view = ByteAttention(
        batch, rows, keys, scores.reduction, columns, kernel, scores, tuple(maps), mixed, tuple(epilogue), weight,
        *found, q, k, w, v,
    )  # fmt: skip
    return view if rows and view.queries >= MIN_QUERIES else None


def _is_chain(kernel: Kernel, blocks: Sequence[Block], axis: Axis, *given: Load) -> bool:
    """Whether a product and its maps run over an axis, each reading of temporaries what those before have put there.

    What is `given` lies there already.
    """
    temps = {slot.name for slot in kernel.temps}
    made = {*given}
    for at, block in enumerate(blocks):
        kinds = [block.accumulator or value.dtype for value in block.values]
        if block.axes != (axis,) or (at and block.monoid) or any(kind not in VECTORS for kind in kinds):
            return False
        loads = [load for value in block.values for load in value.loads]
        if any(load.slot in temps and load not in made for load in loads):
            return False
        if any(
            kernel.slots[store.slot].type.dtype is not kind for store, kind in zip(block.stores, kinds, strict=True)
        ):
            return False
        made |= {Load(store.slot, store.index, kind) for store, kind in zip(block.stores, kinds, strict=True)}
    return True


def _operands(product: Block, inner: Axis) -> tuple[Operand | None, Operand | None]:
    """The factors of a product, of which the second depends on `inner`; None for what is no bytes less a number."""
    outer, own = sorted(product.values[0].children, key=lambda side: inner in side.axes)
    if inner in outer.axes or inner not in own.axes:
        return None, None
    first, second = (
        side if side is not None and side.condition is None and side.fixed_zero is not None else None
        for side in map(operand_of, (outer, own))
    )
    return first, second


def _divided(value: Expr, weight: Load) -> tuple[Expr, float] | None:
    """The byte that a weight is rounded to, as one of the weight divided by a number, and that number."""
    if value.dtype not in BYTES or value.loads != (weight,):
        return None
    quotient = next((part for part in value.walk() if isinstance(part, Apply) and weight in part.children), None)
    if quotient is None or quotient.function != "div" or quotient.children[0] != weight:
        return value, 1.0
    by = quotient.children[1]
    if not isinstance(by, Const) or not 0 < float(by.value) < float("inf"):
        return None
    return value.transform(lambda part: weight if part == quotient else part), float(by.value)
