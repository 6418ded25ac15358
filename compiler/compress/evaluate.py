"""The model's outputs with the weights of some layers replaced, by the reference in float64.

What no replaced layer reaches is not computed again: of a single layer only what follows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.compress.layers import Layer
from compiler.errors import InputsError
from compiler.ir.graph import Graph, Node
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.layers import id_of, ids_of
from compiler.quantize.network import Network
from compiler.quantize.samples import Sample, bound

FEWEST_CLASSES, MOST_CLASSES = 2, 100_000
"""Elements along the last axis of an output whose greatest one may be a decision."""


@dataclass(frozen=True)
class Deviation:
    """How far outputs are from the dense ones, over all samples.

    relative  by name ||y - dense|| / ||dense||
    agree     by name of an output that looks like classes, the part of decisions (the greatest element) that are the
              same
    """

    relative: Mapping[str, float]
    agree: Mapping[str, float]

    @property
    def worst(self) -> float:
        """Of the output that is furthest off; infinite where one is not finite any more."""
        return max(self.relative.values(), default=0.0)


class Samples:
    """Samples of one model, with all its values on them."""

    def __init__(self, network: Network, evaluated: Evaluated, samples: Sequence[Sample]) -> None:
        self.network, self.evaluated, self.samples = network, evaluated, samples
        self._values: list[dict[int, np.ndarray]] = []
        for number, sample in enumerate(samples):
            loaded = evaluated.loaded(sample)
            graph = loaded.graph
            keep = {id for node in graph.nodes for id in (*node.used, *node.outputs)} - {*graph.constants}
            values = evaluate_graph(graph, bound(loaded, sample), OPERATORS, keep=keep)
            for node in graph.nodes:
                for id in node.outputs:
                    if values[id].dtype.kind == "f" and not np.isfinite(values[id]).all():
                        raise InputsError(
                            f"the result of {node.op} {node.source!r:.100} is not finite on sample {number + 1}",
                            fix="leave that sample out, or the values in it that a run would not have",
                        )
            self._values.append(values)

    def inputs(self, layer: Layer) -> list[np.ndarray]:
        """What a layer reads on each sample."""
        found = []
        for sample, values in zip(self.samples, self._values, strict=True):
            ids = ids_of(self.evaluated.loaded(sample).graph)
            id = id_of(self.network, ids, layer.node.input[0])
            assert id is not None, "a layer's tensors have ids at every shape"
            found.append(values[id])
        return found

    def around(self, layer: Layer) -> Iterator[tuple[list[np.ndarray | None], np.ndarray]]:
        """All that a layer reads on each sample, None for an input that is absent, and its first result."""
        for sample, values in zip(self.samples, self._values, strict=True):
            graph = self.evaluated.loaded(sample).graph
            node = self._node(graph, layer)
            read = [None if id is None else values.get(id, graph.constants.get(id)) for id in node.inputs]
            yield read, values[node.outputs[0]]

    def _node(self, graph: Graph, layer: Layer) -> Node:
        """The layer's, at one shape."""
        made = id_of(self.network, ids_of(graph), layer.result)
        assert made is not None, "a layer's tensors have ids at every shape"
        return graph.producer[made]

    def deviation(self, weights: Mapping[str, np.ndarray], layers: Collection[Layer]) -> Deviation:
        """Of the outputs with these weights, by the names of layers, in place of their own."""
        moved: dict[str, list[float]] = {}
        decided: dict[str, list[int]] = {}
        for sample, values in zip(self.samples, self._values, strict=True):
            graph = self.evaluated.loaded(sample).graph
            given: dict[int, np.ndarray] = {}
            for layer in layers:
                if layer.name in weights:
                    used = self._node(graph, layer).used
                    given |= {used[at]: own for at, own in layer.inputs(weights[layer.name]).items()}
            reached = {*given}
            nodes = []
            for node in graph.nodes:
                if not reached.isdisjoint(node.used):
                    nodes.append(node)
                    reached |= {*node.outputs}
            known = {id: array for id, array in values.items() if id not in reached}
            outputs = tuple(id for id in graph.outputs if id in reached)
            found = evaluate_graph(replace(graph, nodes=tuple(nodes), outputs=outputs), {**known, **given}, OPERATORS)
            for id in graph.outputs:
                if graph.type(id).dtype.is_float:
                    _note(graph.values[id].name, values[id], found.get(id, values[id]), moved, decided)
        relative = {name: float(np.sqrt(noise / signal)) if noise else 0.0 for name, (noise, signal) in moved.items()}
        return Deviation(relative, {name: same / count for name, (same, count) in decided.items()})


def _note(
    name: str,
    dense: np.ndarray,
    found: np.ndarray,
    moved: dict[str, list[float]],
    decided: dict[str, list[int]],
) -> None:
    sums = moved.setdefault(name, [0.0, 0.0])
    difference = float(np.square(found - dense).sum())
    sums[0] += difference if np.isfinite(difference) else np.inf
    sums[1] += max(float(np.square(dense).sum()), 1e-300)
    if 1 < dense.ndim <= 2 and FEWEST_CLASSES <= dense.shape[-1] <= MOST_CLASSES:
        counts = decided.setdefault(name, [0, 0])
        counts[0] += int((found.argmax(-1) == dense.argmax(-1)).sum())
        counts[1] += int(np.prod(dense.shape[:-1]))
