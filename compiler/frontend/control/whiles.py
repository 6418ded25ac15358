"""A loop as a region: its body walked once, on values of which only their types and shapes are known.

A value keeps its shape from one iteration to the next, or grows along some axes by as much in each: a decoder's cache,
to which every step appends. Such a value has the capacity of the last iteration from the start, and as its size a
number of iterations times the growth, with which the body is walked like any open axis (`open`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.control.regions import Piece, Walk, attempt, demand_same, there
from compiler.frontend.open.extent import Extent, Number, Numbers, high, is_open, low
from compiler.frontend.open.measured import truth
from compiler.frontend.open.values import Demand, measured
from compiler.frontend.reading.tensors import check_size
from compiler.frontend.scope import REFUSED
from compiler.ir.graph import Attr, Node
from compiler.ir.region import NUMBER, WHILE
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Unsupported

ENDLESS = 1 << 48
"""A trip count from here on is how exporters write that there is none."""

Iteration = Callable[[Sequence[int]], "list[int] | None"]
"""What a body's results are for its inputs: the number of the iteration, then carried values. None where a node of it
was refused."""
Growth = Mapping[tuple[int, int], Number]
"""By how much a carried value, by position, grows along an axis in each iteration; what is left out keeps its size."""


class Unbounded(Unsupported):
    """What a loop makes has no greatest size, because nothing says how often it runs."""


class Grows(Unbounded):
    """A carried value is larger after an iteration than before."""

    def __init__(self, by: Growth, reason: str) -> None:
        super().__init__(reason, "give it one shape, or one that grows by as much each time")
        self.by = by


@dataclass(frozen=True)
class Turns:
    """How often a loop runs: at most `trips` times, a number, a size, or the scalar of a value that `limit` is.

    going  the scalar (bool) that says whether the first iteration runs; None: it does
    """

    trips: Number | None = None
    limit: int | None = None
    going: int | None = None

    @property
    def most(self) -> int:
        """How many iterations may run; 0: any number."""
        return 0 if self.trips is None or high(self.trips) >= ENDLESS else high(self.trips)


def while_region(
    walk: Walk, turns: Turns, carried: Sequence[int | None], iteration: Iteration, *, decides: bool
) -> tuple[list[int], list[int]]:
    """The values carried out of the last iteration, and what all gave on a new first axis.

    decides  whether the first result of an iteration says if the next one runs

    Raises Unsupported where a value changes its shape in another way, or a node of the body was refused.
    """
    growth: dict[tuple[int, int], Number] = {}
    while True:
        try:
            with attempt(walk):
                return _While(walk, turns, growth).made(carried, iteration, decides=decides)
        except Grows as found:
            if not turns.most or not growth.keys().isdisjoint(found.by):
                raise
            growth |= found.by


@dataclass(frozen=True)
class _Extreme:
    """The least or greatest number, over the iterations, of which a body demands that it lies between two ends.

    A scalar (i64) that is carried: its values before the loop, before an iteration and after it.
    """

    demand: Demand
    before: int
    state: int
    after: int

    @staticmethod
    def of(piece: Piece, demand: Demand, op: str) -> _Extreme:
        """`op` is Min or Max. Before the loop it is a number that is allowed."""
        values, (_, scalar, low, _) = piece.values, demand
        state = piece.input(NUMBER, ())
        return _Extreme(demand, values.scalar(low), state, values.node(op, (state, scalar)))


class _While:
    def __init__(self, walk: Walk, turns: Turns, growth: Growth) -> None:
        self.walk, self.turns, self.growth = walk, turns, growth
        self.graph, self.values, self.source = walk.graph, walk.values, walk.values.source

    def made(
        self, carried: Sequence[int | None], iteration: Iteration, *, decides: bool
    ) -> tuple[list[int], list[int]]:
        """The node of a loop whose values grow as `growth` says. Raises Unsupported, and Grows where they grow more."""
        if any(id is not None and id < REFUSED for id in carried):
            raise Unsupported("it carries a sequence", "")
        values, shapes = self.values, [self.values.shape(there(id)) for id in carried]
        before = [self._roomy(at, there(id)) for at, id in enumerate(carried)]
        piece = Piece(self.walk)
        number = piece.input(NUMBER, ())
        turn = measured(values, number, 0, self.turns.most - 1, "turn") if self.growth else 0
        states = [piece.input(self.graph.type(id), shape) for id, shape in zip(before, shapes, strict=True)]
        seen = [self._seen(at, id, self._after(turn, at, shapes[at])) for at, id in enumerate(states)]
        found = self._found(iteration([number, *seen]))
        values.source = self.source
        head = self._condition(found.pop(0)) if decides else []
        after, rows = found[: len(before)], found[len(before) :]
        self._demand_growth(piece, turn, shapes, seen, after)
        kept = [at for at, (state, new) in enumerate(zip(seen, after, strict=True)) if new != state]
        stacked = [values.shape(id) for id in rows]
        piece.demand_closed(stacked)
        piece.demand_plain([*before, *after, *rows])
        watched = [_Extreme.of(piece, demand, op) for demand in piece.demanded() for op in ("Min", "Max")]
        extremes = [one.after for one in watched]
        results = [*head, *(self._cut(after[at], before[at]) for at in kept), *extremes, *map(values.at_run_time, rows)]
        same = {states[at]: before[at] for at in range(len(before)) if at not in kept}
        body, outer = piece.cut([number, *(states[at] for at in kept), *(one.state for one in watched)], results, same)
        moving = [*(before[at] for at in kept), *(one.before for one in watched)]
        attrs: dict[str, Attr] = {"body": body, "carried": len(moving), "decides": len(head), "most": self.turns.most}
        types = [*map(self.graph.type, moving), *self._columns(rows), NUMBER]
        limit = values.scalar(self.turns.trips) if isinstance(self.turns.trips, Extent) else self.turns.limit
        outputs = [self.graph.value(type, "") for type in types]
        self.graph.node(Node(WHILE, (limit, self.turns.going, *moving, *outer), tuple(outputs), attrs, self.source))
        for id, one in zip(outputs[len(kept) :], watched, strict=False):
            says, _, low, high = one.demand
            values.demand(id, low, high, says)
        count = self._count(outputs[-1], is_decided=bool(head))
        last = [*before]
        for at, id in zip(kept, outputs, strict=False):
            last[at] = self._sized(id, self._after(count, at, shapes[at]))
        stacks = outputs[len(moving) : -1]
        return last, [self._sized(id, (count, *shape)) for id, shape in zip(stacks, stacked, strict=True)]

    def _roomy(self, at: int, id: int) -> int:
        """A value before the loop, with room for what it grows to, zero there."""
        values = self.values
        shape = values.shape(id)
        room = tuple(map(high, self._after(self.turns.most, at, shape)))
        kind = self.graph.type(id)
        if room == kind.dims:
            return values.at_run_time(id)
        check_size(room, kind.dtype, f"what {self.source!r:.100} carries, at its greatest size,", values.limits)
        if not kind.elements:
            return values.constant(np.broadcast_to(np.zeros((), kind.dtype.numpy), room))
        return values.settled(values.at_run_time(id), room, padded=False)

    def _seen(self, at: int, id: int, shape: Numbers) -> int:
        """A carried value as the body sees it, without the room that only the last iteration fills."""
        values, axes = self.values, [axis for place, axis in self.growth if place == at]
        if not axes:
            return id
        values.shapes.pop(id, None)
        found = values.settled(id, shape, padded=False)
        if len(axes) == 1:
            values.roomy[found] = id, axes[0]
        return found

    def _after(self, turns: Number, at: int, shape: Numbers) -> Numbers:
        """The shape of a carried value after so many iterations, by its shape before all."""
        return tuple(dim + turns * self.growth.get((at, axis), 0) for axis, dim in enumerate(shape))

    def _demand_growth(
        self, piece: Piece, turn: Number, shapes: Sequence[Numbers], states: Sequence[int], after: Sequence[int]
    ) -> None:
        """Raises Grows where values are larger after an iteration than they should be, else Unsupported."""
        values, fresh = self.values, piece.fresh
        by: dict[tuple[int, int], Number] = {}
        for at, (state, new) in enumerate(zip(states, after, strict=True)):
            wanted, found = self._after(turn + 1, at, shapes[at]), values.shape(new)
            if len(wanted) != len(found) or self.graph.type(state).dtype is not self.graph.type(new).dtype:
                demand_same(values, state, new)
            for axis, (want, have) in enumerate(zip(wanted, found, strict=True)):
                more = have - want
                if want == have:
                    continue
                if low(more) < 0 or (isinstance(more, Extent) and more.sizes & fresh) or (at, axis) in self.growth:
                    demand_same(values, state, new)
                    raise Unsupported("a value that it carries grows by more each time", "give it one shape")
                by[at, axis] = more
        if by:
            (at, _), *_ = by
            shape = self.graph.type(states[at]).dims
            raise Grows(by, f"a value that it carries grows from {list(shape)}, and nothing says how often it runs")

    def _cut(self, id: int, before: int) -> int:
        """What an iteration makes of a value, in the room that it has."""
        id = self.values.at_run_time(id)
        room = self.graph.type(before).dims
        return id if self.graph.type(id).dims == room else self.values.settled(id, room, padded=False)

    def _condition(self, id: int) -> list[int]:
        """The scalar (bool) that says whether the next iteration runs; none where it does."""
        known = self.values.known(id)
        if known is None:
            return [truth(self.values, id)]
        if not bool(known.reshape(-1)[0]):
            raise Unsupported("its condition ends it after the first iteration", "export without the loop")
        return []

    def _columns(self, rows: Sequence[int]) -> list[TensorType]:
        if rows and not self.turns.most:
            raise Unbounded(
                "it stacks what its iterations give, and nothing says how many there may be", "give it a trip count"
            )
        kinds = [self.graph.type(id) for id in rows]
        columns = [TensorType(kind.dtype, (self.turns.most, *kind.dims)) for kind in kinds]
        for column in columns:
            what = f"what {self.source!r:.100} stacks, at its longest,"
            check_size(column.dims, column.dtype, what, self.values.limits)
        return columns

    def _count(self, ran: int, *, is_decided: bool) -> Number:
        """How many iterations ran: a scalar of the graph says so where data decide."""
        if self.turns.trips is None or is_decided or self.turns.going is not None:
            return measured(self.values, ran, 0, self.turns.most or ENDLESS, "iterations")
        return self.turns.trips

    def _sized(self, id: int, shape: Numbers) -> int:
        if is_open(shape):
            self.values.shapes[id] = shape
        return id

    def _found(self, results: list[int] | None) -> list[int]:
        if results is not None:
            return results
        refusals = self.walk.refusals
        why = f": {refusals[-1].reason} (at {refusals[-1].node!r:.60})" if refusals else ""
        raise Unsupported(f"a node of its body was refused{why}", refusals[-1].fix if refusals else "")
