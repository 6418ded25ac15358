"""Loop and Scan: as a region where data or a size end them, or they are long; else written out.

What is written out are their bodies, one after another, as often as they run or may run. Where data or a size decide
how often that is and the loop is no region (`regions`), each iteration has a flag (`open.loops`).

What an iteration reads that is known (its number, a condition, shapes) is folded as everywhere else, so carried values
may change their shape from one iteration to the next, and a condition that the body computes from what is known ends
the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from compiler.frontend.control.counted import counted
from compiler.frontend.control.regions import Walk as Attempted
from compiler.frontend.control.regions import attempt
from compiler.frontend.control.whiles import Turns, Unbounded, while_region
from compiler.frontend.open.data_dependent import give, most_of, size_by_data
from compiler.frontend.open.extent import Extent, Number, high, is_open, least
from compiler.frontend.open.loops import LONGEST, Iterations, TooLong
from compiler.frontend.open.measured import truth
from compiler.frontend.open.site import OpenSite, same
from compiler.frontend.open.values import as_number
from compiler.frontend.reading.model import Body, Call, Expansion, Foreign, quoted
from compiler.frontend.scope import REFUSED, Scope
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]
MOST_WRITTEN = 512
"""Calls that a Loop has when it is written out though it could be a region: more take longer to compile than to run."""


class Walk(Attempted, Protocol):
    """What unrolling asks of the walk over the model."""

    regions: bool

    def body(self, body: Body, scope: Scope) -> None:
        """Walk over the calls of a body, whose inputs the scope already binds."""
        ...

    def count(self) -> None:
        """One more call. Raises ModelTooLarge past a limit."""
        ...

    def expand(self, call: Call, ids: Ids, scope: Scope, expansion: Expansion, prefix: str | None) -> Ids:
        """Walk over the piece of program that stands for a call with inputs `ids`; the ids of its results."""
        ...

    def how_to_fix(self, id: int) -> str:
        """Which inputs to give values for, so that a value is known."""
        ...


def loop(walk: Walk, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Loop: inputs (trip count, condition, carried ...); results (carried ..., stacked ...).

    The latter are values of every iteration, stacked on a new first axis.
    """
    body = _body(call, scope)
    if len(body.inputs) != len(ids) or len(body.outputs) < max(len(ids) - 1, len(call.outputs) + 1):
        raise Unsupported("its body does not fit its inputs and outputs", "export the model again")
    turns = _turns(walk, body, ids, scope)
    is_short = isinstance(turns.trips, int) and turns.trips <= LONGEST
    is_short = is_short and high(turns.trips or 0) * len(body.calls) <= MOST_WRITTEN
    ends_itself = turns.trips is None and ids[0] is None
    return _region_or(
        walk,
        lambda: _looped(walk, call, body, ids, scope, turns),
        lambda by_data: _written_loop(walk, call, body, ids, scope, turns, by_data),
        is_short=is_short or (ends_itself and _condition(walk, ids[1] if len(ids) > 1 else None)[1] is None),
    )


@dataclass(frozen=True)
class _Turns:
    """How often a Loop runs at most, None where nothing says so; whether its condition says no more than that."""

    trips: Number | None
    counts: bool


def _turns(walk: Walk, body: Body, ids: Ids, scope: Scope) -> _Turns:
    """By the trip count, and by a condition that counts."""
    trips = _trips(walk, ids[0])
    is_by_data = trips is None and ids[0] is not None
    by_condition = None if is_by_data else counted(walk, body, ids, scope)
    if by_condition is None:
        return _Turns(trips, counts=False)
    return _Turns(by_condition if trips is None else least(trips, by_condition), counts=True)


def _region_or(walk: Walk, region: Callable[[], Ids], written: Callable[[bool], Ids], *, is_short: bool) -> Ids:
    """A loop as a region, or written out: in this order unless it is short and nothing that data say ends it.

    Raises what writing it out raises, with the reason why it is no region.
    """
    if not walk.regions:
        try:
            return written(True)
        except TooLong as no:
            raise Unsupported(
                no.reason, f"{no.fix}; or compile for a CPU or a GPU, whose artifacts decide that"
            ) from no
    if is_short:
        try:
            with attempt(walk):
                return written(False)
        except ByData:
            pass
    try:
        with attempt(walk):
            return region()
    except Unsupported as no:
        why = no
    try:
        return written(True)
    except Unsupported as no:
        raise Unsupported(
            f"{no.reason}; it is no loop of the artifact either, since {why.reason}", fixes(no, why)
        ) from no


