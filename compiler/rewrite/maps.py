"""Operators that compute each element of their result from the elements at the same place, and what they follow.

Code generation runs a map on the results of a kernel that sums, while they are in registers; behind a view it is a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.graph import Node
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite.gain import TypeOf

MAPS = having(Trait.ELEMENTWISE) - having(Trait.VIEW)
"""Operators that compute each element from those at its place."""

SUMS = (
    having(Trait.CONTRACTION)
    | having(Trait.POOL)
    | having(Trait.REDUCTION)
    | {"LayerNormalization", "RMSNormalization"}
)
"""Operators whose kernels can run maps on their results."""
FOLLOWING = 8
"""Maps that one kernel runs on its results, one after another."""

Producer = Callable[[int], Node | None]
"""The node that makes a value."""


def distance(value: int, producer: Producer, type_of: TypeOf) -> int | None:
    """How many maps lie between a value and the nearest sum above it of as many elements; None where there is none, or more than FOLLOWING."""
    elements = type_of(value).elements
    level, seen = {value}, {value}
    for maps in range(FOLLOWING + 1):
        above: set[int] = set()
        for node in map(producer, sorted(level)):
            if node is not None and node.op in SUMS:
                return maps
            if node is not None and node.op in MAPS:
                above.update(operand for operand in node.used if type_of(operand).elements == elements)
        level = above - seen
        if not level:
            return None
        seen |= level
    return None


def alone(node: Node, producer: Producer, type_of: TypeOf) -> bool:
    """Whether a node is a map that follows no sum."""
    return node.op in MAPS and distance(node.outputs[0], producer, type_of) is None
