"""Products of which nobody reads what lies beyond a size are told the size, so that they do not compute it.

A kernel skips what lies beyond a size where its own results say so (`compiler.forms.bounds`). Between a product and the
PadBeyond that says it may stand maps that only its reader does, such as the sum of two products that were one.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.graph import Graph, Node, Value
from compiler.ops import having
from compiler.ops.attributes import number_of
from compiler.ops.indices import axis_of
from compiler.ops.traits import Trait

PAD = "PadBeyond"
MAPS = having(Trait.ELEMENTWISE)
RESHAPES = having(Trait.RESHAPE)
PRODUCTS = having(Trait.CONTRACTION)
Bounds = frozenset[tuple[int, int]]
"""Sizes, by the id of their scalar, and the axes beyond which they hold."""


def with_bounds(graph: Graph) -> Graph:
    """The graph with a PadBeyond behind each product that is read below a size only, and has none."""
    if not any(node.op == PAD for node in graph.nodes):
        return graph
    unseen = _unseen(graph)
    values, nodes, renamed, next_id = dict(graph.values), [], dict[int, int](), graph.next_id
    made = {size: at for at, node in enumerate(graph.nodes) for size in node.outputs}
    for at, node in enumerate(graph.nodes):
        nodes.append(replace(node, inputs=tuple(id if id is None else renamed.get(id, id) for id in node.inputs)))
        if node.op not in PRODUCTS or len(node.outputs) != 1:
            continue
        (result,) = node.outputs
        for size, axis in sorted(unseen[result] - _told(graph, result)):
            if made.get(size, -1) >= at:
                continue
            values[next_id] = Value(next_id, graph.type(result), "")
            attrs = {"axis": axis, "value": 0}
            nodes.append(Node(PAD, (renamed.get(result, result), size), (next_id,), attrs, node.source))
            renamed[result], next_id = next_id, next_id + 1
    return replace(graph, values=values, nodes=tuple(nodes)) if renamed else graph


def _unseen(graph: Graph) -> dict[int, Bounds]:
    """Beyond which sizes nobody reads a value: all its readers say so, themselves or as maps of it."""
    found: dict[int, Bounds] = dict.fromkeys(graph.outputs, frozenset())
    for node in reversed(graph.nodes):
        result = found.get(node.outputs[0], Bounds())
        for place, id in enumerate(node.inputs):
            if id is None:
                continue
            own = Bounds()
            if node.op == PAD and place == 0:
                own = result | {_bound(graph, node)}
            elif node.op in RESHAPES and place == 0:
                dims, other = graph.type(id).dims, graph.type(node.outputs[0]).dims
                own = frozenset((size, axis) for size, axis in result if dims[: axis + 1] == other[: axis + 1])
            elif node.op in MAPS and len(node.outputs) == 1 and graph.type(id).dims == graph.type(node.outputs[0]).dims:
                own = result
            found[id] = found[id] & own if id in found else own
    return {id: found.get(id, Bounds()) for id in graph.values}


def _told(graph: Graph, value: int) -> Bounds:
    """Bounds that every reader of a value has itself."""
    readers = graph.readers[value]
    told = [{_bound(graph, node)} if node.op == PAD and not number_of(node, "value", 0) else set() for node in readers]
    return frozenset[tuple[int, int]]().union(*told) if told and all(told) else Bounds()


def _bound(graph: Graph, node: Node) -> tuple[int, int]:
    value, size = node.used
    return size, axis_of(node, len(graph.type(value).dims))