def fixes(*each: Unsupported) -> str:
    """What mends any of them."""
    return "; or ".join(dict.fromkeys(one.fix for one in each if one.fix))


class ByData(Unsupported):
    """Data end a loop that was to be written out without flags."""


def _looped(walk: Walk, call: Call, body: Body, ids: Ids, scope: Scope, turns: _Turns) -> Ids:
    """A Loop as a region: whole, or after its first iteration, which gives what it carries its shapes.

    Raises Unsupported.
    """
    known, going = _condition(walk, ids[1] if len(ids) > 1 else None)
    if not known:
        raise Unsupported("it does not run at all", "")
    try:
        with attempt(walk):
            return _region(walk, call, body, ids, scope, turns, going)
    except Unbounded:
        raise
    except Unsupported as no:
        runs_once = going is None and (ids[0] is None or (isinstance(turns.trips, int) and turns.trips > 1))
        if not runs_once or len(call.outputs) > len(ids) - 2:
            raise
        try:
            return _after_the_first(walk, call, body, ids, scope, turns)
        except Unsupported:
            raise no from None


def _after_the_first(walk: Walk, call: Call, body: Body, ids: Ids, scope: Scope, turns: _Turns) -> Ids:
    """A Loop that runs at least once and stacks nothing: an iteration written out, then a region of the others.

    Exporters give what a loop only writes a placeholder before it, such as a scalar. Raises Unsupported.
    """
    given = [walk.graph.constant(np.array(start), "") for start in (np.int64(0), True)]
    found = _iteration(walk, call, body, scope, 0, [*given, *ids[2:]])
    if found is None:
        raise Unsupported("a node of its first iteration was refused", "")
    carried = found[1 : len(ids) - 1]
    known, going = (True, None) if turns.counts else _condition(walk, found[0])
    if not known:
        raise Unsupported("its condition ends it after the first iteration", "export without the loop")
    left = _Turns(None if turns.trips is None else turns.trips - 1, turns.counts)
    return _region(walk, call, body, (*ids[:2], *carried), scope, left, going, first=1)


def _region(
    walk: Walk, call: Call, body: Body, ids: Ids, scope: Scope, turns: _Turns, going: int | None, *, first: int = 0
) -> Ids:
    """A Loop whose first iteration has the number `first`, and runs if the scalar `going` is true; None: it does."""
    on = walk.graph.constant(np.array(True), "")

    def iteration(inputs: Sequence[int]) -> list[int] | None:
        number, *states = inputs
        if first:
            number = walk.values.node("Add", (number, walk.values.scalar(first)))
        found = _iteration(walk, call, body, scope, "body", [number, on, *states])
        if found and turns.counts:
            found[0] = on
        return _read(call, found, 1 + len(states), len(states))

    start = None if going is None else truth(walk.values, going)
    trips, limit = turns.trips, None if first else _limit(walk, ids[0])
    try:
        last, stacks = while_region(walk, Turns(trips, limit, start), ids[2:], iteration, decides=True)
    except Unbounded:
        if limit is None:
            raise
        walk.values.source = scope.source(call.source)
        trips = _trip_count(OpenSite(walk.values, call.op, ids, {}, len(call.outputs)), limit)
        last, stacks = while_region(walk, Turns(trips, None, start), ids[2:], iteration, decides=True)
    return _results(call, last, stacks)


def _trip_count(site: OpenSite, limit: int) -> Number:
    """A trip count that data say, up to a bound."""
    give(site, 0, [3], [1], [0])
    count = site.values.node("Max", (limit, site.values.scalar(0)))
    return size_by_data(site, count, most_of(site, 1), "the number of iterations")


def _limit(walk: Walk, id: int | None) -> int | None:
    """The scalar (i64) that a trip count is which only data say."""
    if id is None or walk.values.known(id) is not None:
        return None
    kind, values = walk.graph.type(id), walk.values
    if kind.elements != 1 or not kind.dtype.is_integer:
        raise Unsupported(f"its trip count is {kind}", "give a scalar i64")
    found = values.cast(id, DType.I64)
    return found if kind.rank == 0 else values.reshape(found, ())


