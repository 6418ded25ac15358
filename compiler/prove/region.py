"""What a region (`compiler.ir.region`) means: its bodies evaluated as often as their conditions say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.errors import InputsError
from compiler.ir.graph import Graph, Node
from compiler.ir.region import WHILE, Loop
from compiler.ops.operator import Arrays

MOST_TURNS = 1 << 16
"""Iterations after which a loop that nothing but data ends counts as one that does not end."""
Evaluate = Callable[[Graph, Sequence[np.ndarray]], list[np.ndarray]]
"""Values of a body's outputs for those of its inputs."""


def evaluate_region(
    graph: Graph, node: Node, arrays: Arrays, evaluate: Evaluate, watch: Callable[[float], None]
) -> list[np.ndarray]:
    """Results of a region of a graph from its operands.

    `watch` gets which part of the iterations is done. Raises InputsError for a loop that these inputs do not end.
    """
    if node.op == WHILE:
        return _while(graph, node, arrays, evaluate, watch)
    condition, *outer = arrays
    assert condition is not None
    body = node.bodies["then" if bool(condition.reshape(())) else "else"]
    return evaluate(body.graph, [array for array in outer if array is not None])


def _while(
    graph: Graph, node: Node, arrays: Arrays, evaluate: Evaluate, watch: Callable[[float], None]
) -> list[np.ndarray]:
    loop, body = Loop.of(node), node.bodies["body"].graph
    trips, going = arrays[:2]
    given = [array for array in arrays[2:] if array is not None]
    carried, outer = given[: loop.carried], given[loop.carried :]
    rows: list[list[np.ndarray]] = []
    limit = None if trips is None else int(trips)
    goes = going is None or bool(going)
    while goes and (limit is None or len(rows) < limit) and (not loop.most or len(rows) < loop.most):
        found = evaluate(body, [np.array(len(rows), np.int64), *carried, *outer])
        if loop.decides:
            goes = bool(found[0])
        carried = found[loop.decides : loop.rows]
        rows.append(found[loop.rows :])
        if loop.most:
            watch(len(rows) / loop.most)
        elif len(rows) > MOST_TURNS:
            raise InputsError(
                f"these inputs let node {node.source!r} run more than {MOST_TURNS} times",
                fix="give samples of inputs that the model takes",
                details={"node": node.source},
            )
    stacks = []
    for place in range(loop.columns):
        column = [row[place] for row in rows]
        type = graph.type(node.outputs[loop.carried + place])
        whole = np.zeros(type.dims, column[0].dtype if column else type.dtype.numpy)
        if column:
            whole[: len(column)] = column
        stacks.append(whole)
    return [*carried, *stacks, np.array(len(rows), np.int64)]
