"""The epilogue: results of a product or a reduction are put where their block stores them, then maps are applied."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.expressions import Emitter
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Apply, Const, Load
from compiler.ir.index import Index
from compiler.ir.kernel import Block, Store
from compiler.ir.tensor import DType

SIMPLE = frozenset(("add", "sub", "mul", "div", "min", "max", "neg", "abs"))
"""Functions of a few instructions: at most MAX_MAPS maps of them are applied while the sums are in registers."""
MAX_MAPS = 6


def accesses_of(product: Block, maps: Sequence[Block]) -> list[Load | Store]:
    """What maps load, and what they and the product store."""
    loads = [load for block in maps for value in block.values for load in value.loads]
    return [*loads, *(store for block in (product, *maps) for store in block.stores)]


def are_simple(view: Contraction, slots: Slots, maps: Sequence[Block]) -> bool:
    """Whether maps are a few cheap functions on fp32 at constant distances along rows and columns."""
    parts = [part for block in maps for value in block.values for part in value.walk()]
    functions = [part for part in parts if not isinstance(part, Load | Const)]
    if len(functions) > MAX_MAPS or not all(isinstance(f, Apply) and f.function in SIMPLE for f in functions):
        return False
    places = [access for access in accesses_of(view.product, maps) if access.slot in slots.buffers]
    if any(slots.buffers[place.slot].type.dtype is not DType.F32 for place in places):
        return False
    offsets = [slots.address(place.slot, place.index)[1] for place in places]
    return all(
        offset.coefficient(view.n) in (0, 1) and all(offset.coefficient(axis) is not None for axis in view.m[-2:])
        for offset in offsets
    )


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
