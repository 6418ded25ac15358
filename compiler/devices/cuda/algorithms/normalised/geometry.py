"""Products of normalised rows whose rows a warp holds in registers: what that asks of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from compiler.devices.cuda.products.operand import HALVES, piece_of
from compiler.forms.contraction import packing_of
from compiler.forms.normal_form import Slots
from compiler.forms.normalised import Normalised, as_normalised
from compiler.ir.expr import Apply, Cast, Const, Load
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType

WARP = 32
MOST_ELEMENTS = 32
"""Of a row, that a lane holds."""
VECTOR_BYTES = 16
"""What a lane stores to shared memory at once."""


@dataclass(frozen=True)
class Rows:
    """A kernel of this form.

    fixed  loads along the row of constants that are the same for all rows
    moved  the other loads along the row
    """

    normalised: Normalised
    fixed: tuple[Load, ...]
    moved: tuple[Load, ...]

    def count(self, element: DType) -> int:
        """Elements of a row, as `element` in shared memory, that a lane has side by side: 16 bytes, if rows allow."""
        most = VECTOR_BYTES // element.bytes
        return min(most, self.normalised.channel.extent & -self.normalised.channel.extent)


@lru_cache(maxsize=256)
def rows_of(workload: Workload) -> Rows | None:
    """A kernel of this form, or None: weights are no constant, rows are too long or are not read plainly."""
    found = as_normalised(workload.kernel)
    if found is None or found.channel.extent > WARP * MOST_ELEMENTS:
        return None
    if not isinstance(found.weight, Load) or packing_of(found.contraction, workload, 1) is None:
        return None
    slots = Slots(workload)
    values = [value for block in (*found.statistics, found.row) for value in block.values]
    if not all(isinstance(part, Load | Apply | Cast | Const) for value in values for part in value.walk()):
        return None
    loads = dict.fromkeys(load for value in values for load in value.loads if load.slot in slots.buffers)
    after = [load for block in found.epilogue for value in block.values for load in value.loads]
    if found.weight.slot in {load.slot for load in (*loads, *after)}:  # packed, it is read by the product alone
        return None
    along = [load for load in loads if found.channel in load.axes]
    places = [*along, *([found.made] if found.is_kept else [])]
    if not along or any(slots.address(one.slot, one.index)[1].coefficient(found.channel) != 1 for one in places):
        return None
    constant = {slot.name for slot, one in zip(workload.kernel.inputs, workload.constant, strict=True) if one}
    fixed = tuple(load for load in along if load.slot in constant and load.axes <= {found.channel})
    return Rows(found, fixed, tuple(load for load in along if load not in fixed))


def width_of(load: Load, rows: Rows, slots: Slots, element: DType) -> int:
    """Elements of a load, or of the rows where they are a result, that one access moves."""
    channel, dtype = rows.normalised.channel, slots.buffers[load.slot].dtype
    return min(piece_of(load, channel, slots, dtype), rows.count(element))


def element_of(rows: Rows, workload: Workload, precision: str) -> DType:
    """What the product multiplies.

    A 16-bit float where the job's precision is one and the weights lie in it, else fp32.
    """
    weight = rows.normalised.weight
    assert isinstance(weight, Load)
    kind = Slots(workload).buffers[weight.slot].dtype
    return kind if precision in ("fp16", "bf16") and kind in HALVES else DType.F32
