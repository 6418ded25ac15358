"""What a Kernel means, in numpy: the definition against which every lowering is tested.

Sequential axes are looped over in Python; all other axes are dimensions of numpy arrays, broadcast against each other,
in pieces small enough for memory. A load that is taken must lie inside its tensor and must have been stored; the branch
of a `Where` that is not taken may load anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.errors import VerifyError
from compiler.ir import arithmetic
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.index import Atom, Axis, FloorDiv, Index, Indirect
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import TensorType

PIECE = 2**22
"""Points evaluated at once, at most, where an axis can be cut to get there."""


def evaluate(kernel: Kernel, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs of a kernel for arrays in the order, dtypes and shapes of its input slots.

    Raises VerifyError when the kernel is ill-formed, an input does not fit its slot, a load that is taken leaves its
    tensor or reads what no block has stored, a store leaves its tensor, or an output is not stored in full.
    """
    kernel.verify()
    kernel = with_whole_temps(kernel)
    if len(inputs) != len(kernel.inputs):
        raise VerifyError(f"kernel {kernel.family} takes {len(kernel.inputs)} inputs, {len(inputs)} were given")
    tensors = {slot.name: _Tensor.given(slot, array) for slot, array in zip(kernel.inputs, inputs, strict=True)}
    tensors |= {slot.name: _Tensor.empty(slot) for slot in (*kernel.temps, *kernel.outputs)}
    parallel = tuple(axis for axis in kernel.shared if axis not in kernel.sequential)
    looped = tuple(axis for axis in kernel.shared if axis in kernel.sequential)
    with np.errstate(all="ignore"):
        for at in _steps(looped):
            for block in kernel.blocks:
                _run_block(block, parallel, at, tensors)
    for slot in kernel.outputs:
        missing = tensors[slot.name].missing
        if missing is not None and missing.any():
            raise VerifyError(f"no block stores {slot.name}{np.argwhere(missing)[0].tolist()}\n{kernel}")
    return tuple(tensors[slot.name].data for slot in kernel.outputs)


def with_whole_temps(kernel: Kernel) -> Kernel:
    """The same kernel with a place for each value of its private temporaries.

    They get leading dimensions for the axes left out.
    """
    axes = {slot: tuple(axis for axis in kernel.shared if axis in omitted) for slot, omitted in kernel.private.items()}
    if not any(axes.values()):
        return kernel

    def lead(slot: str) -> tuple[Index, ...]:
        return tuple(map(Index.of, axes.get(slot, ())))

    def widened(expr: Expr) -> Expr:
        return Load(expr.slot, (*lead(expr.slot), *expr.index), expr.type) if isinstance(expr, Load) else expr

    blocks = []
    for block in kernel.blocks:
        values = tuple(value.transform(widened) for value in block.values)
        places = (
            tuple(Position(index).transform(widened).indices[0] for index in store.index) for store in block.stores
        )
        stores = tuple(
            Store(store.slot, (*lead(store.slot), *at)) for store, at in zip(block.stores, places, strict=True)
        )
        blocks.append(replace(block, values=values, stores=stores))
    temps = []
    for temp in kernel.temps:
        shape = (*(axis.extent for axis in axes[temp.name]), *temp.type.shape)
        temps.append(Slot(temp.name, TensorType(temp.type.dtype, shape)))
    return replace(kernel, blocks=tuple(blocks), temps=tuple(temps))


@dataclass
class _Tensor:
    """A slot's elements, and which of them no block has stored so far (None: all are stored)."""

    slot: Slot
    data: np.ndarray
    missing: np.ndarray | None = None

    @staticmethod
    def given(slot: Slot, array: np.ndarray) -> _Tensor:
        if array.shape != slot.type.dims or array.dtype != slot.type.dtype.numpy:
            raise VerifyError(f"slot `{slot}` was given {array.dtype}{list(array.shape)}")
        return _Tensor(slot, np.ascontiguousarray(array).reshape(array.shape))

    @staticmethod
    def empty(slot: Slot) -> _Tensor:
        dims = slot.type.dims
        return _Tensor(slot, np.zeros(dims, slot.type.dtype.numpy), np.ones(dims, np.bool_))


