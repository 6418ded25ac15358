"""The bodies of a graph's regions, each changed like a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from compiler.ir.graph import Attr, Body, Graph


class Changed(Protocol):
    """What became of a graph, among other things that are known of it."""

    @property
    def graph(self) -> Graph:
        """The graph after the change."""
        ...


C = TypeVar("C", bound=Changed)


def with_bodies(graph: Graph, change: Callable[[Graph], C]) -> tuple[Graph, list[C]]:
    """The graph with each body changed, and what became of each; the graph itself where none is."""
    changed: list[C] = []
    nodes = []
    for node in graph.nodes:
        attrs: Mapping[str, Attr] = node.attrs
        for name, body in node.bodies.items():
            changed.append(change(body.graph))
            if changed[-1].graph is not body.graph:
                attrs = {**attrs, name: Body(changed[-1].graph)}
        nodes.append(node if attrs is node.attrs else replace(node, attrs=attrs))
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph, changed
    return replace(graph, nodes=tuple(nodes)), changed
