"""Kernels as squeeze and excitation: a mean of each channel, a product to few hidden units, one back to columns.

Hu et al., CVPR 2018, section 3.

    q[c] = maps of  sum r, s . x[c, r, s]             at each image, for each channel c
    h[j] = maps of  sum c . q[c] * W[j, c]            for each hidden unit j
    y[k] = maps of  sum j . h[j] * V[k, j]            for each column k

The shared axes are the images; q and h are rows that no image sees of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.forms.chained import is_fp32_one_by_one, part_of
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import contract_temps, without_unit_axes
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.tensor import DType, TensorType


@dataclass(frozen=True)
class Layer:
    """A sum of products of a row with weights, and maps of it: `row` is row[over], `column` the axis of results."""

    product: Block
    maps: tuple[Block, ...]
    row: Load
    weight: Load
    over: Axis
    column: Axis

    def matrix(self, kernel: Kernel) -> Contraction:
        """The product as a matrix product of one row."""
        return Contraction(kernel, self.product, self.maps, self.row, self.weight, (), (), self.column, (self.over,))


@dataclass(frozen=True)
class Excitation:
    """A kernel in this form: `squeeze` sums a channel's elements, `maps` follow each sum, `images` are shared axes."""

    kernel: Kernel
    squeeze: Block
    maps: tuple[Block, ...]
    channel: Axis
    first: Layer
    second: Layer

    @property
    def images(self) -> tuple[Axis, ...]:
        """The shared axes: each of their points is squeezed and excited by itself."""
        return self.kernel.shared

    @property
    def is_linear(self) -> bool:
        """Whether the rows of parts of the elements add up to the row of all."""
        return all(_is_linear(block.values[0]) for block in self.maps)

    @property
    def squeeze_kernel(self) -> Kernel:
        """The sums and their maps alone, storing q[images.., channel] under the name of the row."""
        name, axes = self.first.row.slot, (*self.images, self.channel)
        *before, last = (self.squeeze, *self.maps)
        blocks = (*before, replace(last, stores=(Store(name, tuple(map(Index.of, axes))),)))
        whole = Slot(name, TensorType(DType.F32, tuple(axis.extent for axis in axes)))
        return part_of(self.kernel, blocks, name, axes, (), (whole,))


def as_excitation(kernel: Kernel | Routine) -> Excitation | None:
    """A kernel in this form, or None when it is not one in fp32."""
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return None
    kernel = without_unit_axes(contract_temps(kernel))
    reducing = [at for at, block in enumerate(kernel.blocks) if block.monoid]
    if len(reducing) != 3 or reducing[0] != 0 or not is_fp32_one_by_one(kernel):
        return None
    parts = [kernel.blocks[at:end] for at, end in zip(reducing, [*reducing[1:], len(kernel.blocks)], strict=True)]
    if any(len(block.axes) != 1 or block.axes != part[0].axes for part in parts for block in part):
        return None
    squeeze, *layers = parts
    found = [_layer(part, before) for part, before in zip(layers, parts, strict=False)]
    first, second = found
    if squeeze[0].monoid != "sum" or first is None or second is None or not _is_private(kernel, parts):
        return None
    return Excitation(kernel, squeeze[0], squeeze[1:], squeeze[0].axes[0], first, second)


def _layer(part: Sequence[Block], before: Sequence[Block]) -> Layer | None:
    """A product of what the blocks before have stored last."""
    product, *maps = part
    value, row = product.values[0], before[-1].stores[0]
    if product.monoid != "sum" or len(product.reduction) != 1 or len(row.index) != 1:
        return None
    if not isinstance(value, Apply) or value.function != "mul":
        return None
    (over,) = product.reduction
    load = Load(row.slot, (Index.of(over),), DType.F32)
    weight = next((other for one, other in (value.args, value.args[::-1]) if one == load), None)
    if not isinstance(weight, Load) or weight.axes != {over, *product.axes}:
        return None
    if row.index != (Index.of(before[-1].axes[0]),) or over.extent != before[-1].axes[0].extent:
        return None
    return Layer(product, tuple(maps), load, weight, over, product.axes[0])


def _is_private(kernel: Kernel, parts: Sequence[Sequence[Block]]) -> bool:
    """Whether only their own maps read what squeeze and first product store, and only the next product the last map."""
    temps = {slot.name for slot in kernel.temps}
    for at, part in enumerate(parts[:-1]):
        made = {slot for block in part for slot in block.writes}
        last = part[-1].stores[0].slot
        later = [block for others in parts[at + 1 :] for block in others]
        seen = {slot for block in later[1:] for slot in block.reads} | (later[0].reads - {last})
        if not made <= temps or made & seen:
            return False
    return True


def _is_linear(value: Expr) -> bool:
    """Whether an expression is a load times or through a number."""
    if not isinstance(value, Apply) or value.function not in ("mul", "div"):
        return isinstance(value, Load)
    one, other = value.args
    if value.function == "mul" and isinstance(one, Const):
        one, other = other, one
    return isinstance(one, Load) and isinstance(other, Const)
