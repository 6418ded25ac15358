"""Runs from a state, proved: each gives the bits of a run that is given the same, and some are for the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.errors import InternalError
from compiler.ir.graph import Graph
from compiler.pack.loader import Model, State
from compiler.prove.samples import Sample

STEPS = 6
"""Runs in a row from one state: both of its sides are read and written several times."""
TURNS = 2 * STEPS
"""Rows of so many runs are left to caches that begin with some."""
JUDGED = 3
"""Of these, the first that the reference is evaluated for, if that is fast."""


def runs_in_a_row(
    model: Model, graph: Graph, samples: Sequence[Sample], found: Mapping[str, np.ndarray] | None = None
) -> list[dict[int, np.ndarray]]:
    """The inputs of runs that follow each other, by value id, each with the state that it finds.

    Inputs beside the state are those of samples, else random ones. The state begins with what is `found` of it, by name
    of the input; else as zeros, and a tensor of which the model demands something as drawn. The model is one whose
    inputs are the program's own (`coded`). Raises InternalError unless each run from the state gives the bits of one
    that is given all of it, and leaves these bits in the state: also from a second state beside it, which began to
    differ half way.
    """

    def inputs(number: int) -> dict[str, np.ndarray]:
        if not samples:
            return model.random_inputs(number)
        arrays = samples[number % len(samples)].arrays.values()
        return {spec.name: array.view(spec.numpy) for spec, array in zip(model.inputs, arrays, strict=True)}

    state, runs = _begun(model, inputs(0), found or {}), []
    other = state
    for number in range(STEPS):
        if number == STEPS // 2:
            other = state.fork()
            _stepped(model, other, inputs(STEPS))
        runs.append(_stepped(model, state, inputs(number)))
    _stepped(model, other, inputs(STEPS + 1))
    types = [graph.type(id).dtype.numpy for id in graph.inputs]
    return [
        {id: one[spec.name].view(dtype) for id, spec, dtype in zip(graph.inputs, model.inputs, types, strict=True)}
        for one in runs
    ]


def state_left(
    model: Model, sample: Mapping[str, np.ndarray] | None, found: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The state that runs in a row leave, by name of the input; it begins with what is found.

    Other inputs are those of the sample, else random ones.
    """
    state = _begun(model, model.random_inputs(0) if sample is None else sample, found)
    for number in range(STEPS):
        inputs = model.random_inputs(number) if sample is None else sample
        _make_room(model, state)
        model.run({name: array for name, array in inputs.items() if name not in state.names}, state=state)
    return {name: state[name] for name in state.names}


def runs_across(model: Model, samples: Sequence[Mapping[str, np.ndarray] | None]) -> None:
    """Runs of a model's bindings in turn from one state: each binding after itself, and after each neighbour.

    Of each binding inputs beside the state are of its sample, or random ones. Raises InternalError unless each run
    gives the bits of one that is given all of the state, and leaves these in it: also from a second state beside it,
    which began to differ half way.
    """

    def inputs(at: int, number: int) -> dict[str, np.ndarray]:
        sample = samples[at]
        return model.at(at + 1).random_inputs(number) if sample is None else dict(sample)

    count = len(samples)
    turns = [*range(count), *reversed(range(count))] * 2
    state = _begun(model, inputs(0, 0), {})
    other = state
    for number, at in enumerate(turns):
        if number == len(turns) // 2:
            other = state.fork()
            _stepped(model, other, inputs(count - 1, len(turns)))
        _stepped(model, state, inputs(at, number))
    for at in range(count):
        _stepped(model, other, inputs(at, len(turns) + 1 + at))


def _begun(model: Model, drawn: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> State:
    """A state that begins with what is found; else as zeros, and as drawn where the model demands something."""
    state = model.state()
    demanded = {one["name"] for one in model.manifest["inputs"] if "range" in one}
    first = {**{name: drawn[name] for name in demanded.intersection(state.names)}, **found}
    for name, array in first.items():
        state[name] = array
    for one in model.carried:
        if one.rows and one.input.name not in found:
            _fill(state, drawn, max(0, min(int(drawn[one.input.name]), one.room - TURNS * one.rows)))
    return state


def _make_room(model: Model, state: State) -> None:
    """Caches that have no room for one more run at some binding are emptied."""
    if not any(one.rows for one in model.carried):
        return
    each = [one for binding in model.bindings for one in model.at(binding.number).carried if one.rows]
    if any(len(state) + one.rows > one.room for one in each):
        state.truncate(0)


def _fill(state: State, drawn: Mapping[str, np.ndarray], rows: int) -> None:
    """Gives caches that grow so many of the rows that were drawn."""
    for one in state.carried:
        if one.rows:
            state[one.input.name] = np.array(rows, np.int64)
        elif one.axis is not None:
            array = np.zeros_like(drawn[one.input.name])
            place = (slice(None),) * one.axis + (slice(rows),)
            array[place] = drawn[one.input.name][place]
            state[one.input.name] = array


def _stepped(model: Model, state: State, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All inputs of a run from a state, which it took."""
    _make_room(model, state)
    whole = {**inputs, **{name: state[name] for name in state.names}}
    expected = model.run(whole)
    given = {name: array for name, array in inputs.items() if name not in state.names}
    made = model.run(given, state=state)
    made |= {one.output.name: state[one.output.name] for one in model.carried}
    _demand_equal(expected, made, [spec.name for spec in model.outputs])
    return whole


def _demand_equal(expected: dict[str, np.ndarray], made: dict[str, np.ndarray], names: Sequence[str]) -> None:
    for name in names:
        if expected[name].tobytes() != made[name].tobytes():
            raise InternalError(
                f"a run from a state gives other bits for output {name!r:.200} than one that is given it"
            )
