"""The working form of fusion: kernels bound to graph values, in execution order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.forms.normal_form import rename_slots
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.graph import Graph
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.tensor import Layout, TensorType

FIRST_FRESH = 1 << 24
"""From here on values are fusion's own: a model has fewer."""
MAX_FAMILY = 10
"""Operators that a kernel's name lists."""


@dataclass(frozen=True)
class Op:
    """A kernel and the values bound to its input and output slots."""

    kernel: Kernel | Routine
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sources: tuple[str, ...]


class Ops:
    """Ops in execution order, and which make and read each value; an op is the one object, not what equals it.

    An op keeps its rank while others come and go, so that a change costs what it changes.
    """

    def __init__(self, ops: Iterable[Op]) -> None:
        self._ops: list[Op] = []
        self._ranks: dict[int, int] = {}
        self._makers: dict[int, Op] = {}
        self._readers: dict[int, list[Op]] = {}
        self.unread: set[int] = set()
        """Values that are made and that no op reads."""
        for rank, op in enumerate(ops):
            self._add(op, rank)

    def __iter__(self) -> Iterator[Op]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __contains__(self, op: object) -> bool:
        return id(op) in self._ranks

    def copy(self) -> Ops:
        """The same ops in an order of their own."""
        return Ops(self._ops)

    def maker(self, value: int) -> Op | None:
        """The op that makes a value."""
        return self._makers.get(value)

    def readers(self, value: int) -> list[Op]:
        """The ops that read a value, in order."""
        return list(self._readers.get(value, ()))

    def is_between(self, op: Op, first: Op, last: Op) -> bool:
        """Whether an op stands after one and before another."""
        return self._ranks[id(first)] < self._ranks[id(op)] < self._ranks[id(last)]

    def replace(self, old: Sequence[Op], new: Op, place: Op) -> None:
        """Puts `new` in the place of one of `old`, and drops these."""
        rank = self._ranks[id(place)]
        for op in old:
            self.remove(op)
        self._add(new, rank)

    def remove(self, op: Op) -> None:
        """Drops an op."""
        del self._ops[bisect_left(self._ops, self._rank(op), key=self._rank)]
        for value in set(op.inputs):
            left = [other for other in self._readers[value] if other is not op]
            self._readers[value] = left
            if not left and value in self._makers:
                self.unread.add(value)
        for value in op.outputs:
            del self._makers[value]
            self.unread.discard(value)
        del self._ranks[id(op)]

    def _add(self, op: Op, rank: int) -> None:
        self._ranks[id(op)] = rank
        insort(self._ops, op, key=self._rank)
        for value in set(op.inputs):
            insort(self._readers.setdefault(value, []), op, key=self._rank)
            self.unread.discard(value)
        for value in op.outputs:
            self._makers[value] = op
            if not self._readers.get(value):
                self.unread.add(value)

    def _rank(self, op: Op) -> int:
        return self._ranks[id(op)]


@dataclass
class Draft:
    """All ops and the types of values.

    `views` says for a value that no op makes which values' memory it is: a window of one, or the slices that make up a
    Concat; those must be stored. `like` says of a value that is not the model's which one it lies like, `layouts` how
    values lie that do not lie plainly, once that is chosen.
    """

    graph: Graph
    ops: Ops
    types: dict[int, TensorType]
    views: dict[int, tuple[int, ...]] = field(default_factory=dict)
    like: dict[int, int] = field(default_factory=dict)
    layouts: Mapping[int, Layout] = field(default_factory=dict)

    def fresh(self, type: TensorType, like: int | None = None) -> int:
        """A value of fusion's own that lies like another, or plainly."""
        value = FIRST_FRESH + len(self.like)
        self.types[value] = type
        self.like[value] = value if like is None else self.like.get(like, like)
        return value

    @property
    def kept(self) -> frozenset[int]:
        """Values that must be stored whatever fusion does."""
        return frozenset(self.graph.outputs) | {part for parts in self.views.values() for part in parts}

    @property
    def plain(self) -> frozenset[int]:
        """Values that must fill a plain, contiguous buffer of their own: Routines are written for no other."""
        routines = [op for op in self.ops if isinstance(op.kernel, Routine)]
        return frozenset(value for op in routines for value in (*op.inputs, *op.outputs))

    def needs(self, values: Iterable[int]) -> set[int]:
        """The values whose memory is read when `values` are: themselves, and through views what they are windows of."""
        found: set[int] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting += self.views.get(value, ())
        return found

    def windows(self, values: Iterable[int]) -> set[int]:
        """The values through which the memory of `values` is read: themselves, and views of them."""
        found = set(values)
        while more := {view for view, parts in self.views.items() if view not in found and not found.isdisjoint(parts)}:
            found |= more
        return found

    def place_of_both(self, producer: Op, consumer: Op) -> Op | None:
        """In whose place an op that does both may stand; None in neither's.

        In the consumer's when nothing between reads the producer, in the producer's when it has all that the consumer
        needs.
        """
        ops = self.ops
        read = (reader for value in self.windows(producer.outputs) for reader in ops.readers(value))
        if not any(ops.is_between(reader, producer, consumer) for reader in read):
            return consumer
        made = (maker for value in self.needs(consumer.inputs) if (maker := ops.maker(value)) is not None)
        return None if any(ops.is_between(maker, producer, consumer) for maker in made) else producer

    def drop_dead(self) -> None:
        """Removes ops none of whose values is read or kept."""
        kept = self.kept
        waiting = self.ops.unread - kept
        while waiting:
            op = self.ops.maker(waiting.pop())
            if op is not None and self.ops.unread.issuperset(op.outputs) and kept.isdisjoint(op.outputs):
                self.ops.remove(op)
                waiting |= self.ops.unread & set(op.inputs)


