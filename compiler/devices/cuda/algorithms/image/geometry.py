"""Convolutions that read few channels: what is asked of a kernel, and k in an order that an image in shared memory has.

A block has a rectangle of pixels. It brings the positions that their windows look at to shared memory once, channel by
channel as rows of the image, padding included, and takes the operands of its products from there: each is in shared
memory once, however many windows look at it, where im2col has a copy for each.

k goes by *quads*: four taps side by side of one row of the window in one channel. The last quad of a row may have fewer
(the third of 7 x 7 has three): what stands in its place in the image are neighbours, which count as zero, and so do
their weights. Quads are counted by channel, row, and place in the row, the last one fastest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from compiler.devices.cuda.codegen.panels import rounded_to_tf32
from compiler.devices.cuda.codegen.rectangles import Rectangles
from compiler.devices.cuda.products.floats import as_fp32, times_loaded
from compiler.forms.bounds import beyond_bounds
from compiler.forms.channelwise import NO_SIDE, Side
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.normal_form import Slots, substitute
from compiler.forms.operand import guarded
from compiler.forms.windowed import as_image
from compiler.ir.expr import Expr, conjuncts
from compiler.ir.index import Axis, Index
from compiler.ir.machine import Workload
from compiler.ir.packing import strided
from compiler.ir.tensor import DType

QUAD = 4
"""Taps of a row of the window that are multiplied together."""
MOST_CHANNELS = 4
"""With more of them 16 bytes of channels are side by side and need no image."""
MOST_TAPS = 121
"""Of a window in all channels' planes, whose products are written out."""


@dataclass(frozen=True)
class FewChannels:
    """A convolution in this form.

    view      the product
    value     its operand A at positions of `rows` and `columns`, of `channel` and of the `outer` axes (images)
    guards    conditions outside of which it is zero
    channel   None where there is one
    position  which input the weights are, and `source` how they lie: (extent, stride) of channel, row and column of the
              window, and of the result's column, from element `start` on
    """

    view: Contraction
    value: Expr
    guards: tuple[Expr, ...]
    rows: Side
    columns: Side
    channel: Axis | None
    outer: tuple[Axis, ...]
    position: int
    source: tuple[tuple[int, int], ...]
    start: int

    @property
    def sides(self) -> tuple[Side, Side]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def channels(self) -> int:
        """Channels of the image."""
        return self.channel.extent if self.channel else 1

    def rectangles(self, rows: int, columns: int) -> Rectangles:
        """The results as rectangles of `rows` x `columns` pixels."""
        return Rectangles(self.outer, self.sides, (rows, columns))

    def product(self, rows: int, columns: int) -> Contraction:
        """The product over such rectangles; some of their pixels may be outside."""
        kernel, rectangles = self.view.kernel, self.rectangles(rows, columns)
        place = rectangles.pixel | {axis: Index.of(0) for axis in self.outer if axis.extent == 1}
        blocks = tuple(substitute(block, place) for block in kernel.blocks)
        kernel = replace(kernel, shared=(*rectangles.m, self.view.n), blocks=blocks)
        return replace(self.view, kernel=kernel, product=blocks[0], epilogue=blocks[1:], m=rectangles.m)