def _written_loop(
    walk: Walk, call: Call, body: Body, ids: Ids, scope: Scope, counted_turns: _Turns, by_data: bool
) -> Ids:
    """A Loop written out. Raises ByData unless data may end it."""
    carried: list[int | None] = list(ids[2:])
    known, going = _condition(walk, ids[1] if len(ids) > 1 else None)
    trips = counted_turns.trips
    if trips is None and ids[0] is not None:
        _known_scalar(walk, ids[0], "its trip count")
    turns = Iterations(walk.values, trips, going, going is not None)
    rows: list[list[int]] = []
    while known and turns.may_run:
        if going is not None and not by_data:
            raise ByData("data end it")
        walk.count()
        flag = turns.begin()
        number, on = np.array(len(rows), np.int64), np.array(True)
        given = [walk.graph.constant(number, ""), walk.graph.constant(on, ""), *carried]
        with walk.values.guarded(flag):
            found = _iteration(walk, call, body, scope, len(rows), given)
        if found is None:
            return (REFUSED,) * len(call.outputs)
        carried = [*turns.kept(carried, found[1 : 1 + len(carried)])]
        rows.append(found[1 + len(carried) :])
        known, going = (True, None) if counted_turns.counts else _condition(walk, found[0])
        turns.end(going)
    results = carried
    for place, name in enumerate(call.outputs[len(carried) :]):
        results.append(_column(walk, call, scope, turns, [row[place] for row in rows], 0) if name else None)
    return tuple(results[: len(call.outputs)])


