"""Products and convolutions by constant weights of which a good part is zero, and the streams that such weights become.

y[free, swept, column] = sum over channels and taps of image * weights. Output positions lie side by side in a plane, so
that one weight multiplies a vector of them: the operand is staged channel by channel, each channel as a plane over
swept positions, and a weight that is not zero reads the plane at a distance that its tap tells. What is zero costs
nothing. (Park et al., ICLR 2017, "Faster CNNs with direct sparse convolutions and guided pruning", call it direct
sparse convolution.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from compiler.encodings.sparse import Sparse
from compiler.encodings.zeros import CLASSES, kept, order_of
from compiler.forms.contraction import as_contraction, is_constant
from compiler.forms.normal_form import Slots, contract_temps, without_unit_axes
from compiler.forms.windowed import Image, Sweep, as_image
from compiler.ir.expr import Apply, Cast, Expr, Load
from compiler.ir.index import Axis, flatten
from compiler.ir.kernel import Block, Kernel, Routine, Slot
from compiler.ir.machine import Workload
from compiler.ir.packing import strided
from compiler.ir.tensor import DType

MOST_SWEEPS = 2
PIECE = 64
"""Bytes that each part of the packed weights is a multiple of."""
PLACES = 1 << 16
"""Distances that an element's 16 bits can tell."""


@dataclass(frozen=True)
class SparseProduct:
    """A kernel whose weights are sparse: y[free, swept, column] = sum over depth and taps of image * weights.

    image     the data operand over swept positions, at most two of them, outermost first
    free      axes of the data along which no window moves, outermost first
    column    output channels; depth is the input channels, neither of which a window moves along
    encoding  how sparse the weights are, by lines that are columns
    """

    kernel: Kernel
    product: Block
    epilogue: tuple[Block, ...]
    image: Image
    weights: Load
    free: tuple[Axis, ...]
    column: Axis
    depth: Axis
    encoding: Sparse

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The swept axes of the image, outermost first."""
        return self.image.sweeps

    @property
    def taps(self) -> int:
        """Weights of one line and one input channel."""
        return prod(sweep.tap.extent for sweep in self.sweeps)

    @property
    def places(self) -> int:
        """Weights of one line."""
        return self.depth.extent * self.taps

    @property
    def rows(self) -> int:
        """Output positions, of all free axes together."""
        return prod((*(axis.extent for axis in self.free), *(sweep.output.extent for sweep in self.sweeps)))


def multiplies_by(kernel: Kernel | Routine, slot: Slot) -> bool:
    """Whether a sum of products has a slot's elements, as they are or widened, for one of its factors."""
    if not isinstance(kernel, Kernel) or kernel.sequential or not kernel.blocks:
        return False
    product = kernel.blocks[0]
    value = product.values[0]
    if product.monoid != "sum" or not isinstance(value, Apply) or value.function != "mul":
        return False
    factors = map(_element, value.args)
    return any(isinstance(factor, Load) and factor.slot == slot.name for factor in factors)


def _element(factor: Expr) -> Expr:
    """What a factor is a widened number of; of whole numbers also less a zero point."""
    if isinstance(factor, Apply) and factor.function == "sub" and factor.dtype is DType.I32:
        factor = factor.args[0]
    return factor.arg if isinstance(factor, Cast) and factor.arg.dtype is not DType.BOOL else factor


def as_sparse_product(workload: Workload) -> SparseProduct | None:
    """The kernel as a product by sparse weights, or None: it is no such product, or nothing is known of zeros."""
    if not any(isinstance(one, Sparse) for each in workload.encodings for one in each):
        return None
    if as_contraction(workload) is None:
        return None
    assert isinstance(workload.kernel, Kernel)
    kernel = without_unit_axes(contract_temps(workload.kernel))
    value = kernel.blocks[0].values[0]
    assert isinstance(value, Apply)
    for data, weights in (value.args, value.args[::-1]):
        if isinstance(weights, Load) and is_constant(workload, weights.slot):
            found = _product(workload, kernel, data, weights)
            if found is not None:
                return found
    return None


def _product(workload: Workload, kernel: Kernel, data: Expr, weights: Load) -> SparseProduct | None:
    product = kernel.blocks[0]
    columns = [axis for axis in kernel.shared if axis in weights.axes]
    outputs = [axis for axis in kernel.shared if axis not in weights.axes]
    if len(columns) != 1 or columns[0] in data.axes or not all(axis in data.axes for axis in outputs):
        return None
    image = as_image(data, outputs, product.reduction)
    if image is None or len(image.sweeps) > MOST_SWEEPS:
        return None
    moved = {axis for sweep in image.sweeps for axis in (sweep.output, sweep.tap)}
    depth = [axis for axis in product.reduction if axis not in moved]
    if len(depth) != 1 or not all(axis in weights.axes for axis in product.reduction):
        return None
    encoding = _encoding(workload, kernel, weights, columns[0], product.reduction)
    if encoding is None:
        return None
    slots = Slots(workload)
    offsets = [slots.address(load.slot, load.index)[1] for load in image.value.loads if load.slot in slots.buffers]

    def reach(axis: Axis) -> int:
        return max((abs(offset.coefficient(axis) or 0) for offset in offsets), default=0)

    free = sorted((axis for axis in outputs if axis not in moved), key=reach, reverse=True)
    sweeps = tuple(sorted(image.sweeps, key=lambda sweep: reach(sweep.position), reverse=True))
    return SparseProduct(
        kernel,
        product,
        kernel.blocks[1:],
        Image(image.value, sweeps, image.others),
        weights,
        tuple(free),
        columns[0],
        depth[0],
        encoding,
    )


