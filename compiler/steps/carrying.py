"""Runs from a state, proved: each gives the bits of a run that is given the same, and some are for the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import InternalError
from compiler.ir.graph import Graph
from compiler.pack.loader import Model, State
from compiler.prove.samples import Sample

STEPS = 6
"""Runs in a row from one state: both of its sides are read and written several times."""
JUDGED = 3
"""Of these, the first that the reference is evaluated for, if that is fast."""


def runs_in_a_row(model: Model, graph: Graph, samples: Sequence[Sample]) -> list[dict[int, np.ndarray]]:
    """The inputs of runs that follow each other, by value id, each with the state that it finds.

    Inputs beside the state are those of samples, else random ones. The state begins as zeros; a tensor of which the
    model demands something begins as drawn. The model is one whose inputs are the program's own (`coded`). Raises
    InternalError unless each run from the state gives the bits of one that is given all of it, and leaves these bits in
    the state: also from a second state beside it, which began to differ half way.
    """

    def inputs(number: int) -> dict[str, np.ndarray]:
        if not samples:
            return model.random_inputs(number)
        arrays = samples[number % len(samples)].arrays.values()
        return {spec.name: array.view(spec.numpy) for spec, array in zip(model.inputs, arrays, strict=True)}

    state, found = model.state(), []
    demanded = {one["name"] for one in model.manifest["inputs"] if "range" in one}
    for name in demanded.intersection(state.names):
        state[name] = inputs(0)[name]
    other = state
    for number in range(STEPS):
        if number == STEPS // 2:
            other = state.fork()
            _stepped(model, other, inputs(STEPS))
        found.append(_stepped(model, state, inputs(number)))
    _stepped(model, other, inputs(STEPS + 1))
    types = [graph.type(id).dtype.numpy for id in graph.inputs]
    return [
        {id: one[spec.name].view(dtype) for id, spec, dtype in zip(graph.inputs, model.inputs, types, strict=True)}
        for one in found
    ]


def _stepped(model: Model, state: State, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All inputs of a run from a state, which it took."""
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
