"""What caches of fewer bits cost: how far they move outputs, and how much memory they save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.errors import Disagreement
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from compiler.session import Session
from compiler.steps.loading import Opened
from compiler.steps.states.caches import LEAST_SCALE, MOST_CODE, SCALE

RUNS = 4
"""From which rows of caches are taken."""


@dataclass(frozen=True)
class CacheCost:
    """Of caches that lie in another type than the model has them in.

    error    the largest difference of an output that is no state, over the largest value of that output
    output   which one it is of
    bytes    of all caches with their scales; `exact_bytes` as the model has them
    """

    error: float
    output: str
    bytes: int
    exact_bytes: int


def demand_cache(session: Session, opened: Opened) -> None:
    """Says in a notice what a cache of fewer bits costs.

    Raises Disagreement where it moves outputs by more than the tolerance that the job states.
    """
    exact, options = opened.loaded.exact, session.options
    if exact is None or opened.effort is None:
        return
    cost = cost_of_cache(exact, opened.loaded.graph, options.seed)
    said = f"that moves output {cost.output!r:.100} by {cost.error:.1e} of its largest value"
    if options.tolerance is not None and not cost.error <= options.tolerance:
        raise Disagreement(
            f"caches lie in {options.cache}: {said}, and {options.tolerance:g} is accepted",
            fix=f'leave cache out, or accept it, such as {{"tolerance": {2 * cost.error:.1g}}}',
        )
    sizes = f"{cost.bytes / 1e6:.3g} MB instead of {cost.exact_bytes / 1e6:.3g} MB"
    session.trace.notice(f"caches lie in {options.cache}: {sizes}; {said}")


def cost_of_cache(exact: Graph, held: Graph, seed: int) -> CacheCost:
    """By the float64 reference of both graphs, on caches full of rows that the model itself makes.

    `exact` has the caches as the model has them, `held` the same rounded; beside them inputs are drawn.
    """
    types = {held.values[id].name: held.type(id) for id in held.inputs}
    names = {exact.values[id].name: id for id in exact.inputs}
    caches = [name for name, id in names.items() if types[name].dtype is not exact.type(id).dtype]
    outputs = [id for id in held.outputs if id in exact.outputs and held.type(id) == exact.type(id)]
    outputs = [id for id in outputs if held.type(id).dtype.is_float]
    full = _filled(exact, held, [names[name] for name in caches], seed)
    drawn = {**sample_inputs(exact, seed), **full}
    given = {name: drawn[id] for name, id in names.items()}
    for name in caches:
        given |= rounded(name, given[name], types[name].dtype)
    wanted = evaluate_graph(exact, drawn, OPERATORS)
    found = evaluate_graph(held, {id: given[held.values[id].name] for id in held.inputs}, OPERATORS)
    errors = {held.values[id].name: _relative(wanted[id], found[id]) for id in outputs}
    worst = max(errors, key=errors.__getitem__, default="")
    parts = [part for name in caches for part in (name, name + SCALE) if part in given]
    return CacheCost(
        errors.get(worst, 0.0),
        worst,
        sum(given[part].nbytes for part in parts),
        sum(array.nbytes for array in full.values()),
    )


def _filled(exact: Graph, held: Graph, caches: Sequence[int], seed: int) -> dict[int, np.ndarray]:
    """Caches, by id of the input, full of rows that runs from caches of zeros append to them, in drawn order."""
    full = {id: np.zeros(exact.type(id).dims, exact.type(id).dtype.numpy) for id in caches}
    outputs = {_begins(exact, id): id for id in exact.outputs if held.type(id) != exact.type(id)}
    runs = [evaluate_graph(exact, {**sample_inputs(exact, seed + run), **full}, OPERATORS) for run in range(RUNS)]
    random = np.random.default_rng(seed)
    for id in caches:
        made = [found[outputs[id]] for found in runs]
        axis = min(range(made[0].ndim - 1), key=lambda axis: (_positions(made[0], axis).mean(), -made[0].shape[axis]))
        rows = np.concatenate([one.compress(_positions(one, axis), axis) for one in made], axis)
        if rows.size:
            drawn = random.integers(rows.shape[axis], size=full[id].shape[axis])
            full[id] = rows.take(drawn, axis).astype(full[id].dtype)
    return full


def _begins(graph: Graph, output: int) -> int:
    """The input into which a cache is written."""
    while (node := graph.producer.get(output)) is not None:
        output = node.used[0]
    return output


def _positions(cache: np.ndarray, axis: int) -> np.ndarray:
    """Where along an axis something is in a cache."""
    found: np.ndarray = (cache != 0).any(tuple(other for other in range(cache.ndim) if other != axis))
    return found


def rounded(name: str, array: np.ndarray, kind: DType) -> dict[str, np.ndarray]:
    """A cache in a type of fewer bits, and its scales where it has some, by name of the input."""
    if kind is not DType.I8:
        return {name: array.astype(kind.numpy)}
    scales = np.abs(array).max(-1, keepdims=True) * np.float32(1 / MOST_CODE)
    scales = np.maximum(scales, np.float32(LEAST_SCALE))
    return {name: np.rint(array / scales).astype(np.int8), name + SCALE: scales}


def _relative(wanted: np.ndarray, found: np.ndarray) -> float:
    """The largest difference over the largest finite value; of what is not finite in both nothing."""
    finite = np.isfinite(wanted) & np.isfinite(found)
    if not finite.any():
        return 0.0
    largest = np.abs(wanted, where=finite, out=np.zeros(wanted.shape)).max()
    apart = np.abs(np.subtract(wanted, found, where=finite, out=np.zeros(wanted.shape)))
    return float(apart.max() / largest) if largest else float(apart.max())
