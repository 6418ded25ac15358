"""Layers of several engines brought together, though each engine joins a model's nodes in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from bench.engines.driver import Layer

FOLDS_INTO = frozenset(("Conv", "ConvTranspose", "Gemm"))
"""What a BatchNormalization behind it is part of, in every engine: its weights are scaled ahead of time."""


Plan = Sequence[Layer]
"""An engine's layers, in the order in which they run."""


@dataclass(frozen=True)
class Group:
    """A smallest set of nodes that no layer of any engine crosses.

    nodes   positions in the model, ascending
    layers  by engine, for each of its plans, positions of the layers that carry these nodes out
    """

    nodes: tuple[int, ...]
    layers: Mapping[str, tuple[tuple[int, ...], ...]]


def group(graph: onnx.GraphProto, plans: Mapping[str, Sequence[Plan]], whole: frozenset[str]) -> list[Group]:
    """Every layer of every engine in one group, in the order of the model's nodes.

    plans  of each engine, one or more: an engine may order and join a model's nodes in another way when it
           opens it again
    whole  engines whose layers name all the nodes they carry out

    What a layer carries out is what it names (`Names`). A layer that names nothing known, such as a change of layout,
    belongs to the next that does. A node that is in no layer of an engine which is not in `whole` was joined with the
    one node that reads it.
    """
    names = Names(graph)
    joined = _Sets(len(graph.node))
    readers = _readers(graph)
    for conv, norm in _folded(graph, readers):
        joined.join(conv, norm)
    places: dict[str, list[list[int]]] = {}
    for engine, several in plans.items():
        for plan in several:
            found = [names.nodes(layer) for layer in plan]
            for nodes in found:
                for node in nodes:
                    joined.join(nodes[0], node)
            places.setdefault(engine, []).append(_places(found))
            if engine not in whole:
                _join_unnamed(joined, readers, {joined.root(node) for nodes in found for node in nodes})
    return _groups(len(graph.node), joined, places)


class Names:
    """Which node a name means: its own, or that of a value it gives.

    A nameless node is called by its place and operator, as our compiler does.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._positions = {value: at for at, node in enumerate(graph.node) for value in node.output if value}
        self._positions |= {node.name or f"#{at} {node.op_type}": at for at, node in enumerate(graph.node)}

    def nodes(self, layer: Layer) -> list[int]:
        """Positions of the nodes that a layer names, each once."""
        found = (self._position(name) for name in layer.names)
        return list(dict.fromkeys(at for at in found if at is not None))

    def _position(self, name: str) -> int | None:
        """The longest known name that it begins with.

        Engines put words behind a name (`relu_0_nchwc`, `conv_0/WithoutBiases`).
        """
        for end in range(len(name), 0, -1):
            if (end == len(name) or not name[end].isalnum()) and name[:end] in self._positions:
                return self._positions[name[:end]]
        return None


class _Sets:
    """Disjoint sets of numbers, each known by its least member."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def root(self, one: int) -> int:
        while self._above[one] != one:
            self._above[one] = one = self._above[self._above[one]]
        return one

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self._above[high] = low


def _readers(graph: onnx.GraphProto) -> list[list[int]]:
    """Positions of the nodes that read what each node gives."""
    giver = {value: at for at, node in enumerate(graph.node) for value in node.output}
    readers: list[list[int]] = [[] for _ in graph.node]
    for at, node in enumerate(graph.node):
        for value in dict.fromkeys(node.input):
            if value in giver and at not in readers[giver[value]]:
                readers[giver[value]].append(at)
    return readers


def _folded(graph: onnx.GraphProto, readers: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    for at, node in enumerate(graph.node):
        if node.op_type in FOLDS_INTO and len(readers[at]) == 1:
            reader = readers[at][0]
            if graph.node[reader].op_type == "BatchNormalization":
                yield at, reader


def _join_unnamed(joined: _Sets, readers: Sequence[Sequence[int]], named: set[int]) -> None:
    """Joins each node that is in none of the `named` sets with its reader, if it has one only."""
    for node in reversed(range(len(readers))):
        if joined.root(node) not in named and len(readers[node]) == 1:
            joined.join(node, readers[node][0])


def _places(found: Sequence[Sequence[int]]) -> list[int]:
    """One node for each layer: the first it names.

    Else that of the next layer that names any, else of the last that does.
    """
    places: list[int] = []
    following = next((nodes[0] for nodes in reversed(found) if nodes), 0)
    for nodes in reversed(found):
        following = nodes[0] if nodes else following
        places.append(following)
    return places[::-1]


def _groups(count: int, joined: _Sets, places: Mapping[str, Sequence[Sequence[int]]]) -> list[Group]:
    members: dict[int, list[int]] = {}
    for node in range(count):
        members.setdefault(joined.root(node), []).append(node)
    layers: dict[int, dict[str, list[list[int]]]] = {}
    for engine, plans in places.items():
        for number, nodes in enumerate(plans):
            for layer, node in enumerate(nodes):
                of_group = layers.setdefault(joined.root(node), {})
                of_group.setdefault(engine, [[] for _ in plans])[number].append(layer)
    return [
        Group(tuple(members[root]), {engine: tuple(map(tuple, found)) for engine, found in by_engine.items()})
        for root, by_engine in sorted(layers.items())
    ]
