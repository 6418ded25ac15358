"""Kernels seen as attention: y = softmax(map(Q K^T)) V, row by row, then a map over y."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from compiler.forms.normal_form import contract_temps, without_unit_axes
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Store
from compiler.ir.tensor import DType

MIN_QUERIES = 4
"""Rows that repay packing the keys and values."""
MOST_FEW = 16
"""Rows that are few: what is read of the keys and values takes longer than what is computed with it."""
RUN = 128
"""Neighbouring keys that go to one part where keys are cut into parts."""
RESULTS = (DType.F32, DType.U8, DType.I8)
"""What the maps after y may give: a quantised model rounds it to bytes."""
LEFT_OUT = Const(float("-inf"), DType.F32)


@dataclass(frozen=True)
class Heads:
    """What both products of attention run over.

    batch    shared axes that keys or values depend on, and that of parts; `rows` those that they do not: the queries,
             the last one innermost
    keys     the axis j of the scores; `depth` the axes that a score is summed over
    columns  the axis e of the values
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    keys: Axis
    depth: tuple[Axis, ...]
    columns: Axis

    @property
    def batches(self) -> int:
        """Products of the batch axes' extents: how many attentions the kernel computes."""
        return prod(axis.extent for axis in self.batch)

    @property
    def queries(self) -> int:
        """Rows of the scores of one batch element."""
        return prod(axis.extent for axis in self.rows)

    @property
    def deep(self) -> int:
        """Elements of a query: what Q K^T sums over."""
        return prod(axis.extent for axis in self.depth)


@dataclass(frozen=True)
class Part:
    """Of the keys every so manieth run of RUN, for each place of an axis; y is not divided by the sum of the weights.

    The largest score and the sum are results too, made by blocks of their own. Of a part whose scores are all -infinity
    or what a mask makes them (below ABSORBS of `compiler.forms.key_bounds`), all three may be those of no key.
    """

    axis: Axis
    largest: Block
    total: Block


