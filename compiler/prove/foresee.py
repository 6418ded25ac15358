"""What drawn inputs will show of a model's outputs, by the reference alone: known before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.errors import InputsError
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.prove.agree import RANDOM, Why, constant_outputs, named
from compiler.prove.inputs import further_inputs, sample_inputs
from compiler.prove.reference import Operators, evaluate_graph
from compiler.prove.sizes import cut, own_outputs


@dataclass(frozen=True)
class Foreseen:
    """Why each of the outputs that no drawn inputs show is not shown; and the node that first gives no finite number.

    `not_finite` is a sentence about the random inputs, empty where all outputs are finite on them.
    """

    unshown: Mapping[str, Why]
    not_finite: str = ""


def foresee(graph: Graph, operators: Operators, seed: int, shapes: OpenShapes | None = None) -> Foreseen:
    """Evaluates the graph in float64 on draws, one after another, until each output has a finite element."""
    outputs, constant = own_outputs(graph, shapes), constant_outputs(graph)
    left = {named(value): Why.OUTSIDE for value in outputs if value.type.elements}
    said = ""
    for name, inputs in _draws(graph, seed, shapes):
        try:
            found = evaluate_graph(graph, inputs, operators)
            if shapes and shapes.broken(graph.outputs, found):
                continue
        except InputsError:
            continue
        for value, array in zip(outputs, cut(graph, shapes, found), strict=True):
            finite = np.isfinite(array)
            if value.id in constant or finite.any():
                left.pop(named(value), None)
            elif named(value) in left:
                left[named(value)] = Why.NOT_FINITE if array.size else Why.EMPTY
            if name == RANDOM and not said and not finite.all():
                said = _first(graph, inputs, operators, named(value))
        if not left:
            break
    return Foreseen(left, said)


def _draws(graph: Graph, seed: int, shapes: OpenShapes | None) -> Iterator[tuple[str, dict[int, np.ndarray]]]:
    yield RANDOM, sample_inputs(graph, seed, shapes)
    if graph.inputs:
        yield from further_inputs(graph, seed, shapes)


def _first(graph: Graph, inputs: Mapping[int, np.ndarray], operators: Operators, output: str) -> str:
    made = [id for node in graph.nodes for id in node.outputs if graph.type(id).dtype.is_float]
    values = evaluate_graph(graph, inputs, operators, keep=made)
    where = f"output {output!r} is not finite everywhere on random inputs"
    for node in graph.nodes:
        if any(id in values and not np.isfinite(values[id]).all() for id in node.outputs):
            return f"{where}: node {node.source!r} ({node.op}) is the first that gives a NaN or an infinity"
    return f"{where}, which a constant of the model is not"
