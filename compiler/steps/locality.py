"""How far along one axis an operator reads for a stretch of its result, and whether it does the same everywhere on it.

All is derived from the definitions of operators as kernels, whose loads have quasi-affine indices: no operator has a
rule of its own. An index along the axis is followed as a function of one loop variable; it moves on by a whole number
of positions each `period` of that variable. So a result that begins a multiple of a *step* later reads everything as
much later, and computing a window of the axis gives what computing all of it gives, but near those ends of the window
that are no ends of the whole: there what the window lacks is missing, or padded.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.graph import Graph, Node
from compiler.ir.index import Atom, Axis, FloorDiv, Index, Indirect, Mod
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported

IDENTITIES = frozenset({"PadBeyond"})
"""Operators of graphs with open sizes that keep what lies within a size: of a window all does."""
MOST_PERIOD = 1 << 12
"""Of a loop variable, in which indices move on by a whole number: longer ones are not followed."""


class NotLocal(Exception):
    """Why a node does not compute a stretch of its result from one of its operands, in words that follow "it"."""


@dataclass(frozen=True)
class Track:
    """How a tensor lies along the axis that is followed.

    rate  its positions for each position of the output
    """

    axis: int
    rate: Fraction


@dataclass(frozen=True)
class Margins:
    """Positions of a window, from its beginning and from its end, that may differ from the same ones of the whole."""

    before: int
    after: int

    def join(self, other: Margins) -> Margins:
        """What may differ by either."""
        return Margins(max(self.before, other.before), max(self.after, other.after))


EXACT = Margins(0, 0)


@dataclass(frozen=True)
class _Read:
    """What a block reads along the axis: positions of a slot, or one that it compares with a bound.

    ends   for each step of a period the least and the greatest position
    drift  positions by which a period moves them, above 0
    least  the first position there is; None where that is of no matter
    most   the first behind those that there are; None where that is of no matter
    """

    slot: str
    ends: tuple[tuple[int, int], ...]
    drift: int
    least: int | None
    most: int | None

    @staticmethod
    def of(
        index: Index, variable: Axis, period: int, slot: str = "", least: int | None = 0, most: int | None = None
    ) -> _Read:
        """Of an index that moves with a variable, on by a whole number in each period of it."""
        ends = tuple(_at(index, variable, step) for step in range(period))
        return _Read(slot, ends, _drift(index, variable, period), least, most)

    def first(self, known: Margins) -> int:
        """The step from which on nothing is read before a margin."""
        if self.least is None:
            return 0
        begin, period = self.least + known.before, len(self.ends)
        needed = (step + period * -((low - begin) // self.drift) for step, (low, _) in enumerate(self.ends))
        return max(0, *(step - period + 1 for step in needed))

    def end(self, known: Margins) -> int:
        """The step from which on something is read behind a margin."""
        if self.most is None:
            return sys.maxsize
        last, period = self.most - 1 - known.after, len(self.ends)
        return min(step + period * ((last - high) // self.drift + 1) for step, (_, high) in enumerate(self.ends))


@dataclass(frozen=True)
class _Moved:
    """A block as it moves along the axis: the loop variable, the slots it stores, and what it reads along it.

    stride  positions of the result that one step of the variable stores
    period  steps after which every index has moved by a whole number of positions
    """

    variable: Axis
    stride: int
    period: int
    stores: tuple[str, ...]
    reads: tuple[_Read, ...]


@dataclass
class _Slots:
    """What is known of a kernel's slots: how those lie that are followed, and which are read as a whole."""

    kernel: Kernel
    tracks: dict[str, Track] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    def length(self, slot: str) -> int:
        """Positions along the axis of a slot that is followed."""
        return self.kernel.slots[slot].type.dims[self.tracks[slot].axis]

    def follow(self, slot: str, track: Track) -> None:
        """Raises NotLocal for a slot that is read otherwise elsewhere."""
        if slot in self.whole or self.tracks.setdefault(slot, track) != track:
            raise NotLocal("reads one operand at positions that move at different speeds")

    def read_whole(self, slot: str) -> None:
        """Raises NotLocal for a slot that is also followed."""
        if slot in self.tracks:
            raise NotLocal("reads all positions of the axis")
        self.whole.add(slot)