@dataclass(frozen=True)
class Attention(Heads):
    """A kernel in the form of attention.

    scores   the block of Q K^T; `maps` what follows on each score; `mixed` the block with V; `epilogue` what follows on
             each y
    part     None where y is attention over all keys
    """

    kernel: Kernel
    scores: Block
    maps: tuple[Block, ...]
    mixed: Block
    epilogue: tuple[Block, ...]
    q: Expr
    k: Expr
    v: Expr
    part: Part | None = None

    @property
    def most_keys(self) -> int:
        """Keys of a batch element, at most."""
        runs = -(-self.keys.extent // RUN)
        return self.keys.extent if self.part is None else min(-(-runs // self.part.axis.extent) * RUN, self.keys.extent)


def softmax_axis(kernel: Kernel) -> Axis | None:
    """The axis of the input along which a kernel is nothing but a softmax in fp32; None for any other kernel."""
    if len(kernel.blocks) != 4 or kernel.sequential or len(kernel.inputs) != 1 or len(kernel.outputs) != 1:
        return None
    over = softmax_of(kernel.blocks)
    if (
        over is None
        or over[0].slot != kernel.inputs[0].name
        or kernel.blocks[3].stores[0].slot != kernel.outputs[0].name
    ):
        return None
    return over[1]


def softmax_of(blocks: Sequence[Block]) -> tuple[Load, Axis] | None:
    """The argument and the axis, if four blocks are: largest, exponentials of distances, their sum, the quotients."""
    largest, powers, total, quotients = blocks
    if (largest.monoid, powers.monoid, total.monoid, quotients.monoid) != ("max", "", "sum", ""):
        return None
    if any(block.accumulator not in (None, DType.F32) for block in blocks):
        return None
    if len(largest.reduction) != 1 or largest.axes or total.axes or total.reduction != largest.reduction:
        return None
    (over,) = largest.reduction
    if powers.axes != (over,) or quotients.axes != (over,) or any(len(block.values) != 1 for block in blocks):
        return None
    x, most, power, sum_ = largest.values[0], *(stored(block) for block in (largest, powers, total))
    if not isinstance(x, Load) or x.type is not DType.F32 or power.index != x.index:
        return None
    wanted = (
        Apply("exp", (Apply("sub", (x, most)),)),
        power,
        Apply("mul", (power, Apply("reciprocal", (sum_,)))),
    )
    if (powers.values[0], total.values[0], quotients.values[0]) != wanted or quotients.stores[0].index != x.index:
        return None
    return x, over


def own_scores(x: Load, keys: Axis, part: Axis) -> Expr:
    """A score, or -infinity where its key is of another part."""
    run = Position(Index.of(keys) // RUN % part.extent)
    return Where(Apply("eq", (run, Position(Index.of(part)))), x, LEFT_OUT)


def partial_softmax(x: Load, keys: Axis, stores: Sequence[Store]) -> tuple[Block, Block, Block, Block]:
    """Softmax without the division: the largest, what is taken from each, powers, their sum, where `stores` say.

    Where all are -infinity the powers are 0.
    """
    most, shift, power = (Load(store.slot, store.index, DType.F32) for store in stores[:3])
    return (
        Block((), (x,), (stores[0],), (keys,), "max", DType.F32),
        Block((), (Where(Apply("eq", (most, LEFT_OUT)), Const(0.0, DType.F32), most),), (stores[1],)),
        Block((keys,), (Apply("exp", (Apply("sub", (x, shift)),)),), (stores[2],)),
        Block((), (power,), (stores[3],), (keys,), "sum", DType.F32),
    )


def _part_of(own: Block, softmax: Sequence[Block]) -> tuple[Load, Axis, Part] | None:
    """The argument, the axis and the part, if blocks are `own_scores` and their `partial_softmax`."""
    (value, *more), keys = own.values, softmax[0].reduction
    if more or not isinstance(value, Where) or not isinstance(value.then, Load) or len(keys) != 1:
        return None
    found = [axis for axis in value.condition.axes if axis not in keys]
    if len(found) != 1 or value != own_scores(value.then, keys[0], found[0]):
        return None
    if (*softmax,) != partial_softmax(stored(own), keys[0], [block.stores[0] for block in softmax]):
        return None
    return value.then, keys[0], Part(found[0], softmax[0], softmax[3])


def stored(block: Block) -> Load:
    """What a block stores, read back."""
    return Load(block.stores[0].slot, block.stores[0].index, DType.F32)


def as_attention(kernel: Kernel | Routine) -> Attention | None:
    """A kernel in the form of attention, or None when it is not one in fp32; results may be rounded to bytes.

    Heads of one row each, that of a single query, are in that form for `as_few_queries` alone.
    """
    view = as_any_attention(kernel)
    return view if view is not None and view.rows else None


def as_any_attention(kernel: Kernel | Routine) -> Attention | None:
    """A kernel in the form of attention of any number of rows, or None."""
    view = _attention(kernel)
    return view if view is not None and view.part is None else None


def as_few_queries(kernel: Kernel | Routine) -> Attention | None:
    """A kernel in the form of attention of MOST_FEW rows at most, perhaps over a part of the keys.

    Where there is but one row `rows` is empty.
    """
    view = _attention(kernel)
    return view if view is not None and view.queries <= MOST_FEW else None


def _attention(kernel: Kernel | Routine) -> Attention | None:
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return None
    kernel = without_unit_axes(contract_temps(kernel))
    place = next((at for at, block in enumerate(kernel.blocks) if block.monoid == "max"), 0)
    if not place or len(kernel.blocks) < place + 5:
        return None
    scores, *maps = kernel.blocks[:place]
    softmax = kernel.blocks[place : place + 4]
    mixed, *epilogue = kernel.blocks[place + 4 :]
    over, part = softmax_of(softmax), None
    if over is None and maps and not epilogue and (found := _part_of(maps[-1], softmax)):
        over, part, maps = found[:2], found[2], maps[:-1]
    if over is None or not is_product(scores, 1) or not is_product(mixed, 1) or mixed.reduction != (over[1],):
        return None
    if any(block.monoid or any(v.dtype is not DType.F32 for v in block.values) for block in maps):
        return None
    if any(block.monoid or any(v.dtype not in RESULTS for v in block.values) for block in epilogue):
        return None
    keys, columns = over[1], mixed.axes[0]
    weights = stored(softmax[2 if part else 3])
    if any(block.axes != (keys,) for block in (scores, *maps)) or any(b.axes != (columns,) for b in epilogue):
        return None
    if over[0] != stored((scores, *maps)[-1]):
        return None
    q, k = sorted(scores.values[0].children, key=lambda side: keys in side.axes)
    p, v = sorted(mixed.values[0].children, key=lambda side: side != weights)
    if p != weights or keys in q.axes or keys not in k.axes or columns not in v.axes:
        return None
    batch, rows = batch_and_rows(kernel, k, v, () if part is None else (part.axis,))
    if any(slot.type.rank > 1 for slot in kernel.temps):
        return None
    own = tuple(maps), mixed, tuple(epilogue)
    return Attention(batch, rows, keys, scores.reduction, columns, kernel, scores, *own, q, k, v, part)


def batch_and_rows(
    kernel: Kernel, k: Expr, v: Expr, parts: tuple[Axis, ...] = ()
) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The shared axes that keys or values depend on, or that are `parts` of them, and those that they do not."""
    batch = k.axes | v.axes | {*parts}
    rows = tuple(axis for axis in kernel.shared if axis not in batch)
    return tuple(axis for axis in kernel.shared if axis not in rows), rows


def apart(operand: Expr, axes: Collection[Axis]) -> tuple[Expr, Expr | None]:
    """An operand of a product as what differs along axes, and the factor that does not, such as a scale of its rows."""
    if isinstance(operand, Apply) and operand.function == "mul" and operand.dtype is DType.F32:
        along, fixed = sorted(operand.args, key=lambda side: side.axes.isdisjoint(axes))
        if fixed.axes.isdisjoint(axes) and fixed.loads and not along.axes.isdisjoint(axes):
            return along, fixed
    return operand, None


def is_product(block: Block, own: int, dtype: DType = DType.F32) -> bool:
    """A sum of products in a dtype, with that many axes of its own."""
    value = block.values[0]
    return (
        block.monoid == "sum"
        and block.accumulator is dtype
        and bool(block.reduction)
        and len(block.axes) == own
        and isinstance(value, Apply)
        and value.function == "mul"
        and value.dtype is dtype
    )
