"""Results that are not read beyond a size, or are zero there, are given the size.

A kernel skips what lies beyond a size where its own results say so (`compiler.forms.bounds`). Between a product and the
PadBeyond that says it may stand maps that only its reader does, such as the sum of two products that were one. And a
map of what is zero beyond a size, such as a residual sum, is zero there without saying so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.ir.graph import Graph, Node, Value
from compiler.ops import OPERATORS, having
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
    """The graph with a PadBeyond behind products and maps that join kernels, where readers do not say the size.

    Products are given sizes below which alone they are read; such maps also those beyond which they are zero.
    """
    if not any(node.op == PAD for node in graph.nodes):
        return graph
    given, graph = graph, _with_sizes_first(graph)
    unseen, zero = _unseen(graph), _zero(graph)
    values, nodes, renamed, next_id = dict(graph.values), [], dict[int, int](), graph.next_id
    made = {size: at for at, node in enumerate(graph.nodes) for size in node.outputs}
    for at, node in enumerate(graph.nodes):
        nodes.append(replace(node, inputs=tuple(id if id is None else renamed.get(id, id) for id in node.inputs)))
        if len(node.outputs) != 1:
            continue
        (result,) = node.outputs
        wanted = Bounds()
        if node.op in PRODUCTS:
            wanted = unseen[result]
        elif _joins_kernels(graph, node):
            wanted = (unseen[result] | zero[result]) - _kept(graph, result)
            wanted -= Bounds().union(*(unseen[id] | zero[id] for id in _only_map(graph, result)))
        for size, axis in sorted(wanted - _bounds_of_readers(graph, result)):
            if made.get(size, -1) >= at:
                continue
            values[next_id] = Value(next_id, graph.type(result), "")
            attrs = {"axis": axis, "value": 0}
            nodes.append(Node(PAD, (renamed.get(result, result), size), (next_id,), attrs, node.source))
            renamed[result], next_id = next_id, next_id + 1
    return replace(graph, values=values, nodes=tuple(nodes)) if renamed else given


def _joins_kernels(graph: Graph, node: Node) -> bool:
    """Whether a map is of results that several kernels make: a residual sum, or channels that are scaled.

    Of other maps, such as activations, the kernel before them knows the size.
    """
    dims = graph.type(node.outputs[0]).dims
    operands = [graph.type(id).dims for id in node.used if not _is_number(graph, id)]
    if not graph.type(node.outputs[0]).dtype.is_float or len(operands) != 2:
        return False
    return (node.op == "Add" and operands == [dims, dims]) or (node.op == "Mul" and operands[0] != operands[1])


def _with_sizes_first(graph: Graph) -> Graph:
    """The same nodes, scalars that need nothing but scalars before all others, so that any node may read them."""
    known = {id for id in (*graph.inputs, *graph.constants) if not graph.type(id).dims}
    first, others = [], []
    for node in graph.nodes:
        is_scalar = all(id is None or id in known for id in node.inputs) and not node.bodies
        if is_scalar and not any(graph.type(id).dims for id in node.outputs):
            known.update(node.outputs)
            first.append(node)
        else:
            others.append(node)
    return replace(graph, nodes=(*first, *others))


def _zero(graph: Graph) -> dict[int, Bounds]:
    """Beyond which sizes a value is zero: a PadBeyond says it, and maps of zeros keep it."""
    found: dict[int, Bounds] = {}
    for node in graph.nodes:
        own = Bounds()
        if node.op == PAD and not number_of(node, "value", 0):
            own = found.get(node.used[0], Bounds()) | {_bound(graph, node)}
        elif node.op in MAPS and len(node.outputs) == 1:
            dims = graph.type(node.outputs[0]).dims
            each = [found.get(id, Bounds()) if graph.type(id).dims == dims else Bounds() for id in node.used]
            each = [one for id, one in zip(node.used, each, strict=True) if not _is_number(graph, id)]
            if each and node.op == "Mul":
                own = Bounds().union(*each)
            elif each and _keeps_zero(graph, node):
                own = each[0].intersection(*each[1:])
        for id in node.outputs:
            found[id] = own
    return {id: found.get(id, Bounds()) for id in graph.values}


def _is_number(graph: Graph, id: int) -> bool:
    return id in graph.constants and graph.constants[id].size == 1


def _keeps_zero(graph: Graph, node: Node) -> bool:
    """Whether a map is zero where all its operands but constants of one element are."""
    arrays = [
        None
        if id is None
        else graph.constants[id].reshape(-1)
        if _is_number(graph, id)
        else np.zeros(1, graph.type(id).dtype.numpy)
        for id in node.inputs
    ]
    with np.errstate(all="ignore"):
        (result,) = OPERATORS[node.op].reference(node, tuple(arrays))
    return result.size == 1 and not result.any()


def _kept(graph: Graph, value: int) -> Bounds:
    """Bounds of a PadBeyond of which a value is a map, so that one kernel does both."""
    found = Bounds()
    while (node := graph.producer.get(value)) is not None and node.op in {*MAPS, PAD}:
        if node.op == PAD:
            found |= {_bound(graph, node)}
        operands = [node.used[0]] if node.op == PAD else [id for id in node.used if not _is_number(graph, id)]
        if len(operands) != 1 or graph.type(operands[0]).dims != graph.type(value).dims:
            break
        if len(graph.readers[operands[0]]) > 1 or operands[0] in graph.outputs:
            break
        (value,) = operands
    return found


def _only_map(graph: Graph, value: int) -> tuple[int, ...]:
    """The result of the only reader of a value, where that is a map over the same points."""
    readers = graph.readers[value]
    if len(readers) != 1 or value in graph.outputs or readers[0].op not in MAPS or len(readers[0].outputs) != 1:
        return ()
    (result,) = readers[0].outputs
    return (result,) if graph.type(result).dims == graph.type(value).dims else ()


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


def _bounds_of_readers(graph: Graph, value: int) -> Bounds:
    """Bounds that every reader of a value has itself."""
    readers = graph.readers[value]
    bounds = [
        {_bound(graph, node)} if node.op == PAD and not number_of(node, "value", 0) else set() for node in readers
    ]
    return frozenset[tuple[int, int]]().union(*bounds) if bounds and all(bounds) else Bounds()


def _bound(graph: Graph, node: Node) -> tuple[int, int]:
    value, size = node.used
    return size, axis_of(node, len(graph.type(value).dims))
