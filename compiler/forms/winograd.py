"""Winograd's minimal filtering: convolutions of unit stride computed with fewer multiplications.

F(m, r) gives m neighbouring outputs of a filter of r taps from m + r - 1 products instead of m r (Winograd, Arithmetic
Complexity of Computations, 1980; Lavin and Gray, CVPR 2016):

    y = A^T [(G g) * (B^T d)]        d: m + r - 1 inputs, g: r taps, y: m outputs, * element by element

Over C input channels only the middle is summed, as one matrix product for each of the m + r - 1 elements. Nested along
two axes the form takes (m + r - 1)^2 products for m^2 outputs. G g is computed ahead of time, in float64; B^T and A^T
hold small numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import prod, sqrt

import numpy as np

from compiler.forms.contraction import as_contraction, is_constant
from compiler.forms.normal_form import Slots, contract_temps, without_unit_axes
from compiler.forms.operand import bound_of, guarded
from compiler.forms.windowed import Image, Sweep, as_image
from compiler.ir.expr import Apply, Expr, Load, conjuncts
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.packing import strided
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

Matrix = tuple[tuple[Fraction, ...], ...]

TAPS = (3, 5, 7)
POSITIVE_POINTS: dict[int, tuple[Fraction, ...]] = {
    elements: tuple(map(Fraction, points.split()))
    for elements, points in {
        4: "1",
        5: "1/2 5/4",
        6: "5/8 3/2",
        7: "3/8 7/8 7/4",
        8: "1/2 1 2",
        9: "1/4 5/8 5/4 2",
        10: "3/8 7/8 5/4 2",
    }.items()
}
"""Interpolation points by the number of elements: each stands for itself and its negative; 0 joins an even number of
elements, infinity all.

