"""Loop and Scan: their bodies, one after another, as often as they run or may run.

Where data or a size decide how often that is, each iteration has a flag (`open.loops`).

What an iteration reads that is known (its number, a condition, shapes) is folded as everywhere else, so carried values
may change their shape from one iteration to the next, and a condition that the body computes from what is known ends
the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from compiler.frontend.assembly import Assembly
from compiler.frontend.model import Body, Call, Expansion, Foreign, quoted
from compiler.frontend.open.extent import Extent, Number, high
from compiler.frontend.open.loops import Iterations
from compiler.frontend.open.site import same
from compiler.frontend.open.values import OpenValues, as_number
from compiler.frontend.scope import REFUSED, Scope
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]


class Walk(Protocol):
    """What unrolling asks of the walk over the model."""

    graph: Assembly
    values: OpenValues
    refused: int

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
    carried: list[int | None] = list(ids[2:])
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) <= max(len(carried), len(call.outputs)):
        raise Unsupported("its body does not fit its inputs and outputs", "export the model again")
    known, going = _condition(walk, ids[1] if len(ids) > 1 else None)
    turns = Iterations(walk.values, _trips(walk, ids[0]), going, going is not None)
    rows: list[list[int]] = []
    while known and turns.may_run:
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
        known, going = _condition(walk, found[0])
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
        steps = same(steps, other)
    if isinstance(steps, Extent) and any(backwards):
        raise Unsupported(f"it goes backwards along an axis of size {steps}", "bind that dimension to a number")
    turns = Iterations(walk.values, steps, None, False)
    rows: list[list[int]] = []
    while turns.may_run:
        step = len(rows)
        walk.count()
        flag = turns.begin()
        places = [high(steps) - 1 - step if back else step for back in backwards]
        slices = [
            _slice(walk, call, scope, id, axis, place) for id, axis, place in zip(sources, axes, places, strict=True)
        ]
        with walk.values.guarded(flag):
            found = _iteration(walk, call, body, scope, step, [*states, *slices])
        if found is None:
            return (REFUSED,) * len(call.outputs)
        states = [*turns.kept(states, found[: len(states)])]
        rows.append(found[len(states) :])
    results = states
    kinds = zip(_each(call, "scan_output_axes", written), _each(call, "scan_output_directions", written), strict=True)
    for place, (axis, backward) in enumerate(kinds):
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
    """How often a Loop runs at most: a number or a size; None where it does not say. Raises Unsupported."""
    if id is None:
        return None
    elements = walk.values.elements.get(id)
    if elements is not None and elements.size == 1:
        return as_number(elements.reshape(-1)[0])
    return _known_scalar(walk, id, "its trip count")


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
    walk: Walk, call: Call, body: Body, scope: Scope, number: int, given: Sequence[int | None]
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
