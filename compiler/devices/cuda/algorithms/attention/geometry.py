"""Attention by tensor cores: its operands in shared memory, and how queries and keys are shared out to warps.

A block of threads takes some queries of one head and goes over the keys, a block of them at a time (Dao,
FlashAttention-2, arXiv 2307.08691). A warp takes 16 of the queries and some of the block's keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from compiler.forms.attention import Attention, as_attention
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile

WARP = 32
ROWS = 16
"""Queries of a warp: the rows of one matrix fragment."""
MOST_HEAD = 256
"""Depth or columns that registers may hold, where Q and the sums stay."""
MOST_SPLIT_DEPTH = 64
"""Up to which registers may hold both halves of Q split in two; beyond it, Q is split again for every block of keys."""
MOST_SPAN = 2**30
"""Elements of a tensor whose offsets are computed in 32 bits."""
BANKS = 32
ACCESSES = (16, 8, 4)
"""Bytes that one asynchronous copy moves, the most first."""

Inner = Literal["sum", "result"]
"""Along which axis rows of an operand lie in shared memory: the one that the product sums over, or the other."""


@dataclass(frozen=True)
class Operand:
    """An operand is factor * value.

    `inner` lies side by side in memory. Copies take `chunk` elements, 0 where they must be computed one by one.
    """

    value: Expr
    factor: float
    inner: Inner
    chunk: int

    @property
    def load(self) -> Load:
        """The element, of an operand that is one as it lies in memory."""
        assert isinstance(self.value, Load)
        return self.value


@dataclass(frozen=True)
class FlashAttention:
    """A kernel of the form of attention, whose operands lie in shared memory in `dtype`.

    That is a 16-bit float, or fp32 to be multiplied in tf32.
    """

    view: Attention
    dtype: DType
    q: Operand
    k: Operand
    v: Operand

    @property
    def step(self) -> int:
        """Elements that one matrix instruction sums over."""
        return 16 if self.dtype.bytes == 2 else 8

    @property
    def depth(self) -> int:
        """What a score is summed over, zeros included that fill the last fragment."""
        return _padded(self.view.deep, self.step)

    @property
    def columns(self) -> int:
        """Columns of the values, those included that fill the last pair of fragments."""
        return _padded(self.view.columns.extent, 16)

    def pitch(self, operand: Operand, extent: int) -> int:
        """Elements from one row to the next of an operand in shared memory.

        They are such that the fragments of a warp meet no bank twice.
        """
        if self.dtype.bytes == 2:
            return extent + 8  # rows of 16 bytes, an odd number of them: ldmatrix reads eight rows at once
        wanted = (8, 24) if operand.inner == "sum" else (4, 12, 20, 28)
        return next(pitch for pitch in range(extent, extent + BANKS) if pitch % BANKS in wanted)

    @property
    def mixed_pitch(self) -> int:
        """Floats from one row of the sums to the next in shared memory."""
        return self.columns + 8


@dataclass(frozen=True)
class FlashBlocks:
    """The warps of a block: `query_warps` times `key_warps`, each with `warp_keys` of a block of keys.

    `stages` blocks of keys are in shared memory.
    """

    query_warps: int
    key_warps: int
    warp_keys: int
    stages: int

    @staticmethod
    def of(tile: Tile) -> FlashBlocks:
        """As a tile says it."""
        warp_keys = tile.extent("warp", "n")
        return FlashBlocks(
            tile.extent("block", "m") // ROWS,
            tile.extent("block", "n") // warp_keys,
            warp_keys,
            tile.extent("block", "stages"),
        )

    def within(self, keys: int) -> FlashBlocks:
        """Without stages that so many keys do not fill."""
        return replace(self, stages=min(self.stages, -(-keys // self.keys)))

    def tile(self, algorithm: str) -> Tile:
        """The tile of these blocks for `algorithm`."""
        block = (("m", self.queries), ("n", self.keys), ("stages", self.stages))
        return Tile(algorithm, (Level("block", block), Level("warp", (("m", ROWS), ("n", self.warp_keys)))))

    @property
    def queries(self) -> int:
        """Rows of queries of a block of threads."""
        return ROWS * self.query_warps

    @property
    def keys(self) -> int:
        """Keys and values that a block reads in one step."""
        return self.key_warps * self.warp_keys

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.query_warps * self.key_warps

    def key_elements(self, form: FlashAttention) -> int:
        """Of one stage of keys in shared memory."""
        return self._elements(form, form.k, form.depth, keys_are_rows=form.k.inner == "sum")

    def value_elements(self, form: FlashAttention) -> int:
        """Of one stage of values in shared memory."""
        return self._elements(form, form.v, form.columns, keys_are_rows=form.v.inner == "result")

    def _elements(self, form: FlashAttention, operand: Operand, others: int, *, keys_are_rows: bool) -> int:
        rows, row = (self.keys, others) if keys_are_rows else (others, self.keys)
        return rows * form.pitch(operand, row)

    def merged_bytes(self, form: FlashAttention) -> int:
        """Of the warps' sums, largest scores and totals, which take the place of keys and values in the end."""
        return 4 * self.key_warps * self.queries * (form.mixed_pitch + 2)

    def shared_bytes(self, form: FlashAttention) -> int:
        """Of one block: its stages, or the sums of its warps that take their place."""
        staged = self.stages * form.dtype.bytes * (self.key_elements(form) + self.value_elements(form))
        return max(staged, self.merged_bytes(form))