def _encoding(
    workload: Workload, kernel: Kernel, weights: Load, column: Axis, reduction: Sequence[Axis]
) -> Sparse | None:
    """The encoding by lines that are columns; None where the product does not read each weight once."""
    at = [slot.name for slot in workload.kernel.inputs].index(weights.slot)
    flat = flatten(weights.index, kernel.slots[weights.slot].type.dims)
    steps = [flat.coefficient(axis) for axis in (column, *reduction)]
    size = kernel.slots[weights.slot].type.elements
    places = prod(axis.extent for axis in reduction)
    if flat.const or None in steps or places * column.extent != size:
        return None
    axis = 0 if steps[0] == places else 1
    if axis == 1 and steps[0] != 1:
        return None
    sparse = (one for one in workload.encodings[at] if isinstance(one, Sparse))
    return next((one for one in sparse if one.axis == axis), None)


@dataclass(frozen=True)
class Streams:
    """Weights that are not zero, as one stream for each segment of channels and each group of lines.

    columns, depth  (extent, step in elements of the row-major constant)
    taps            of each swept axis: (step in the constant, distance in floats that each tap reads from a position)
    channel         distance in floats from one staged channel to the next
    group           lines that are kept together: an element is kept where one of them is not zero
    segment         channels that are staged at a time
    fill            what is kept at most, in 1 / CLASSES of all places

    In bytes, each part filled up to PIECE: int32[segments, groups] + 1, where each stream begins; int32[columns], at
    which place of the groups each line is; float32[kept, group], the weights; uint16[kept], the distance of each from
    the first element of its segment. The order of streams is that of segments, then groups.
    """

    columns: tuple[int, int]
    depth: tuple[int, int]
    taps: tuple[tuple[int, tuple[int, ...]], ...]
    channel: int
    group: int
    segment: int
    fill: int
    dtype: DType = DType.U8

    @property
    def groups(self) -> int:
        """How many groups of columns there are; the last may be incomplete."""
        return -(-self.columns[0] // self.group)

    @property
    def segments(self) -> int:
        """How many segments of the depth there are; the last may be incomplete."""
        return -(-self.depth[0] // self.segment)

    @property
    def places(self) -> int:
        """Of one line."""
        return self.depth[0] * prod(len(distances) for _, distances in self.taps)

    @property
    def kept(self) -> int:
        """Elements of each line of all groups for which there is room."""
        return -(-self.fill * self.groups * self.places // CLASSES)

    @cached_property
    def parts(self) -> tuple[int, int, int, int, int]:
        """At which byte each part begins, and the end."""
        sizes = (4 * (self.segments * self.groups + 1), 4 * self.columns[0], 4 * self.kept * self.group, 2 * self.kept)
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + -(-size // PIECE) * PIECE)
        first, order, values, distances, end = ends
        return first, order, values, distances, end

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.parts[-1]

    @property
    def distances(self) -> np.ndarray:
        """int64[channels of a segment, taps]: of each place, from the first element of its segment."""
        taps = np.zeros(1, np.int64)
        for _, steps in self.taps:
            taps = (taps[:, None] + np.array(steps)[None]).reshape(-1)
        return np.asarray(np.arange(self.segment)[:, None] * self.channel + taps[None])

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant, as it is in the model, as groups and segments of what is not zero, and their places."""
        source = (self.columns, self.depth, *((len(distances), step) for step, distances in self.taps))
        lines = strided(constant.astype(np.float32, copy=False), source, 0)
        return self._packed(np.ascontiguousarray(lines).reshape(self.columns[0], self.places))

    def specimen(self) -> np.ndarray:
        """As many elements as there is room for, anywhere."""
        random = np.random.default_rng(self.kept)
        mask = np.zeros(self.groups * self.places, bool)
        mask[random.permutation(mask.size)[: self.kept]] = True
        lines = np.repeat(mask.reshape(self.groups, self.places), self.group, axis=0)[: self.columns[0]]
        return self._packed(lines * random.uniform(0.1, 1, lines.shape).astype(np.float32))

    def _packed(self, lines: np.ndarray) -> np.ndarray:
        """Of float32[columns, places], where places are channels, then taps."""
        order = order_of(kept(lines), self.group)
        wide = np.zeros((self.groups * self.group, self.places), np.float32)
        wide[: len(lines)] = lines[order]
        grouped = wide.reshape(self.groups, self.group, self.depth[0], -1)
        mask = np.asarray(kept(grouped).any(1))
        values, distances, counts = [], [], [np.zeros(1, np.int64)]
        for begin in range(0, self.depth[0], self.segment):
            part = mask[:, begin : begin + self.segment]
            group, channel, tap = np.nonzero(part)
            values.append(grouped[group, :, begin + channel, tap])
            distances.append(self.distances[channel, tap])
            counts.append(part.sum((1, 2)))
        where = np.empty(len(lines), np.int32)
        where[order] = np.arange(len(lines), dtype=np.int32)
        pieces = (
            np.cumsum(np.concatenate(counts)).astype("<i4"),
            where.astype("<i4"),
            np.concatenate(values).astype("<f4"),
            np.concatenate(distances).astype("<u2"),
        )
        packed = np.zeros(self.elements, np.uint8)
        for begin, end, piece in zip(self.parts, self.parts[1:], pieces, strict=False):
            octets = np.ascontiguousarray(piece).view(np.uint8).reshape(-1)
            assert len(octets) <= end - begin, "the encoding says how much is kept at most"
            packed[begin : begin + len(octets)] = octets
        return packed
