"""Maps of bytes to bytes that may run on every fourth channel at a time, so that four lots of lanes are one vector.

Which channel a lane has matters to bytes that lie there alone: these are loaded and stored as whole vectors. All else
that such maps read is the same for all channels.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.forms.dequantised import BYTES
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Const, Expr, Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block


def are_byte_maps(maps: Sequence[Block], channel: Axis, slots: Slots) -> bool:
    """Whether maps store nothing but bytes, contiguous along the channel, and read only such bytes along it."""
    return all(_is_byte_map(block, channel, slots) for block in maps)


def lies_along(load: Load, channel: Axis, slots: Slots) -> bool:
    """Whether a load is of bytes in memory, contiguous along the channel."""
    if load.slot not in slots.buffers or load.type not in BYTES:
        return False
    return slots.address(load.slot, load.index)[1].coefficient(channel) == 1


def _is_byte_map(block: Block, channel: Axis, slots: Slots) -> bool:
    for store, value in zip(block.stores, block.values, strict=True):
        stored = Load(store.slot, store.index, value.dtype)
        if store.slot in slots.buffers and not lies_along(stored, channel, slots):
            return False
        if channel in value.transform(lambda expr: _without(expr, channel, slots)).axes:
            return False
    return True


def _without(expr: Expr, channel: Axis, slots: Slots) -> Expr:
    """A number in place of what is held in registers when a map runs."""
    is_held = isinstance(expr, Load) and (expr.slot not in slots.buffers or lies_along(expr, channel, slots))
    return Const(0, expr.dtype) if is_held else expr