def bind(kernel: Kernel, inputs: Mapping[str, int], outputs: Mapping[str, int], sources: tuple[str, ...]) -> Op:
    """A kernel whose slots get their canonical names: x0.. by first use, t0.., y0...

    Values bound to several slots share one.
    """
    names: dict[str, str] = {}
    slots: list[Slot] = []
    values: list[int] = []
    used = [load.slot for block in kernel.blocks for value in block.values for load in value.loads]
    used += [
        load.slot
        for block in kernel.blocks
        for store in block.stores
        for i in store.index
        for load in Position(i).loads
    ]
    by_name = {slot.name: slot for slot in kernel.inputs}
    for name in dict.fromkeys(name for name in used if name in by_name):
        if inputs[name] not in values:
            slots.append(Slot(f"x{len(slots)}", by_name[name].type))
            values.append(inputs[name])
        names[name] = f"x{values.index(inputs[name])}"
    temps = [Slot(f"t{at}", slot.type) for at, slot in enumerate(kernel.temps)]
    names.update({slot.name: temp.name for slot, temp in zip(kernel.temps, temps, strict=True)})
    outs = [Slot(f"y{at}", slot.type) for at, slot in enumerate(kernel.outputs)]
    names.update({slot.name: out.name for slot, out in zip(kernel.outputs, outs, strict=True)})
    renamed = rename_slots(kernel, names)
    result = replace(renamed, inputs=tuple(slots), temps=tuple(temps), outputs=tuple(outs))
    return Op(result, tuple(values), tuple(outputs[slot.name] for slot in kernel.outputs), sources)


def joined_family(first: str, second: str) -> str:
    """The name of two kernels made one; long chains are named by their ends."""
    whole = f"{first}+{second}".split("+")
    return "+".join(whole if len(whole) <= MAX_FAMILY else [*whole[: MAX_FAMILY - 3], "...", *whole[-2:]])


def only_block(op: Op) -> Block | None:
    """The block of a plain map: one block, no reduction, no loops of its own, one output; None for anything else."""
    kernel = op.kernel
    if not isinstance(kernel, Kernel) or len(kernel.blocks) != 1 or kernel.sequential or kernel.temps:
        return None
    block = kernel.blocks[0]
    return block if not block.monoid and not block.axes and len(block.stores) == 1 else None


def store_axes(store: Store, dims: tuple[int, ...]) -> tuple[Axis | None, ...] | None:
    """The axis of each dimension if a store covers its tensor in order, once (None: extent 1); None if it does not."""
    axes: list[Axis | None] = []
    for index, extent in zip(store.index, dims, strict=True):
        if extent == 1 and index == Index.of(0):
            axes.append(None)
            continue
        axis = index.terms[0][0] if len(index.terms) == 1 else None
        if not isinstance(axis, Axis) or index != Index.of(axis) or axis.extent != extent or axis in axes:
            return None
        axes.append(axis)
    return tuple(axes)


def is_copy(op: Op) -> Load | None:
    """The load of a map that only moves elements; None for one that computes."""
    block = only_block(op)
    return block.values[0] if block is not None and isinstance(block.values[0], Load) else None


def work(expr: Expr) -> int:
    """How much an expression computes per element: arithmetic counts 1, division 4, transcendental functions 12."""
    total = 0
    for part in expr.walk():
        if isinstance(part, Apply):
            total += WORK.get(part.function, 1)
    return total


WORK: Mapping[str, int] = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "mod", "fmod"), 4),
    **dict.fromkeys(("exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "log1p", "expm1"), 12),
}


def size(expr: Expr) -> int:
    """Number of forms in an expression."""
    return sum(1 for _ in expr.walk())


def is_guarded_copy(expr: Expr) -> bool:
    """A load, or a load where a position permits and a constant elsewhere: a Pad, a Slice, a Resize by repetition."""
    if isinstance(expr, Where) and not expr.condition.loads:
        return is_guarded_copy(expr.then) and isinstance(expr.otherwise, Const)
    return isinstance(expr, Load)
