"""Convolutions in groups of bytes, of as many outputs as inputs: windows channel by channel, four members at a time.

    sum over taps, members .  (x[position, channel's group, member] - zero) * w[tap, member, channel]

The channel is contiguous in operand and results. A vector of channels holds whole groups, or lies within one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.forms.channelwise import ChannelWindow, as_byte_window, weights_of
from compiler.forms.exact_floats import GREATEST, in_floats
from compiler.forms.groups import LANE_BYTES
from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType


@dataclass(frozen=True)
class ByteGroups:
    """A kernel of this form.

    view     as a window, whose sums are in fp32, exactly
    load     bytes at each position of the window and each channel
    zero     what is taken from each of them; one beside the image counts as this
    weights  the dtype of the weights
    """

    view: ChannelWindow
    load: Load
    zero: int
    weights: DType

    def packing(self, workload: Workload, lanes: int, together: int) -> tuple[int, Panels]:
        """The weights for each vector of channels, and their input position.

        In this order: members, `together` at a time, taps, and these members.
        """
        found = weights_of(self.view, workload, lanes)
        assert found is not None, "a window with groups has constant weights"
        position, panels = found
        (count, step), *taps, channel = panels.source
        source = ((count // together, step * together), *taps, (together, step), channel)
        return position, replace(panels, source=source)


def byte_groups(workload: Workload) -> ByteGroups | None:
    """The form of a kernel, None where it has another."""
    view = as_byte_window(workload) if in_floats(workload) else None
    if view is None or view.members is None or view.group % LANE_BYTES or view.loops or view.ends:
        return None
    if any(guard.axes not in ({view.rows.position}, {view.columns.position}) for guard in view.guards):
        return None
    zero, value = 0, view.value
    if isinstance(value, Apply) and value.function == "sub":
        value, taken = value.args
        taken = taken.arg if isinstance(taken, Cast) else taken
        if not isinstance(taken, Const):
            return None
        zero = int(taken.value)
    load, weight = _bytes_in(value), _bytes_in(view.weight)
    return ByteGroups(view, load, zero, weight.type) if load and weight else None


def _bytes_in(expr: Expr | None) -> Load | None:
    """The load of bytes that an fp32 expression converts, None for any other."""
    if isinstance(expr, Cast) and isinstance(expr.arg, Load) and expr.arg.type in GREATEST:
        return expr.arg
    return None