@dataclass(frozen=True)
class Local:
    """A node that is local along an axis: how its operands lie along it, and how margins of them become its own.

    tracks  by id of an operand that is followed
    whole   ids of operands, constants apart, that every stretch reads as a whole
    moduli  for values by id: what a step along them must be a multiple of
    """

    tracks: Mapping[int, Track]
    whole: frozenset[int]
    moduli: Mapping[int, int]
    margins: Callable[[Mapping[int, Margins]], Margins]


def local(graph: Graph, node: Node, tracks: Mapping[int, Track]) -> Local:
    """What a node does along the axis of its results that `tracks` has. Raises NotLocal with the reason."""
    if node.op in IDENTITIES:
        (result,) = node.outputs
        read = node.used[0]
        return Local({read: tracks[result]}, frozenset(), {}, lambda known: known[read])
    kernel = _kernel(graph, node)
    slots = _Slots(kernel)
    named = {f"x{place}": value for place, value in enumerate(node.used)}
    results = {f"y{place}": value for place, value in enumerate(node.outputs) if f"y{place}" in kernel.slots}
    slots.tracks.update({slot: tracks[value] for slot, value in results.items() if value in tracks})
    moved = [one for block in reversed(kernel.blocks) if (one := _moved(slots, block)) is not None][::-1]
    moduli: dict[int, int] = {}
    for one in moved:
        for slot in one.stores:
            if (value := results.get(slot)) is not None:
                moduli[value] = math.lcm(moduli.get(value, 1), one.stride * one.period)
    found: dict[int, Track] = {}
    for slot, value in named.items():
        if slot in slots.tracks and found.setdefault(value, slots.tracks[slot]) != slots.tracks[slot]:
            raise NotLocal("reads one operand at positions that move at different speeds")
    if both := found.keys() & graph.constants.keys():
        raise NotLocal(f"reads a constant, {graph.type(min(both))}, that has numbers of its own for each position")
    whole = frozenset(named[slot] for slot in slots.whole if slot in named) - graph.constants.keys()
    if found.keys() & whole:
        raise NotLocal("reads all positions of the axis")
    if not found:
        raise NotLocal("makes each position of nothing that has positions")
    ends = [slot for slot, value in results.items() if value in tracks]

    def margins(known: Mapping[int, Margins]) -> Margins:
        at = {slot: known[value] for slot, value in named.items() if slot in slots.tracks}
        for one in moved:
            its = _margins_of(one, at)
            at |= {slot: its.join(at.get(slot, EXACT)) for slot in one.stores}
        found = EXACT
        for slot in ends:
            found = found.join(at[slot])
        return found

    return Local(found, whole, moduli, margins)


def _kernel(graph: Graph, node: Node) -> Kernel:
    types = tuple(None if value is None else graph.type(value) for value in node.inputs)
    try:
        kernel = OPERATORS[node.op].define(node, types, tuple(graph.type(value) for value in node.outputs))
    except (Unsupported, KeyError):
        raise NotLocal("has no definition as loops") from None
    if not isinstance(kernel, Kernel):
        raise NotLocal("is no loop over positions, so that any result may depend on all of them")
    if kernel.sequential or any(block.sequential for block in kernel.blocks):
        raise NotLocal("goes step by step, each from the one before")
    return kernel


