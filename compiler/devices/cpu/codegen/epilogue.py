"""The epilogue: results of a product or a reduction are put where their block stores them, then maps are applied."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.expressions import Emitter
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Load
from compiler.ir.index import Index
from compiler.ir.kernel import Block
from compiler.ir.tensor import DType


def finish(
    emitter: Emitter,
    slots: Slots,
    product: Block,
    maps: Sequence[Block],
    value: str,
    dtype: DType = DType.F32,
) -> str:
    """Puts a vector of the product's results, of `dtype`, where its block stores them; then those of its epilogue.

    Returns the C name of the last value.
    """
    _put(emitter, slots, product.stores[0].slot, product.stores[0].index, value, dtype)
    for block in maps:
        for store, expr in zip(block.stores, block.values, strict=True):
            value = emitter.vector_of(expr)
            _put(emitter, slots, store.slot, store.index, value, expr.dtype)
    return value


def _put(emitter: Emitter, slots: Slots, slot: str, index: tuple[Index, ...], value: str, dtype: DType) -> None:
    """To memory where the slot has a buffer; blocks that follow find the value in its register either way."""
    if slot in slots.buffers:
        emitter.store(slot, index, value, slots.buffers[slot].type.dtype)
    emitter.held[Load(slot, index, dtype)] = value