@dataclass(frozen=True)
class _Points:
    """Where a block is evaluated.

    A number for each looped axis; for each other axis, a range along a dimension of its own. Arrays over points have
    that many dimensions, with extent 1 where they do not depend on the axis, or none at all.
    """

    at: Mapping[Axis, int]
    ranges: Mapping[Axis, range]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.ranges.values()))

    def dim(self, axis: Axis) -> int:
        return list(self.ranges).index(axis)

    def values(self, axis: Axis) -> np.ndarray:
        if axis in self.at:
            return np.asarray(self.at[axis], np.int64)
        along = self.ranges[axis]
        shape = [1] * len(self.ranges)
        shape[self.dim(axis)] = len(along)
        return np.arange(along.start, along.stop, dtype=np.int64).reshape(shape)


def _steps(looped: tuple[Axis, ...]) -> Iterator[dict[Axis, int]]:
    for point in itertools.product(*(range(axis.extent) for axis in looped)):
        yield dict(zip(looped, point, strict=True))


def _run_block(block: Block, shared: tuple[Axis, ...], at: Mapping[Axis, int], tensors: Mapping[str, _Tensor]) -> None:
    parallel = (*shared, *(axis for axis in block.axes if axis not in block.sequential))
    if any(axis.extent == 0 for axis in parallel):
        return
    looped = tuple(axis for axis in block.axes if axis in block.sequential)
    lengths = _lengths(block, parallel)
    for step in _steps(looped):
        for piece in _pieces(parallel, lengths):
            points = _Points({**at, **step}, piece)
            values = _reduced(block, points, lengths, tensors) if block.monoid else _mapped(block, points, tensors)
            for store, value in zip(block.stores, values, strict=True):
                _store(store, value, points, _Reader(block, points, tensors))