def _moved(slots: _Slots, block: Block) -> _Moved | None:
    """A block of a kernel whose stores are followed; None for one that stores what is read as a whole, or nothing."""
    stored = [store for store in block.stores if store.slot in slots.tracks]
    if not stored:
        if any(store.slot in slots.whole for store in block.stores):
            for slot in block.reads:
                slots.read_whole(slot)
        return None
    variable, stride = _variable(slots, stored[0])
    if any(_variable(slots, store) != (variable, stride) for store in stored[1:]) or len(stored) < len(block.stores):
        raise NotLocal("stores results that move at different speeds")
    rate = slots.tracks[stored[0].slot].rate
    exprs = [part for value in block.values for part in value.walk()]
    period = math.lcm(*(_period(index, variable) for part in exprs for index in part.indices))
    if period > MOST_PERIOD:
        raise NotLocal("reads at positions that repeat too rarely")
    inner = _Inner(variable, period)
    reads: list[_Read] = []
    for value in block.values:
        for part in inner.of(value).walk():
            if isinstance(part, Load):
                reads += _followed(slots, part, variable, period, rate / stride)
            elif isinstance(part, Position) and _drift(part.index, variable, period):
                raise NotLocal("computes with the number of the position")
    reads += inner.reads
    return _Moved(variable, stride, period, tuple(store.slot for store in stored), tuple(reads))


def _variable(slots: _Slots, store: Store) -> tuple[Axis, int]:
    """The loop variable that goes along the axis of a store, and how many positions it goes on by.

    Raises NotLocal unless each step stores the positions that follow those of the one before, and all steps store all.
    """
    axis = slots.tracks[store.slot].axis
    index = store.index[axis]
    terms = [(atom, factor) for atom, factor in index.terms if isinstance(atom, Axis)]
    if len(terms) < len(index.terms) or index.const or not terms:
        raise NotLocal("stores at positions that depend on more than a loop")
    variable, stride = max(terms, key=lambda term: term[1])
    span = 1
    for atom, factor in sorted(terms, key=lambda term: term[1])[:-1]:
        span = span * atom.extent if factor == span else 0
    if span != stride or stride * variable.extent != slots.length(store.slot):
        raise NotLocal("stores parts of the axis apart from others")
    if any(variable in other.axes for place, other in enumerate(store.index) if place != axis):
        raise NotLocal("goes along two axes of its result at once")
    return variable, stride


def _period(index: Index, variable: Axis) -> int:
    """Steps of a variable after which an index has moved by a whole number whatever else is in it."""
    found = 1
    for atom, _ in index.terms:
        if isinstance(atom, FloorDiv | Mod) and variable in atom.index.axes:
            found = math.lcm(found, atom.divisor * _period(atom.index, variable))
    return found


def _at(index: Index, variable: Axis, step: int) -> tuple[int, int]:
    """The least and the greatest value of an index at a step of a variable."""
    return index.substitute({variable: Index.of(step)}).range


def _drift(index: Index, variable: Axis, period: int) -> int:
    """By how much an index moves in a period. Raises NotLocal where it is read from a tensor that moves."""
    if any(isinstance(atom, Indirect) and variable in atom.expr.axes for atom in _atoms(index)):
        return 0
    return _at(index, variable, period)[0] - _at(index, variable, 0)[0] if variable in index.axes else 0


def _atoms(index: Index) -> Iterator[Atom]:
    for atom, _ in index.terms:
        yield atom
        if isinstance(atom, FloorDiv | Mod):
            yield from _atoms(atom.index)


def _followed(slots: _Slots, load: Load, variable: Axis, period: int, rate: Fraction) -> Iterable[_Read]:
    """What a load reads along the axis; nothing of a slot that it reads as a whole.

    rate  positions of the output for each step of the variable, inverted: steps per position
    """
    drifts = [_drift(index, variable, period) for index in load.index]
    moving = [place for place, drift in enumerate(drifts) if drift]
    if not moving:
        slots.read_whole(load.slot)
        return ()
    if len(moving) > 1 or drifts[moving[0]] < 0:
        raise NotLocal("reads backwards" if len(moving) == 1 else "goes along two axes of an operand at once")
    (place,) = moving
    slots.follow(load.slot, Track(place, rate * drifts[place] / period))
    return (_Read.of(load.index[place], variable, period, load.slot, most=slots.length(load.slot)),)


MIRRORED: Mapping[str, str] = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "min": "min", "max": "max"}