def scan(walk: Walk, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Scan (opset 9 and later): inputs (states ..., sources ...); results (states ..., slices stacked ...).

    Sources are tensors that are read slice by slice.
    """
    body = _body(call, scope)
    read = call.attrs.get("num_scan_inputs")
    if not isinstance(read, int) or not 0 < read <= len(ids) or any(id is None for id in ids):
        raise Unsupported("num_scan_inputs does not fit its inputs", "export the model again")
    states, sources = list(ids[: len(ids) - read]), [id for id in ids[len(ids) - read :] if id is not None]
    written = len(body.outputs) - len(states)
    if len(body.inputs) != len(ids) or written < 0 or len(call.outputs) > len(body.outputs):
        raise Unsupported("its body does not fit its inputs and outputs", "export the model again")
    axes = _each(call, "scan_input_axes", read)
    axes = [_axis(axis, walk.values.type(id).rank) for axis, id in zip(axes, sources, strict=True)]
    backwards = _each(call, "scan_input_directions", read)
    extents = [walk.values.shape(id)[axis] for id, axis in zip(sources, axes, strict=True)]
    if len(numbers := {extent for extent in extents if isinstance(extent, int)}) > 1:
        raise Unsupported(f"its inputs have {sorted(numbers)} slices", "give all the same number of slices")
    steps = extents[0]
    for other in extents[1:]:
        steps = same(walk.values, steps, other)
    if isinstance(steps, Extent) and any(backwards):
        raise Unsupported(f"it goes backwards along an axis of size {steps}", "bind that dimension to a number")
    written_axes = _each(call, "scan_output_axes", written)
    kinds = [*zip(written_axes, _each(call, "scan_output_directions", written), strict=True)]
    read_at = [*zip(sources, axes, map(bool, backwards), strict=True)]
    found = _Scan(call, body, states, read_at, kinds, steps, scope)
    return _region_or(
        walk,
        lambda: _scanned(walk, found),
        lambda _: _written_scan(walk, found),
        is_short=isinstance(steps, int) and steps <= LONGEST,
    )


@dataclass(frozen=True)
class _Scan:
    """A Scan of so many steps.

    sources  tensors that it reads, each along which axis, and whether backwards
    kinds    of what it stacks, the axis and whether (1) backwards
    """

    call: Call
    body: Body
    states: Sequence[int | None]
    sources: Sequence[tuple[int, int, bool]]
    kinds: Sequence[tuple[int, int]]
    steps: Number
    scope: Scope


def _scanned(walk: Walk, scan: _Scan) -> Ids:
    """A Scan as a region. Raises Unsupported."""
    values = walk.values
    if any(axis or backward for axis, backward in scan.kinds):
        raise Unsupported("it stacks backwards, or along another axis than 0", "")

    def iteration(inputs: Sequence[int]) -> list[int] | None:
        number, *before = inputs
        slices = []
        for id, axis, backward in scan.sources:
            place = number
            if backward:
                place = values.node("Sub", (values.scalar(high(scan.steps) - 1), number))
            row = values.node("Gather", (id, place), {"axis": axis})
            shape = values.shape(id)
            if is_open(rest := (*shape[:axis], *shape[axis + 1 :])):
                values.shapes[row] = rest
            slices.append(row)
        return _read(
            scan.call, _iteration(walk, scan.call, scan.body, scan.scope, "body", [*before, *slices]), len(before)
        )

    last, stacks = while_region(walk, Turns(scan.steps), scan.states, iteration, decides=False)
    return _results(scan.call, last, stacks)


def _read(call: Call, found: list[int] | None, kept: int, carried: int | None = None) -> list[int] | None:
    """The first `kept` of a body's results, and of those that are stacked the ones that the call gives a name.

    `carried` of the call's results are none of these.
    """
    names = call.outputs[kept if carried is None else carried :]
    return found and [*found[:kept], *(id for id, name in zip(found[kept:], names, strict=False) if name)]


def _results(call: Call, last: Sequence[int], stacks: Sequence[int]) -> Ids:
    """Carried values and stacks as results of a call, which leaves out those without a name."""
    named = iter(stacks)
    return (*last, *(next(named) if name else None for name in call.outputs[len(last) :]))[: len(call.outputs)]


def _written_scan(walk: Walk, scan: _Scan) -> Ids:
    """A Scan written out."""
    call, scope, steps, states = scan.call, scan.scope, scan.steps, [*scan.states]
    turns = Iterations(walk.values, steps, None, False)
    rows: list[list[int]] = []
    while turns.may_run:
        step = len(rows)
        walk.count()
        flag = turns.begin()
        slices = [
            _slice(walk, call, scope, id, axis, high(steps) - 1 - step if backward else step)
            for id, axis, backward in scan.sources
        ]
        with walk.values.guarded(flag):
            found = _iteration(walk, call, scan.body, scope, step, [*states, *slices])
        if found is None:
            return (REFUSED,) * len(call.outputs)
        states = [*turns.kept(states, found[: len(states)])]
        rows.append(found[len(states) :])
    results = [*states]
    for place, (axis, backward) in enumerate(scan.kinds):
        column = [row[place] for row in rows]
        if backward and isinstance(steps, Extent):
            raise Unsupported(f"it writes backwards, {steps} rows", "bind that dimension to a number")
        results.append(_column(walk, call, scope, turns, column[::-1] if backward else column, axis))
    return tuple(results[: len(call.outputs)])


def _body(call: Call, scope: Scope) -> Body:
    body = call.attrs.get("body")
    if not isinstance(body, Body):
        raise Unsupported("it has no body", "export the model again")
    return body


def _trips(walk: Walk, id: int | None) -> Number | None:
    """How often a Loop runs at most: a number or a size; None where only data say, or nothing. Raises Unsupported."""
    if id is None:
        return None
    elements = walk.values.elements.get(id)
    if elements is not None and elements.size == 1:
        return as_number(elements.reshape(-1)[0])
    return None if id not in walk.graph.constants else _known_scalar(walk, id, "its trip count")


def _condition(walk: Walk, id: int | None) -> tuple[bool, int | None]:
    """Whether an iteration may run by its condition, and the value that says whether it does, where only data do."""
    if id is None:
        return True, None
    if walk.values.known(id) is None:
        return True, id
    return bool(_known_scalar(walk, id, "its condition")), None


def _column(walk: Walk, call: Call, scope: Scope, turns: Iterations, column: list[int], axis: int) -> int | None:
    """What iterations gave, along a new axis: as many as ran."""
    if not any(flag is not None for flag in turns.flags):
        return _stacked(walk, call, scope, column, axis)
    if axis:
        raise Unsupported(f"it stacks along axis {axis} as many rows as are known at run time", "stack along axis 0")
    return turns.stack(column)


def _known_scalar(walk: Walk, id: int | None, what: str) -> int | None:
    """The whole number or truth value that a value holds; None for an absent one."""
    if id is None:
        return None
    array = walk.graph.constants.get(id)
    if array is None:
        raise Unsupported(f"{what} is not known when compiling", walk.how_to_fix(id))
    if array.size != 1:
        raise Unsupported(f"{what} has {array.size} elements", "give a scalar")
    if array.dtype.kind not in "biu":
        raise Unsupported(f"{what} is no whole number", "export the model again")
    return int(array.reshape(-1)[0])


def _each(call: Call, name: str, count: int) -> list[int]:
    """An attribute with one whole number for each of `count`; zeros where it is absent."""
    value = call.attrs.get(name, (0,) * count)
    items = value if isinstance(value, tuple) else (value,)
    numbers = [item for item in items if isinstance(item, int)]
    if len(numbers) != len(items) or len(numbers) != count:
        raise Unsupported(f"{name} does not have {count} whole numbers", "export the model again")
    return numbers


def _axis(axis: int, rank: int) -> int:
    """An axis of a tensor of `rank`, counted from the first one."""
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis} is none of a tensor of {rank} dimensions", "export the model again")
    return axis % rank


def _iteration(
    walk: Walk, call: Call, body: Body, scope: Scope, number: int | str, given: Sequence[int | None]
) -> list[int] | None:
    """What the body's results are in one iteration; None where a node of it was refused."""
    prefix = f"{scope.source(call.source)}/{number}/" if scope.named else scope.prefix
    inner = Scope(scope.opsets, prefix, scope.named, scope.defines, scope)
    inner.slots.update({one.name: id for one, id in zip(body.inputs, given, strict=True)})
    refused = walk.refused
    walk.body(body, inner)
    results: list[int] = []
    for name in body.outputs:
        slot = inner.find(name)
        if isinstance(slot, Foreign):
            raise Unsupported(f"the result {quoted(name)} of its body is {slot.what}", "use a type from bool to double")
        if slot is None:
            raise Unsupported(f"the result {quoted(name)} of its body is absent", "export the model again")
        results.append(slot)
    return None if walk.refused > refused or REFUSED in results else results


def _slice(walk: Walk, call: Call, scope: Scope, id: int, axis: int, place: int) -> int | None:
    """One slice of a value, without its axis."""
    gather = Call("Gather", ("x", "place"), ("y",), {"axis": axis})
    return _one(walk, call, scope, (id,), Expansion(("x",), ("y",), (gather,), {"place": np.array(place, np.int64)}))


def _stacked(walk: Walk, call: Call, scope: Scope, column: Sequence[int], axis: int) -> int | None:
    """Values of equal shape side by side along a new axis."""
    if not column:
        raise Unsupported("it runs zero times, so that what it stacks has no shape", f"export without the {call.op}")
    if len({walk.values.type(id) for id in column}) != 1:
        raise Unsupported("what it stacks changes its shape from iteration to iteration", "export without the loop")
    names = tuple(f"x{place}" for place in range(len(column)))
    rows = tuple(f"row{place}" for place in range(len(column)))
    axis = _axis(axis, walk.graph.type(column[0]).rank + 1)
    calls = [Call("Unsqueeze", (name, "axes"), (row,)) for name, row in zip(names, rows, strict=True)]
    constants: Mapping[str, np.ndarray] = {"axes": np.array([axis], np.int64)}
    joined = Call("Concat", rows, ("y",), {"axis": axis})
    return _one(walk, call, scope, tuple(column), Expansion(names, ("y",), (*calls, joined), constants))


def _one(walk: Walk, call: Call, scope: Scope, ids: Ids, expansion: Expansion) -> int | None:
    """The one result of an expansion that stands for a part of `call`."""
    part = Call(call.op, call.inputs, (call.op,), {}, source=call.source)
    unnamed = Scope(scope.opsets, scope.source(call.source), named=False, defines=scope.defines or call.op)
    (result,) = walk.expand(part, ids, unnamed, expansion, None)
    return result
