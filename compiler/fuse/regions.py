"""Regions of a graph as calls: their bodies fused by themselves, their constants made operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.kernel import Slot
from compiler.ir.region import WHILE, Loop, Region, bodies_of
from compiler.ir.tensor import DType, TensorType

Fuse = Callable[[Graph], KernelGraph]


@dataclass(frozen=True)
class Opened:
    """A graph whose regions have the constants of their bodies as operands, and each region by its first result."""

    graph: Graph
    regions: Mapping[int, Region]


def with_regions(graph: Graph, fuse: Fuse) -> Opened:
    """The same graph where it has no regions."""
    if not any(node.bodies for node in graph.nodes):
        return Opened(graph, {})
    values, constants = dict(graph.values), dict(graph.constants)
    ids: dict[int, int] = {}
    """Of arrays that are constants by now, by Python's identity of them."""
    nodes, regions = [], {}
    for node in graph.nodes:
        if node.bodies:
            region = _region(node, fuse)
            extra = []
            for use in region.uses:
                array = region.bodies[use.body].constants[use.constant]
                if id(array) not in ids:
                    ids[id(array)] = new = max(values) + 1
                    values[new] = Value(new, TensorType(DType.of(array.dtype), array.shape))
                    constants[new] = array
                extra.append(ids[id(array)])
            node = replace(node, inputs=(*node.inputs, *extra))
            types = [values[value].type for value in node.used]
            results = [values[value].type for value in node.outputs]
            regions[node.outputs[0]] = replace(region, inputs=slots("x", types), outputs=slots("y", results))
        nodes.append(node)
    return Opened(Graph(values, tuple(nodes), graph.inputs, graph.outputs, constants), regions)


def _region(node: Node, fuse: Fuse) -> Region:
    """Of a node, yet without operands and results."""
    bodies = tuple(fuse(body) for body in bodies_of(node))
    loop = Loop.of(node) if node.op == WHILE else None
    return Region(node.op, node.op.lower(), (), (), {}, bodies, loop)


def slots(letter: str, types: Iterable[TensorType]) -> tuple[Slot, ...]:
    """Of a region: its operands or its results, in order."""
    return tuple(Slot(f"{letter}{at}", type) for at, type in enumerate(types))
