"""Separable convolutions whose window is computed from positions in shared memory.

What that asks of a kernel, and its product over tiles of pixels. A block of a GPU has a rectangle of pixels. For a
stretch of channels it copies the positions that their windows look at to shared memory, zero where they are outside,
computes the window's results there, and multiplies them with the weights of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from compiler.devices.cuda.codegen.lane_columns import RoundedPanels
from compiler.devices.cuda.codegen.rectangles import Rectangles
from compiler.devices.cuda.products.operand import HALVES, piece_of
from compiler.forms.channelwise import ChannelWindow, Side, as_channel_window, weights_of
from compiler.forms.contraction import Contraction, packing_of
from compiler.forms.normal_form import Slots, substitute
from compiler.forms.separable import Separable, as_separable
from compiler.ir import arithmetic
from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType

LONGEST_COPY, SHORTEST_COPY = 16, 4
"""Bytes of an asynchronous copy."""


@dataclass(frozen=True)
class Staged:
    """A separable convolution in this form.

    window   the first half, channel by channel; its sides are pixels
    load     the one load of what the window reduces, over positions
    count    channels that are side by side and aligned in memory
    weights  of the window: the position of the input, and how it is packed; None where it has none
    """

    separable: Separable
    window: ChannelWindow
    load: Load
    count: int
    weights: tuple[int, RoundedPanels] | None

    @property
    def weight_count(self) -> int:
        """Weights of the window that are copied at once; 0 where there are none, or they are too short for a copy."""
        if not self.weights:
            return 0
        nbytes = self.weights[1].dtype.bytes
        return min(self.count, LONGEST_COPY // nbytes) if self.count * nbytes >= SHORTEST_COPY else 0

    @property
    def sides(self) -> tuple[Side, Side]:
        """Rows and columns."""
        return self.window.rows, self.window.columns

    def rectangles(self, rows: int, columns: int) -> Rectangles:
        """The results as rectangles of `rows` x `columns` pixels."""
        return Rectangles(self.window.outer, self.sides, (rows, columns))

    def product(self, rows: int, columns: int) -> Contraction:
        """The second half over such rectangles; some of their pixels may be outside."""
        kernel, rectangles = self.separable.product_kernel, self.rectangles(rows, columns)
        blocks, m = tuple(substitute(block, rectangles.pixel) for block in kernel.blocks), rectangles.m
        column, channel = self.separable.column, self.separable.channel
        kernel = replace(kernel, shared=(*m, column), blocks=blocks)
        value = blocks[0].values[0]
        a = next(one for one in value.children if any(load.slot == self.separable.row.slot for load in one.loads))
        return Contraction(kernel, blocks[0], blocks[1:], a, self.separable.weight, (), m, column, (channel,))


@lru_cache(maxsize=256)
def as_staged(workload: Workload) -> Staged | None:
    """A kernel in this form, or None.

    None: its window is no sum of one operand channel by channel, or weights are no constants.
    """
    separable = as_separable(workload.kernel)
    if separable is None:
        return None
    window = as_channel_window(workload.part(separable.window_kernel))
    if window is None or window.monoid != "sum" or window.loops or window.members:
        return None
    pixels = {axis for axis in (*window.outer, window.rows.output, window.columns.output) if axis.extent > 1}
    loads = tuple(dict.fromkeys(window.value.loads))
    if pixels != set(separable.pixels) or len(loads) != 1 or (window.guards and not _keeps_zero(window.value)):
        return None
    if _reads_by_pixel(window, pixels) or not isinstance(separable.weight, Load):
        return None
    weights = _window_weights(window, workload)
    if window.weight is not None and weights is None:
        return None
    count = _count(window, loads[0], Slots(workload))
    if any(len(block.values) > 1 for block in window.epilogue):
        return None
    found = Staged(separable, window, loads[0], count, weights)
    if not count or (weights and not found.weight_count) or packing_of(found.product(1, 1), workload, 1) is None:
        return None
    return found


def _window_weights(window: ChannelWindow, workload: Workload) -> tuple[int, RoundedPanels] | None:
    """The window's weights as [taps][channels], of the whole kernel's inputs."""
    if window.weight is None:
        return None
    found = weights_of(window, workload, window.channel.extent)
    return (found[0], RoundedPanels(found[1], workload.inputs[found[0]].dtype)) if found else None


def _reads_by_pixel(window: ChannelWindow, pixels: set[Axis]) -> bool:
    """Whether the maps between window and product load what differs from pixel to pixel.

    A tile may have pixels that are outside.
    """
    return any(load.axes & pixels for block in window.epilogue for value in block.values for load in value.loads)


def _keeps_zero(value: Expr) -> bool:
    """Whether an expression of a load is zero where that is."""
    result = _at_zero(value)
    return result is not None and not result.any()


def _at_zero(value: Expr) -> np.ndarray | None:
    if isinstance(value, Const):
        return np.asarray(value.value, value.dtype.numpy)
    if isinstance(value, Load):
        return np.zeros((), value.dtype.numpy)
    parts = [_at_zero(child) for child in value.children]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts):
        return None
    if isinstance(value, Cast):
        return np.asarray(arithmetic.cast(known[0], value.type, value.saturate))
    if isinstance(value, Apply):
        return np.asarray(arithmetic.apply(value.function, known, value.args[0].dtype, value.dtype))
    return None


def _count(window: ChannelWindow, load: Load, slots: Slots) -> int:
    """The most channels that may be copied at once; 0 where not even the fewest bytes of a copy lie side by side."""
    if load.slot not in slots.buffers or slots.address(load.slot, load.index)[1].coefficient(window.channel) != 1:
        return 0
    dtype = slots.buffers[load.slot].dtype
    count = piece_of(load, window.channel, slots, dtype)
    return count if count * dtype.bytes >= SHORTEST_COPY else 0


def element_of(staged: Staged, workload: Workload, precision: str) -> DType:
    """What the product multiplies.

    A 16-bit float where the job's precision is one and the weights lie in it, else fp32.
    """
    weight = staged.separable.weight
    assert isinstance(weight, Load)
    kind = Slots(workload).buffers[weight.slot].dtype
    return kind if precision in ("fp16", "bf16") and kind in HALVES else DType.F32
