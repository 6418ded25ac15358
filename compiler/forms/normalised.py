"""Kernels as a product of normalised rows: statistics of each row, the row made of them, its product with a matrix.

    s, t.. = maps of  sum k . f(x[row, k], s..)        at each row, one after the other
    r[k]   = g(x[row, k], s, t..)                      at each row, for each k
    y[n]   = maps of  sum k . r[k] * W[k, n]           at each row, for each column n

Layer normalisation (Ba et al., 2016) and root mean square normalisation (Zhang and Sennrich, 2019) before a dense layer
are of this form. r may also be a result of the kernel, which others read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.forms.chained import is_fp32_one_by_one, part_of
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import contract_temps, substitute, without_unit_axes
from compiler.ir.expr import Apply, Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot
from compiler.ir.tensor import DType, TensorType


@dataclass(frozen=True)
class Normalised:
    """A kernel in this form.

    kernel      its temporaries have no axes of the rows, its axes of extent 1 are gone
    statistics  blocks that reduce over `channel`, or map what others found, each into a scalar of the row
    row         the block that makes r, for each `channel`
    made        r[channel] as the product reads it
    product     the block that sums over `channel`; `epilogue` what follows on each result
    weight      the product's other factor, which is the same for every row
    rows        the shared axes
    channel     the axis along a row
    column      the product's own axis
    """

    kernel: Kernel
    statistics: tuple[Block, ...]
    row: Block
    made: Load
    product: Block
    epilogue: tuple[Block, ...]
    weight: Expr
    channel: Axis
    column: Axis

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The shared axes: each of their points is normalised by itself."""
        return self.kernel.shared

    @property
    def is_kept(self) -> bool:
        """Whether the normalised rows are a result too."""
        return any(slot.name == self.made.slot for slot in self.kernel.outputs)

    @property
    def contraction(self) -> Contraction:
        """The product and its epilogue alone, reading r[rows.., channel] as an input under its name."""
        name, axes = self.made.slot, (*self.rows, self.channel)
        whole = self.made if self.is_kept else Load(name, tuple(map(Index.of, axes)), DType.F32)
        blocks = (replace(self.product, values=(Apply("mul", (whole, self.weight)),)), *self.epilogue)
        apart = Slot(name, TensorType(DType.F32, tuple(axis.extent for axis in axes)))
        given = next((slot for slot in self.kernel.outputs if slot.name == name), apart)
        outputs = tuple(slot for slot in self.kernel.outputs if slot.name != name)
        kernel = part_of(self.kernel, blocks, name, (*self.rows, self.column), (given,), outputs)
        product, *epilogue = kernel.blocks
        return Contraction(
            kernel, product, tuple(epilogue), whole, self.weight, (), self.rows, self.column, (self.channel,)
        )


def as_normalised(kernel: Kernel | Routine) -> Normalised | None:
    """A kernel in this form, or None when it is not one in fp32."""
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return None
    kernel = without_unit_axes(contract_temps(kernel))
    last = max((at for at, block in enumerate(kernel.blocks) if block.monoid), default=0)
    if last < 2 or not kernel.shared or not is_fp32_one_by_one(kernel):
        return None
    (*statistics, row), product, epilogue = kernel.blocks[:last], kernel.blocks[last], kernel.blocks[last + 1 :]
    if not _is_product(product) or any(block.axes != product.axes or block.monoid for block in epilogue):
        return None
    (channel,), (column,) = product.reduction, product.axes
    if row.monoid or len(row.axes) != 1 or row.axes[0].extent != channel.extent:
        return None
    row = replace(substitute(row, {row.axes[0]: Index.of(channel)}), axes=(channel,))
    along = [_along(block, channel) for block in statistics]
    made = Load(row.stores[0].slot, row.stores[0].index, DType.F32)
    one, other = product.values[0].children
    weight = other if one == made else one if other == made else None
    if weight is None or weight.axes - {channel, column} or made.index[-1] != Index.of(channel):
        return None
    found = [block for block in along if block is not None]
    if len(found) < len(along) or not any(block.monoid for block in found):
        return None
    if not _is_private(kernel, found, made.slot, (product, *epilogue)):
        return None
    return Normalised(kernel, tuple(found), row, made, product, epilogue, weight, channel, column)


def _along(block: Block, channel: Axis) -> Block | None:
    """A statistic with `channel` as the axis that it sums over; None if it is none."""
    if block.axes or len(block.stores) != 1 or block.stores[0].index or block.monoid not in ("", "sum"):
        return None
    if not block.monoid:
        return block
    if len(block.reduction) != 1 or block.reduction[0].extent != channel.extent:
        return None
    return replace(substitute(block, {block.reduction[0]: Index.of(channel)}), reduction=(channel,))


def _is_product(block: Block) -> bool:
    value = block.values[0]
    return (
        block.monoid == "sum"
        and len(block.reduction) == len(block.axes) == 1
        and isinstance(value, Apply)
        and value.function == "mul"
    )


def _is_private(kernel: Kernel, statistics: Sequence[Block], row: str, second: Sequence[Block]) -> bool:
    """Whether statistics are seen by what makes the row alone, and the row by the product's one factor alone."""
    temps = {slot.name for slot in kernel.temps}
    scalars = {slot for block in statistics for slot in block.writes}
    product, *epilogue = second
    seen = {slot for block in second for slot in block.reads}
    again = {slot for block in (*statistics, *epilogue) for slot in block.reads}
    reads = [load for load in product.values[0].loads if load.slot == row]
    return scalars <= temps and not scalars & seen and row not in again and len(reads) == 1