@dataclass
class _Inner:
    """The values of a block as they are in the middle of the axis, and up to which steps that holds (`reads`).

    There a position compares with an end of a tensor in one way only, which decides paddings, clamped positions and how
    many elements are counted.
    """

    variable: Axis
    period: int
    reads: list[_Read] = field(default_factory=list)

    def of(self, value: Expr) -> Expr:
        """A value there. Raises NotLocal where comparisons differ in the middle, or with what is computed."""
        return value.transform(self._rewritten)

    def _rewritten(self, value: Expr) -> Expr:
        if isinstance(value, Load):
            return value.rebuild((), tuple(map(_direct, value.index)))
        if isinstance(value, Where) and isinstance(value.condition, Const):
            return value.then if value.condition.value else value.otherwise
        if isinstance(value, Apply) and value.function in ("and", "or"):
            return _decided(value)
        if isinstance(value, Apply) and value.function in MIRRORED:
            return self._compared(value)
        return value

    def _compared(self, value: Apply) -> Expr:
        left, right = value.args
        function = value.function
        if isinstance(left, Const):
            left, right, function = right, left, MIRRORED[function]
        if not isinstance(left, Position) or not _drift(left.index, self.variable, self.period):
            return value
        if not isinstance(right, Const):
            raise NotLocal("compares the number of the position with something that is computed")
        bound = int(right.value) + (function in ("gt", "le"))
        is_least = self._is_least(left.index, bound)
        if function in ("min", "max"):
            return left if is_least == (function == "max") else right
        return Const(is_least == (function in ("ge", "gt")), DType.BOOL)

    def _is_least(self, index: Index, bound: int) -> bool:
        """Whether an index is at least `bound` in the middle, for all else that is in it; else below."""
        steps = self.variable.extent
        middle = range((steps - 1) // 2, min((steps - 1) // 2 + self.period, steps))
        ends = [_at(index, self.variable, step) for step in middle]
        if min(low for low, _ in ends) >= bound:
            self._demand(index, bound, None)
            return True
        if max(high for _, high in ends) < bound:
            self._demand(index, None, bound)
            return False
        raise NotLocal("does one thing or the other by the number of the position")

    def _demand(self, index: Index, least: int | None, most: int | None) -> None:
        if _drift(index, self.variable, self.period) < 0:
            index = index * -1
            least, most = None if most is None else 1 - most, None if least is None else 1 - least
        self.reads.append(_Read.of(index, self.variable, self.period, least=least, most=most))


def _decided(value: Apply) -> Expr:
    """A conjunction or disjunction without those of its arguments that are constant."""
    is_and = value.function == "and"
    left = [one for one in value.args if not isinstance(one, Const)]
    if any(isinstance(one, Const) and bool(one.value) != is_and for one in value.args):
        return Const(not is_and, DType.BOOL)
    return value if len(left) == len(value.args) else left[0] if left else Const(is_and, DType.BOOL)


def _direct(index: Index) -> Index:
    """An index in which a position that is computed, and is one, stands as that."""
    total = Index.of(index.const)
    for atom, factor in index.terms:
        inner = Index.of(atom)
        if isinstance(atom, Indirect) and isinstance(atom.expr, Position):
            inner = atom.expr.index
        elif isinstance(atom, FloorDiv):
            inner = _direct(atom.index) // atom.divisor
        elif isinstance(atom, Mod):
            inner = _direct(atom.index) % atom.divisor
        total = total + inner * factor
    return total


def _margins_of(moved: _Moved, known: Mapping[str, Margins]) -> Margins:
    """The margins of what a block stores. Raises NotLocal where no position is free of them."""
    steps = moved.variable.extent
    before = max((read.first(known.get(read.slot, EXACT)) for read in moved.reads), default=0)
    end = min((read.end(known.get(read.slot, EXACT)) for read in moved.reads), default=steps)
    if before >= end or before >= steps:
        raise NotLocal(f"reads further than the {steps * moved.stride} positions that there are")
    return Margins(before * moved.stride, max(steps - end, 0) * moved.stride)