def _lengths(block: Block, parallel: tuple[Axis, ...]) -> dict[Axis, int]:
    """How much of each axis to take at once so that no array exceeds PIECE elements.

    The outermost axes are cut first.
    """
    factors = _factors(block)
    free = (*parallel, *block.reduction)
    footprints = [set(free)] if factors is None else [set(parallel), *(factor.axes & set(free) for factor in factors)]
    lengths = {axis: axis.extent for axis in free}
    for axis in free:
        sizes = [math.prod(lengths[other] for other in footprint) for footprint in footprints if axis in footprint]
        if sizes and max(sizes) > PIECE:
            lengths[axis] = max(1, lengths[axis] * PIECE // max(sizes))
    return lengths


def _pieces(axes: tuple[Axis, ...], lengths: Mapping[Axis, int]) -> Iterator[dict[Axis, range]]:
    cuts = []
    for axis in axes:
        starts = range(0, axis.extent, lengths[axis]) if axis.extent else (0,)
        cuts.append([range(start, min(start + lengths[axis], axis.extent)) for start in starts])
    for piece in itertools.product(*cuts):
        yield dict(zip(axes, piece, strict=True))


def _factors(block: Block) -> tuple[Expr, Expr] | None:
    """a and b where the block is the sum of a * b and a matrix multiplication computes the same."""
    value = block.values[0]
    if (
        block.monoid != "sum"
        or not isinstance(value, Apply)
        or value.function != "mul"
        or value.dtype is not block.accumulator
    ):
        return None
    return (value.args[0], value.args[1]) if value.dtype.numpy.kind in "iuf" and value.dtype.bytes >= 4 else None


def _mapped(block: Block, points: _Points, tensors: Mapping[str, _Tensor]) -> tuple[np.ndarray, ...]:
    reader = _Reader(block, points, tensors)
    return tuple(reader.value(value, None) for value in block.values)


def _reduced(
    block: Block, points: _Points, lengths: Mapping[Axis, int], tensors: Mapping[str, _Tensor]
) -> tuple[np.ndarray, ...]:
    """The monoid's result over all of the reduction, the reduction's axes staying as dimensions of extent 1."""
    total: tuple[np.ndarray, ...] | None = None
    for piece in _pieces(block.reduction, lengths):
        within = _Points(points.at, {**points.ranges, **piece})
        part = _reduced_piece(block, _Reader(block, within, tensors))
        total = part if total is None else arithmetic.combine(block.monoid, total, part)
    assert total is not None  # even an empty reduction has one, empty, piece
    return tuple(value.reshape(value.shape[: len(points.ranges)]) for value in total)


def _reduced_piece(block: Block, reader: _Reader) -> tuple[np.ndarray, ...]:
    shape = reader.points.shape
    dims = tuple(range(len(shape) - len(block.reduction), len(shape)))
    if factors := _factors(block):
        a, b = (reader.full_rank(reader.value(factor, None)) for factor in factors)
        product = arithmetic.contract(a, b, tuple(dim for dim in dims if shape[dim] != 1))
        if product is not None:
            return (product,)
    assert block.accumulator is not None  # Kernel.verify
    arrays = [reader.value(value, None) for value in block.values]
    arrays[0] = arithmetic.cast(arrays[0], block.accumulator)
    if block.monoid == "softmax":
        arrays[1] = arithmetic.cast(arrays[1], block.accumulator)
    spread = np.broadcast_shapes(*(reader.full_rank(array).shape for array in arrays))
    spread = tuple(shape[dim] if dim in dims else extent for dim, extent in enumerate(spread))
    return arithmetic.reduce(block.monoid, tuple(np.broadcast_to(array, spread) for array in arrays), dims)


@dataclass(frozen=True)
class _Reader:
    """Evaluates expressions and indices at points.

    `taken` masks the points at which a value is asked for; None is all.
    """

    block: Block
    points: _Points
    tensors: Mapping[str, _Tensor]

    def full_rank(self, array: np.ndarray) -> np.ndarray:
        return array if array.ndim else array.reshape((1,) * len(self.points.ranges))

    def value(self, expr: Expr, taken: np.ndarray | None) -> np.ndarray:
        match expr:
            case Const(value, type):
                return _const(value, type.numpy, expr)
            case Load():
                return self.load(expr, taken)
            case Position(index, type):
                return self.index(index, taken).astype(type.numpy)
            case Apply(function, args):
                arrays = tuple(self.value(arg, taken) for arg in args)
                return arithmetic.apply(function, arrays, args[0].dtype, expr.dtype)
            case Cast(arg, type, saturate, rounding):
                return arithmetic.cast(self.value(arg, taken), type, saturate, rounding)
            case Where(condition, then, otherwise):
                holds = self.value(condition, taken)
                yes = self.value(then, holds if taken is None else taken & holds)
                no = self.value(otherwise, ~holds if taken is None else taken & ~holds)
                return np.where(holds, yes, no)
        raise VerifyError(f"`{expr}` is no form of expression")

    def index(self, index: Index, taken: np.ndarray | None) -> np.ndarray:
        total = np.asarray(index.const, np.int64)
        for atom, factor in index.terms:
            total = total + factor * self.atom(atom, taken)
        return total

    def atom(self, atom: Atom, taken: np.ndarray | None) -> np.ndarray:
        if isinstance(atom, Axis):
            return self.points.values(atom)
        if isinstance(atom, Indirect):
            value = self.value(atom.expr, taken).astype(np.int64)
            outside = _taken((value < atom.low) | (value > atom.high), taken)
            if outside.any():
                raise VerifyError(f"`{atom}` leaves its range in `{self.block}`")
            return value
        inner = self.index(atom.index, taken)
        return inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor

    def load(self, load: Load, taken: np.ndarray | None) -> np.ndarray:
        tensor = self.tensors[load.slot]
        strided = None if tensor.missing is not None else self.view(tensor.data, load.index)
        if strided is not None:
            return strided
        place = self.place(load, load.index, tensor, taken)
        if tensor.missing is not None and _taken(tensor.missing.reshape(-1).take(place, mode="clip"), taken).any():
            raise VerifyError(f"`{load}` reads an element that no block has stored, in `{self.block}`")
        if not tensor.data.size:
            return np.zeros(place.shape, tensor.data.dtype)
        return np.asarray(tensor.data.reshape(-1).take(place, mode="clip"))

    def place(
        self, what: Load | Store, index: tuple[Index, ...], tensor: _Tensor, taken: np.ndarray | None
    ) -> np.ndarray:
        """Row-major positions in a tensor. Raises VerifyError where one that is taken lies outside."""
        flat = np.asarray(0, np.int64)
        for dim, (position, extent) in enumerate(zip(index, tensor.slot.type.dims, strict=True)):
            along = self.index(position, taken)
            low, high = position.range
            if low < 0 or high >= extent:
                outside = _taken((along < 0) | (along >= extent), taken)
                if outside.any():
                    at = np.broadcast_to(along, outside.shape)[outside][0]
                    raise VerifyError(f"`{what}` leaves `{tensor.slot}` at {at} of axis {dim}, in `{self.block}`")
            flat = flat * extent + along
        return flat

    def view(self, data: np.ndarray, index: tuple[Index, ...]) -> np.ndarray | None:
        """The elements at an index as a view of a tensor.

        None where that would not be a slice of each axis, or would leave it.
        """
        slices = self.slices(data.shape, index)
        if slices is None:
            return None
        dims = [dim for dim, _ in slices if dim is not None]
        part = np.asarray(data[tuple(piece for _, piece in slices)])
        shape = [1] * len(self.points.ranges)
        for dim, extent in zip(dims, part.shape, strict=True):
            shape[dim] = extent
        return part.transpose(np.argsort(dims)).reshape(shape) if dims else part.reshape(())

    def slices(
        self, extents: tuple[int, ...], index: tuple[Index, ...]
    ) -> list[tuple[int, slice] | tuple[None, int]] | None:
        """For each axis of a tensor, the dimension of the points that runs along it and how.

        (None, position) where none does.
        """
        found: list[tuple[int, slice] | tuple[None, int]] = []
        used = set()
        for position, extent in zip(index, extents, strict=True):
            start, moving = position.const, []
            for atom, factor in position.terms:
                if isinstance(atom, Axis) and atom in self.points.at:
                    start += factor * self.points.at[atom]
                else:
                    moving.append((atom, factor))
            if not moving:
                if not 0 <= start < extent:
                    return None
                found.append((None, start))
                continue
            axis, step = moving[0]
            if (
                len(moving) > 1
                or not isinstance(axis, Axis)
                or step < 0
                or axis in used
                or not (along := self.points.ranges[axis])
            ):
                return None
            used.add(axis)
            first, last = start + step * along.start, start + step * (along.stop - 1)
            if first < 0 or last >= extent:
                return None
            found.append((self.points.dim(axis), slice(first, last + 1, step)))
        return found


def _store(store: Store, value: np.ndarray, points: _Points, reader: _Reader) -> None:
    """Puts a value, cast to the slot's dtype, where a block stores it."""
    tensor = reader.tensors[store.slot]
    value = arithmetic.cast(value, tensor.slot.type.dtype)
    slices = reader.slices(tensor.data.shape, store.index)
    if slices is not None:
        dims = [dim for dim, _ in slices if dim is not None]
        region = tuple(piece for _, piece in slices)
        extents = [points.shape[dim] if dim in dims else 1 for dim in range(len(points.shape))]
        spread = np.broadcast_to(value, extents).reshape([points.shape[dim] for dim in sorted(dims)])
        tensor.data[region] = spread.transpose([sorted(dims).index(dim) for dim in dims])
        if tensor.missing is not None:
            tensor.missing[region] = False
    else:
        place = reader.place(store, store.index, tensor, None)
        place, value = np.broadcast_arrays(place, value)
        tensor.data.reshape(-1)[place] = value
        if tensor.missing is not None:
            tensor.missing.reshape(-1)[place] = False
    if tensor.missing is not None and not tensor.missing.any():
        tensor.missing = None


def _taken(mask: np.ndarray, taken: np.ndarray | None) -> np.ndarray:
    return mask if taken is None else mask & taken


def _const(value: float | int | bool, dtype: np.dtype, expr: Const) -> np.ndarray:
    try:
        return np.asarray(value, dtype)
    except (OverflowError, ValueError) as error:
        raise VerifyError(f"constant `{expr}` does not fit its dtype: {error}") from error
