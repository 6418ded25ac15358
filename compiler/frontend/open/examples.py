"""Integer inputs for which a run means something, found by trying where no rule knows any.

Only the part of the graph that limits of data depend on is computed, by the operators' references.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from compiler.frontend.fold import fold
from compiler.ir.graph import Graph, Node
from compiler.ir.open_shapes import Example, Limit
from compiler.ops import having
from compiler.ops.operator import Operator
from compiler.ops.traits import Trait

ENDS = ((1, 64), (1, 16), (1, 8), (1, 4), (0, 2), (1, 1), (0, 0), (-2, 2))
"""From where to where numbers are drawn, in turn."""
TRIES, WANTED = 6, 4
"""Draws between two ends, and how many examples are enough."""
MOST_COMPARED = 16
"""Numbers that something is compared with which are tried."""
LOGICAL = having(Trait.LOGICAL)
MOST_ELEMENTS = 2**16
"""Of a value that is computed for this."""

Examples = Mapping[int, Sequence[Example]]
"""By number of an input."""


def tried(
    graph: Graph, operators: Mapping[str, Operator], limits: Sequence[Limit], known: Examples, sizes: Mapping[int, int]
) -> Examples:
    """Examples that keep to all limits, for `known` inputs of theirs; the known ones alone where none was found.

    `sizes` has the numbers that the graph is given behind the model's inputs, by value id.
    """
    wanted = [graph.outputs[limit.output] for limit in limits]
    nodes = _behind(graph, wanted)
    read = {id for node in nodes for id in node.used}
    free = [
        number
        for number, id in enumerate(graph.inputs)
        if id in read and id not in sizes and number not in known and graph.type(id).dtype.is_integer
    ]
    touched = {id for node in nodes for id in (*node.used, *node.outputs)}
    if not free or any(graph.type(id).elements > MOST_ELEMENTS for id in touched):
        return known
    compared = [*dict.fromkeys(islice(_compared(graph, nodes), MOST_COMPARED))]
    random = np.random.default_rng(0)
    found: list[dict[int, np.ndarray]] = []
    for low, high in (*ENDS, *((one, one) for one in compared)):
        for turn in range(TRIES):
            given = {}
            for number, id in enumerate(graph.inputs):
                kind = graph.type(id)
                if id not in read:
                    continue
                if id in sizes:
                    drawn = np.array(sizes[id])
                elif number in known:
                    drawn = np.array(known[number][turn % len(known[number])]).reshape(kind.dims)
                elif number in free:
                    drawn = random.integers(low, high, kind.dims, endpoint=True)
                else:
                    drawn = np.asarray(random.standard_normal(kind.dims))
                given[id] = drawn.astype(kind.dtype.numpy)
            if _keeps(graph, operators, nodes, given, zip(limits, wanted, strict=True)):
                found.append(given)
                break
        if len(found) == WANTED:
            break
    if not found:
        return known
    numbers = sorted({*free, *(number for number in known if graph.inputs[number] in read)})
    return {**known, **{number: [_flat(one[graph.inputs[number]]) for one in found] for number in numbers}}


def _compared(graph: Graph, nodes: Sequence[Node]) -> Iterator[int]:
    """Whole numbers that nodes compare something with, such as the sampling rates that a model knows."""
    compared = (id for node in nodes if node.op in LOGICAL for id in node.used if id in graph.constants)
    for array in (graph.constants[id] for id in compared):
        if array.dtype.kind in "iu" and array.size <= MOST_COMPARED:
            yield from map(int, array.reshape(-1))


def _flat(array: np.ndarray) -> Example:
    return tuple(array.reshape(-1).tolist())


def _behind(graph: Graph, wanted: Sequence[int]) -> list[Node]:
    """The nodes that values depend on, in order."""
    needed = set(wanted)
    found: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            found.append(node)
            needed.update(node.used)
    return found[::-1]


def _keeps(
    graph: Graph,
    operators: Mapping[str, Operator],
    nodes: Sequence[Node],
    given: Mapping[int, np.ndarray],
    limits: Iterable[tuple[Limit, int]],
) -> bool:
    """Whether inputs, by value id, keep to limits, each with its value; not where that cannot be computed."""
    values = {**graph.constants, **given}
    try:
        for node in nodes:
            arrays = tuple(None if id is None else values[id] for id in node.inputs)
            values.update(
                zip(
                    node.outputs,
                    fold(operators[node.op], node, arrays, [graph.type(id) for id in node.outputs]),
                    strict=True,
                )
            )
    except Exception:  # a reference trips over numbers that mean nothing
        return False
    return all(one.low <= int(values[id]) <= one.high for one, id in limits)