def as_flash_attention(workload: Workload) -> FlashAttention | None:
    """A workload in this form, or None.

    None: no attention, heads too wide for registers, or scores that are wanted in memory.
    """
    view = as_attention(workload.kernel)
    if view is None or view.deep > MOST_HEAD or view.columns.extent > MOST_HEAD or not view.keys.extent:
        return None
    slots = Slots(workload)
    if any(buffer.span >= MOST_SPAN for buffer in slots.buffers.values()):
        return None
    before = (view.scores, *view.maps)
    if any(store.slot in slots.buffers for block in before for store in block.stores):
        return None
    values = [_without_factor(value) for value in (view.q, view.k, view.v)]
    dtypes = {
        slots.buffers[value.slot].dtype if isinstance(value, Load) and value.slot in slots.buffers else None
        for value, _ in values
    }
    (found,) = dtypes if len(dtypes) == 1 else (None,)
    dtype = found if found in (DType.F16, DType.BF16) else DType.F32
    inner = view.depth[0] if len(view.depth) == 1 else None
    q, k = (_operand(*value, "sum", inner, view.keys, dtype, slots) for value in values[:2])
    v = _operand(*values[2], "result", view.columns, view.keys, dtype, slots)
    return FlashAttention(view, dtype, q, k, v)


def _without_factor(value: Expr) -> tuple[Expr, float]:
    """A product without its constant factors and without conversions from shorter floats.

    Returned with the product of these constants.
    """
    if isinstance(value, Cast) and value.dtype is DType.F32 and value.arg.dtype in (DType.F16, DType.BF16):
        return (value.arg, 1.0) if isinstance(value.arg, Load) else (value, 1.0)
    if isinstance(value, Apply) and value.function == "mul":
        for factor, other in (value.args, value.args[::-1]):
            if isinstance(factor, Const):
                inside, further = _without_factor(other)
                return inside, further * float(factor.value)
    return value, 1.0


def _operand(
    value: Expr, factor: float, normal: Inner, row: Axis | None, keys: Axis, dtype: DType, slots: Slots
) -> Operand:
    """An operand whose rows, one for each key, are `normal` in shared memory; the other way round where it lies so."""
    if not isinstance(value, Load) or slots.buffers[value.slot].dtype is not dtype or row is None:
        return Operand(value, factor, normal, 0)
    turned: Mapping[Inner, Inner] = {"sum": "result", "result": "sum"}
    for inner, axis in ((normal, row), (turned[normal], keys)):
        chunk = chunk_of(value, axis, dtype, slots)
        if chunk:
            return Operand(value, factor, inner, chunk)
    return Operand(value, factor, normal, 0)


def chunk_of(load: Load, axis: Axis, dtype: DType, slots: Slots) -> int:
    """Elements along an axis that one copy may take, from multiples of that number on.

    0 where not even 4 bytes lie side by side.
    """
    counts = [access // dtype.bytes for access in ACCESSES]
    return next((count for count in counts if lies_whole(load, axis, count, slots)), 0)


def elements_at_once(place: Load, axis: Axis, slots: Slots) -> int:
    """Elements along an axis that one thread may store at once.

    At most 16 bytes of them, and as many as divide the axis.
    """
    most = ACCESSES[0] // slots.buffers[place.slot].dtype.bytes
    counts = [most >> halvings for halvings in range(most.bit_length())]
    return next(
        (count for count in counts if axis.extent % count == 0 and lies_whole(place, axis, count, slots)),
        1,
    )


def lies_whole(load: Load, axis: Axis, count: int, slots: Slots) -> bool:
    """Whether `count` elements along an axis lie side by side, aligned to all their bytes.

    They begin at any multiple of `count`.
    """
    offset = slots.address(load.slot, load.index)[1]
    others = [factor for atom, factor in offset.terms if atom != axis]
    numbers = (*others, offset.const, slots.buffers[load.slot].offset)
    return offset.coefficient(axis) == 1 and not any(number % count for number in numbers)


def _padded(extent: int, unit: int) -> int:
    return -(-extent // unit) * unit
