"""Kernels as separable convolution: a window channel by channel, then a sum over the channels, for each pixel.

    t[c] = maps of  sum r, s . x[pixel * stride + (r, s) * dilation, c] * w[c, r, s]   at each pixel, for each channel c
    y[k] = maps of  sum c . t[c] * W[k, c]                                             at each pixel, for each column k

The shared axes are the pixels (batch and positions), so t is a row that no pixel sees of another: it need not be
stored. The window may also be a pool, or a convolution in narrow groups, whose channels are two axes (group, output in
the group).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from compiler.forms.cache_lines import ALIAS, LINE
from compiler.forms.chained import is_fp32, part_of
from compiler.forms.channelwise import ChannelWindow, as_channel_window
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.normal_form import contract_temps, without_unit_axes
from compiler.ir.buffers import Buffer
from compiler.ir.buffers import row_major as row_major_strides
from compiler.ir.expr import Apply, Expr, Load
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, Layout, TensorType

WINDOWS = ("sum", "max", "min")
"""The monoids of a window."""


@dataclass(frozen=True)
class Separable:
    """A kernel in this form.

    kernel    its temporaries have no axes of the pixels, its axes of extent 1 are gone
    window    the block that reduces over the window; `maps` what follows on each result
    product   the block that sums over the channels; `epilogue` what follows on each result
    row       what the product reads: t[channel]
    weight    the product's other factor, which is the same at every pixel
    pixels    the shared axes
    channels  the window's own axes: one, or a group and its outputs, in the order in which t counts them
    channel   the axis that the product sums over
    column    the product's own axis
    """

    kernel: Kernel
    window: Block
    maps: tuple[Block, ...]
    product: Block
    epilogue: tuple[Block, ...]
    row: Load
    weight: Expr
    pixels: tuple[Axis, ...]
    channels: tuple[Axis, ...]
    channel: Axis
    column: Axis

    @property
    def points(self) -> int:
        """How many pixels there are."""
        return prod(axis.extent for axis in self.pixels)

    @property
    def window_kernel(self) -> Kernel:
        """The window and its maps alone, storing t[pixels.., channel] under the name of the row."""
        place = Store(self.row.slot, (*map(Index.of, self.pixels), row_major(self.channels)))
        *before, last = (self.window, *self.maps)
        return self._part((*before, replace(last, stores=(place,))), self.channels, (), (self._whole,))

    @property
    def product_kernel(self) -> Kernel:
        """The product and its epilogue alone, reading t[pixels.., channel] as an input under the name of the row."""
        whole = Load(self.row.slot, (*map(Index.of, self.pixels), Index.of(self.channel)), self.row.type)
        factors = tuple(whole if factor == self.row else factor for factor in self.product.values[0].children)
        product = replace(self.product, values=(Apply("mul", factors),))
        return self._part((product, *self.epilogue), (self.column,), (self._whole,), self.kernel.outputs)

    @property
    def _whole(self) -> Slot:
        """t, with an element for each pixel and channel."""
        return Slot(self.row.slot, TensorType(self.row.type, (*(a.extent for a in self.pixels), self.channel.extent)))

    def _part(
        self, blocks: tuple[Block, ...], own: tuple[Axis, ...], given: tuple[Slot, ...], outputs: tuple[Slot, ...]
    ) -> Kernel:
        """Some blocks as a kernel, `own` axes of each among its shared ones."""
        return part_of(self.kernel, blocks, self.row.slot, (*self.pixels, *own), given, outputs)


def as_separable(kernel: Kernel | Routine) -> Separable | None:
    """A kernel in the form of a separable convolution, or None when it is not one in fp32."""
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return None
    kernel = without_unit_axes(contract_temps(kernel))
    reducing = [at for at, block in enumerate(kernel.blocks) if block.monoid]
    if len(reducing) != 2 or reducing[0] != 0 or not kernel.shared:
        return None
    window, product = kernel.blocks[0], kernel.blocks[reducing[1]]
    maps, epilogue = kernel.blocks[1 : reducing[1]], kernel.blocks[reducing[1] + 1 :]
    if not _is_window(window) or not _is_product(product) or not is_fp32(kernel):
        return None
    if any(block.axes != window.axes for block in maps) or any(block.axes != product.axes for block in epilogue):
        return None
    last = (window, *maps)[-1].stores[0]
    row = Load(last.slot, tuple(map(Index.of, product.reduction)), DType.F32)
    factors = product.values[0].children
    weight = next((other for t, other in (factors, factors[::-1]) if t == row), None)
    if weight is None or weight.axes - {*product.axes, *product.reduction} or row.slot in _slots(weight):
        return None
    if last.index != (row_major(window.axes),) or prod(a.extent for a in window.axes) != product.reduction[0].extent:
        return None
    if not _is_private(kernel, (window, *maps), (product, *epilogue), row.slot):
        return None
    return Separable(
        kernel,
        window,
        maps,
        product,
        epilogue,
        row,
        weight,
        kernel.shared,
        window.axes,
        product.reduction[0],
        product.axes[0],
    )


@dataclass(frozen=True)
class Halves:
    """Both halves as workloads of their own; between them are rows of `pitch` floats, one a pixel, as in `pixels`.

    The window stores them, the product reads them in place, with all pixels as its one row axis.
    """

    view: Separable
    window: Workload
    product: Workload
    window_view: ChannelWindow
    product_view: Contraction
    pitch: int


@lru_cache(maxsize=256)
def as_halves(workload: Workload) -> Halves | None:
    """A separable convolution whose halves have the forms of windows and products; None for any other kernel.

    A pixel's channels lie side by side in what the window reads, a pixel's columns in what the product stores, and the
    weights are constant.
    """
    view = as_separable(workload.kernel)
    if view is None:
        return None
    pitch = -(-view.channel.extent // LINE) * LINE
    pitch += LINE if pitch % ALIAS == 0 else 0
    bound = zip((*workload.kernel.inputs, *workload.kernel.outputs), (*workload.inputs, *workload.outputs), strict=True)
    buffers = {slot.name: buffer for slot, buffer in bound}
    buffers[view.row.slot] = _rows_buffer(view, pitch)
    fixed = {slot.name for slot, constant in zip(workload.kernel.inputs, workload.constant, strict=True) if constant}
    window, product = (_workload(kernel, buffers, fixed) for kernel in (view.window_kernel, view.product_kernel))
    window_view, product_view = as_channel_window(window), _as_product_of_rows(view, product)
    if window_view is None or product_view is None:
        return None
    if window_view.channel.extent != view.channel.extent:  # images of one pixel lie like channels of one image
        return None
    return Halves(view, window, product, window_view, product_view, pitch)


def _rows_buffer(view: Separable, pitch: int) -> Buffer:
    """The rows of all pixels, `pitch` floats apart."""
    dims = (*(axis.extent for axis in view.pixels), view.channel.extent)
    strides = (*(pitch * stride for stride in row_major_strides(dims[:-1])), 1)
    return Buffer(0, TensorType(view.row.type, dims), Layout.plain(len(dims)), 0, strides)


def _workload(kernel: Kernel, buffers: Mapping[str, Buffer], fixed: Set[str]) -> Workload:
    inputs, outputs = ([buffers[slot.name] for slot in slots] for slots in (kernel.inputs, kernel.outputs))
    return Workload(kernel, tuple(inputs), tuple(outputs), tuple(slot.name in fixed for slot in kernel.inputs))


def _as_product_of_rows(view: Separable, product: Workload) -> Contraction | None:
    """The product in matrix form, where its A is the rows and all pixels are one axis, and its B is constant."""
    found = as_contraction(product)
    if found is None or not isinstance(found.a, Load) or found.a.slot != view.row.slot:
        return None
    if found.batch or len(found.m) != 1 or packing_of(found, product, 1) is None:
        return None
    return found


def _is_window(block: Block) -> bool:
    """A reduction at each of its own axes' points, of operands that its data differ along."""
    return (
        block.monoid in WINDOWS
        and block.accumulator is DType.F32
        and bool(block.reduction)
        and len(block.axes) in (1, 2)
        and len(block.stores) == 1
    )


def _is_product(block: Block) -> bool:
    """A sum of products over one axis, at each point of another."""
    value = block.values[0]
    return (
        block.monoid == "sum"
        and block.accumulator is DType.F32
        and len(block.reduction) == len(block.axes) == 1
        and isinstance(value, Apply)
        and value.function == "mul"
    )


def _slots(value: Expr) -> set[str]:
    return {load.slot for load in value.loads}


def _is_private(kernel: Kernel, first: Sequence[Block], second: Sequence[Block], row: str) -> bool:
    """Whether the window's results are seen by its maps alone, and the last of them by the product alone."""
    made = {slot for block in first for slot in block.writes}
    temps = {slot.name for slot in kernel.temps}
    seen = {slot for block in second[1:] for slot in block.reads} | (second[0].reads - {row})
    return made <= temps and not made & seen