@lru_cache(maxsize=256)
def as_few_channels(workload: Workload) -> FewChannels | None:
    """A kernel in this form, or None.

    None: no window of neighbours moves along the result's innermost rows, there are more channels, or the weights are
    no constant in even steps.
    """
    view = as_contraction(workload)
    if view is None or view.batch or beyond_bounds(view.kernel):
        return None
    image = as_image(view.a, view.m, view.k)
    if image is None or not 1 <= len(image.sweeps) <= 2:
        return None
    order = {axis: at for at, axis in enumerate(view.m)}
    *others, last = sorted(image.sweeps, key=lambda sweep: order[sweep.output])
    rows, columns = (
        Side(one.output, one.position, one.stride, one.tap, one.dilation) if one else NO_SIDE
        for one in (others[0] if others else None, last)
    )
    taps = {side.tap for side in (rows, columns)}
    channels = tuple(axis for axis in view.k if axis not in taps)
    count = prod(axis.extent for axis in channels)
    if columns.dilation > 1 or len(channels) > 1 or count > MOST_CHANNELS or rows.taps * columns.taps > MOST_TAPS:
        return None
    slots = Slots(workload)
    condition, value = guarded(image.value)
    if not value.loads or any(load.slot not in slots.buffers for load in image.value.loads):
        return None
    found = packing_of(replace(view, b=as_fp32(view.b)), workload, 1)
    if found is None or times_loaded(view, workload.kernel.inputs[found[0]].name) > 1:
        return None
    position, panels = found
    strides = dict(zip((*view.k, view.n), panels.source, strict=True))
    wanted = (channels[0] if channels else None, rows.tap, columns.tap, view.n)
    source = tuple(strides[axis] if axis else (1, 0) for axis in wanted)
    pixels = {rows.output, columns.output}
    outer = tuple(axis for axis in view.m if axis not in pixels)
    guards = tuple(conjuncts(condition)) if condition is not None else ()
    channel = channels[0] if channels else None
    return FewChannels(view, value, guards, rows, columns, channel, outer, position, source, panels.starts[0])


@dataclass(frozen=True)
class Window:
    """k of a convolution in quads, `whole` of them to a step of tensor cores, so that the last ones may be empty."""

    channels: int
    rows: int
    columns: int
    whole: int = 4

    @property
    def across(self) -> int:
        """Quads of a row of the window."""
        return -(-self.columns // QUAD)

    @property
    def quads(self) -> int:
        """Quads that have taps."""
        return self.channels * self.rows * self.across

    @property
    def depth(self) -> int:
        """Elements of k, those that are zero included."""
        return -(-self.quads // self.whole) * self.whole * QUAD

    def taps(self, quad: int) -> int:
        """Taps that a quad has, from 0 to 4; they are its first ones."""
        if quad >= self.quads:
            return 0
        return min(self.columns - quad % self.across * QUAD, QUAD)

    def place(self, quad: int) -> tuple[int, int, int]:
        """Channel, row of the window and first column of a quad; the first quad's for one that has no taps."""
        quad = quad if quad < self.quads else 0
        line, at = divmod(quad, self.across)
        return line // self.rows, line % self.rows, at * QUAD


def window_of(found: FewChannels, element: DType) -> Window:
    """k of a convolution whose operands are multiplied as `element`."""
    return Window(found.channels, found.rows.taps, found.columns.taps, whole_quads(element))


def whole_quads(element: DType) -> int:
    """Quads of a step of the tensor cores: 16 elements of 16 bits, 8 of tf32."""
    return 8 // element.bytes


@dataclass(frozen=True)
class QuadPanels:
    """Weights as tiles of `columns` columns, each with all of k in quads: dtype[tiles, columns, window.depth].

    `source` and `start` say where they lie, as in `FewChannels`. `as_tf32` rounds them to tf32, as `BlockPanels` does.
    """

    source: tuple[tuple[int, int], ...]
    start: int
    window: Window
    columns: int
    dtype: DType
    as_tf32: bool = False

    @property
    def depth(self) -> int:
        """Elements of k."""
        return self.window.depth

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Of the packed array, as that of `BlockPanels`: one batch, tiles of n, one of k, columns, depth."""
        return 1, -(-self.source[-1][0] // self.columns), 1, self.columns, self.depth

    @property
    def elements(self) -> int:
        """Elements of the packed constant, zeros included."""
        return prod(self.shape)

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The weights by column, channel, row and quad; one axis. What is no tap, or no column, is zero."""
        window = self.window
        plain = strided(constant.astype(np.float32, copy=False), self.source, self.start)
        count = plain.shape[-1]
        quads = np.zeros((count, window.channels, window.rows, window.across * QUAD), np.float32)
        quads[..., : window.columns] = np.moveaxis(plain, -1, 0)
        whole = np.zeros((self.shape[1] * self.columns, self.depth), np.float32)
        whole[:count, : window.quads * QUAD] = quads.reshape(count, -1)
        return (rounded_to_tf32(whole) if self.as_tf32 else whole).astype(self.dtype.numpy).reshape(-1)