Pairs +-p share their even and odd parts. Among pairs of eighths and quarters these keep rounding errors smallest
(`amplification`); the usual 0, +-1, +-2 of F(4, 3) double the error along each axis. All numbers made of them that run
at run time are exact in float32.
"""

MOST_ELEMENTS = max(POSITIVE_POINTS)


@dataclass(frozen=True)
class Form:
    """F(outputs, taps) by Toom and Cook: evaluation at `points` and at infinity.

    input    B^T, elements x elements; its rows are the polynomials M(x) / (x - p), and M(x) itself for infinity
    weights  G, elements x taps
    output   A^T, outputs x elements
    """

    outputs: int
    taps: int
    points: tuple[Fraction, ...]
    input: Matrix
    weights: Matrix
    output: Matrix

    @property
    def elements(self) -> int:
        """Elements of a transformed tile: the products for `outputs` results."""
        return self.outputs + self.taps - 1

    @cached_property
    def amplification(self) -> float:
        """How much larger the products are than their sums, for random inputs and taps: errors grow by this factor.

        sqrt(sum over e of A[o, e]^2 |B[e]|^2 |G[e]|^2 / taps), at the worst output o. It multiplies over nested axes.
        """
        products = [_norm2(b) * _norm2(g) for b, g in zip(self.input, self.weights, strict=True)]
        worst = max(sum(a * a * p for a, p in zip(row, products, strict=True)) for row in self.output)
        return sqrt(worst / self.taps)

    def __str__(self) -> str:
        return f"F({self.outputs}, {self.taps})"


@lru_cache
def form(outputs: int, taps: int) -> Form:
    """F(outputs, taps), exactly. Raises KeyError where no points are known for outputs + taps - 1 elements."""
    elements = outputs + taps - 1
    pairs = [sign * point for point in POSITIVE_POINTS[elements] for sign in (1, -1)]
    points = tuple([Fraction(0)] * (elements % 2 == 0) + pairs)
    rows, scaled = [], []
    for point in points:
        others = [other for other in points if other != point]
        rows.append((*_polynomial(others), Fraction(0)))
        norm = prod((point - other for other in others), start=Fraction(1))
        scaled.append(tuple(point**power / norm for power in range(taps)))
    rows.append(_polynomial(points))
    scaled.append(tuple(Fraction(power == taps - 1) for power in range(taps)))
    output = tuple((*(point**power for point in points), Fraction(power == outputs - 1)) for power in range(outputs))
    return Form(outputs, taps, points, tuple(rows), tuple(scaled), output)


def _polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients, lowest power first, of the monic polynomial with these roots."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


def _norm2(row: tuple[Fraction, ...]) -> float:
    return float(sum(number * number for number in row))


def relative_error(forms: Sequence[Form], depth: int) -> float:
    """The largest error, relative to the largest value, of a convolution nested of these forms, in float32.

    `depth` is the number of channels.

    An estimate, for sums taken one by one: half an ULP of each partial sum, added up as random signs do and amplified
    by the forms. For random operands it holds within a factor of two
    (tests/compiler/forms/test_winograd.py).
    """
    return 0.5 * sqrt(depth) * prod(one.amplification for one in forms) * 2.0**-24


@dataclass(frozen=True)
class Convolution:
    """A kernel that Winograd can filter: y[group, free, swept, column] = sum over taps, depth of image * weights.

    image    the data operand over swept positions, one or two of them, outermost first
    groups   axes of both operands
    free     axes of the data along which no window moves (batch; rows, for a window of one row)
    column   output channels; depth is the input channels, contiguous in memory
    """

    kernel: Kernel
    product: Block
    epilogue: tuple[Block, ...]
    image: Image
    weights: Load
    groups: tuple[Axis, ...]
    free: tuple[Axis, ...]
    column: Axis
    depth: Axis

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The swept axes of the image, one or two, outermost first."""
        return self.image.sweeps

    def tiles(self, outputs: Sequence[int]) -> tuple[int, ...]:
        """How many tiles of so many outputs each there are along each free axis, then each sweep."""
        swept = (-(-sweep.output.extent // many) for sweep, many in zip(self.sweeps, outputs, strict=True))
        return (*(axis.extent for axis in self.free), *swept)


def sums_channels(kernel: Kernel) -> bool:
    """Whether a kernel sums over more than the taps of windows; `as_convolution` accepts no other."""
    for block in kernel.blocks:
        places = [index for value in block.values for load in value.loads for index in load.index]
        swept = [index for index in places if any(index.coefficient(axis) == 1 for axis in kernel.shared)]
        taps = {axis for index in swept for axis in index.axes if index.coefficient(axis) == 1}
        if any(axis.extent > 1 and axis not in taps for axis in block.reduction):
            return True
    return False


def as_convolution(workload: Workload) -> Convolution | None:
    """The kernel as a convolution of unit stride and dilation by constant weights over channels-last data, or None."""
    if as_contraction(workload) is None:
        return None
    assert isinstance(workload.kernel, Kernel)
    kernel = without_unit_axes(contract_temps(workload.kernel))
    product = kernel.blocks[0]
    value = product.values[0]
    assert isinstance(value, Apply)
    for data, weights in (value.args, value.args[::-1]):
        if isinstance(weights, Load) and is_constant(workload, weights.slot):
            return _convolution(kernel, product, data, weights, Slots(workload))
    return None


def _convolution(kernel: Kernel, product: Block, data: Expr, weights: Load, slots: Slots) -> Convolution | None:
    columns = [axis for axis in kernel.shared if axis in weights.axes and axis not in data.axes]
    outputs = [axis for axis in kernel.shared if axis not in weights.axes]
    image = as_image(data, outputs, product.reduction)
    if image is None or len(columns) != 1 or not all(axis in data.axes for axis in outputs):
        return None
    moved = {axis for sweep in image.sweeps for axis in (sweep.output, sweep.tap)}
    depth = [axis for axis in product.reduction if axis not in moved]
    usual = all((sweep.stride, sweep.dilation) == (1, 1) and sweep.tap.extent in TAPS for sweep in image.sweeps)
    if not usual or len(image.sweeps) not in (1, 2) or len(depth) != 1:
        return None
    offsets = [slots.address(load.slot, load.index)[1] for load in image.value.loads]
    if not any(offset.coefficient(depth[0]) for offset in offsets):
        return None
    if any(offset.coefficient(depth[0]) not in (0, 1) for offset in offsets):
        return None
    flat = flatten(weights.index, kernel.slots[weights.slot].type.dims)
    if any(flat.coefficient(axis) is None for axis in weights.axes):
        return None

    def reach(sweep: Sweep) -> int:
        return max(abs(offset.coefficient(sweep.position) or 0) for offset in offsets)

    ordered = tuple(sorted(image.sweeps, key=reach, reverse=True))
    return Convolution(
        kernel,
        product,
        kernel.blocks[1:],
        Image(image.value, ordered, image.others),
        weights,
        tuple(axis for axis in kernel.shared if axis in weights.axes and axis not in columns),
        tuple(axis for axis in outputs if axis not in moved),
        columns[0],
        depth[0],
    )


@dataclass(frozen=True)
class Inside:
    """One load inside its padding: the load, and for each sweep the positions [begin, end) outside of the padding."""

    load: Load
    bounds: tuple[tuple[int, int], ...]


def inside_of(view: Convolution) -> Inside | None:
    """Where the data may be read in place; None where it is more than one load inside its padding."""
    condition, value = guarded(view.image.value)
    if not isinstance(value, Load):
        return None
    bounds = {sweep.position: (0, sweep.position.extent) for sweep in view.sweeps}
    for guard in conjuncts(condition) if condition is not None else ():
        bound = _bound(guard)
        if bound is None or bound[0] not in bounds:
            return None
        axis, begin, end = bound
        bounds[axis] = (max(bounds[axis][0], begin), min(bounds[axis][1], end))
    return Inside(value, tuple(bounds[sweep.position] for sweep in view.sweeps))


def _bound(condition: Expr) -> tuple[Axis, int, int] | None:
    """`axis + a >= b` or `axis + a < b` as (axis, begin, end)."""
    if len(condition.axes) != 1:
        return None
    (axis,) = condition.axes
    found = bound_of(condition, axis)
    if found is None or not found[1].is_const:
        return None
    function, at = found[0], found[1].const
    return (axis, at, axis.extent) if function == "ge" else (axis, 0, at)


@dataclass(frozen=True)
class TransformedPanels:
    """Weights as G g (one axis) or G g G^T (two), in panels: float32[batch, panels, elements, depth, panel].

    `forms` are (outputs, taps) along each transformed axis. `source` lists batch, tap, depth and column axes in this
    order, as (extent, stride in elements of the row-major constant) from element `offset`. Columns are padded with
    zeros. Computed in float64, in an order that loaded programs keep (`tw_expand.h`), and rounded once.
    """

    batch: int
    depth: int
    columns: int
    panel: int
    forms: tuple[tuple[int, int], ...]
    source: tuple[tuple[int, int], ...]
    offset: int = 0
    dtype: DType = DType.F32

    @property
    def panels(self) -> int:
        """Panels of a batch."""
        return -(-self.columns // self.panel)

    @property
    def points(self) -> int:
        """Elements of a transformed filter."""
        return prod(outputs + taps - 1 for outputs, taps in self.forms)

    @property
    def taps(self) -> int:
        """Taps of a filter."""
        return prod(taps for _, taps in self.forms)

    @property
    def elements(self) -> int:
        """Elements of all panels, with the columns that pad the last one."""
        return self.batch * self.points * self.panels * self.panel * self.depth

    def filters(self, constant: np.ndarray) -> np.ndarray:
        """What is transformed, as [batch, taps, depth, columns]."""
        return strided(constant, self.source, self.offset).reshape(self.batch, self.taps, self.depth, self.columns)

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant as float32[batch, panels, elements, depth, panel]; missing columns are 0."""
        filters = self.filters(constant).astype(np.float64)
        numbers, scale, _ = transform(self.forms)
        packed = np.zeros((self.batch, self.panels, self.points, self.depth, self.panel), np.float32)
        for own, to in zip(filters, packed, strict=True):
            for at in range(self.panels):
                part = own[..., at * self.panel : (at + 1) * self.panel]
                found = numbers[:, 0, None, None] * part[0]
                for tap in range(1, self.taps):
                    found += numbers[:, tap, None, None] * part[tap]
                to[at, ..., : part.shape[-1]] = found * scale[:, None, None]
        return packed


@lru_cache
def transform(forms: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray, bool]:
    """G as powers of points, float64[elements, taps], and what its rows are multiplied with, [elements].

    Of several axes the products. The third says whether any number times any float32 is exact in float64: a sum over
    the taps in their order is then the same to the bit, whether products and sums are fused or not.
    """
    powers, scales = [[Fraction(1)]], [Fraction(1)]
    for outputs, taps in forms:
        one = form(outputs, taps)
        last = (Fraction(0),) * (taps - 1) + (Fraction(1),)
        rows = [tuple(point**power for power in range(taps)) for point in one.points] + [last]
        norms = [max(row, key=abs) / max(own, key=abs) for row, own in zip(one.weights, rows, strict=True)]
        powers = [[a * b for a in left for b in right] for left in powers for right in rows]
        scales = [a * b for a in scales for b in norms]
    numbers = np.array([[float(number) for number in row] for row in powers])
    digits = max(_odd(number.numerator).bit_length() for row in powers for number in row)
    return numbers, np.array([float(scale) for scale in scales]), digits + FLOAT_DIGITS <= DOUBLE_DIGITS


FLOAT_DIGITS, DOUBLE_DIGITS = 24, 53
"""Binary digits of a float32 and of a float64."""


def _odd(number: int) -> int:
    """The digits of a whole number without the zeros at its end; 0 of 0."""
    return abs(number) // (number & -number) if number else 0


def transformed_panels(view: Convolution, outputs: Sequence[int], panel: int) -> TransformedPanels:
    """How the weights are packed for tiles of so many outputs along each sweep."""
    axes = (*view.groups, *(sweep.tap for sweep in view.sweeps), view.depth, view.column)
    flat: Index = flatten(view.weights.index, view.kernel.slots[view.weights.slot].type.dims)
    return TransformedPanels(
        prod(axis.extent for axis in view.groups),
        view.depth.extent,
        view.column.extent,
        panel,
        tuple((many, sweep.tap.extent) for many, sweep in zip(outputs, view.sweeps, strict=True)),
        tuple((axis.extent, flat.coefficient(axis) or 0) for axis in axes),
        flat.const,
    )


def transforms_of(tile: Tile) -> tuple[int, ...]:
    """The outputs of one tile along each sweep, as a tile of the `winograd` algorithm states them."""
    y, x = tile.extent("transform", "y"), tile.extent("transform", "x")
    return (y, x) if y else (x,)
