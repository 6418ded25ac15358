"""What evaluating the float64 reference takes, estimated from the graph before anything is evaluated.

Rates are those of one core of a server, the same on every machine, so that equal models have equal estimates, and equal
refusals. On an idle core networks of the zoo took between a quarter of what is estimated and all of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from compiler.forms.key_bounds import bound_along
from compiler.ir.expr import Apply, Expr, Where, conjuncts
from compiler.ir.graph import Graph, Node
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Routine
from compiler.ir.region import WHILE, Loop
from compiler.ir.tensor import TensorType
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported
from compiler.ops.pieces import PIECE_ELEMENTS
from compiler.prove.reference import is_widened_late

PRODUCT_S = 3e-10
"""Of a multiplication and an addition within a matrix product."""
ELEMENT_S = 2e-9
"""Of any other function of an element, or of reading one."""
STEP_S = 5e-5
"""Of one step of a sequence, whatever it computes: numpy is called some thirty times."""
NODE_S = 2e-5
SORT_S = 1e-7
"""Of an element that a routine sorts."""
UNKNOWN_TURNS = 100
"""Iterations that a loop without a bound is taken to run."""
UNKNOWN_PLACES = 16
"""Places of an axis, such as the rows of a region, that data are taken to leave of more."""
WIDE = 8
"""Bytes of a float in the reference."""
TEMPORARIES = 2
"""Copies of a node's operands and results that it holds besides them, pieces aside."""

PIECES = 2
"""Times the elements of a piece (`compiler.ops.pieces`) that are held while it is made."""


@dataclass(frozen=True)
class Effort:
    """Of one evaluation: wall seconds of each node, in graph order, and the peak of bytes with the node that has it."""

    node_s: tuple[float, ...]
    bytes: int
    largest: Node | None
    slowest: Node | None

    @property
    def seconds(self) -> float:
        """Expected seconds of all nodes."""
        return sum(self.node_s)

    def before(self) -> tuple[float, ...]:
        """Seconds that the nodes before each node take."""
        return tuple(accumulate(self.node_s[:-1], initial=0.0)) if self.node_s else ()


def reference_effort(graph: Graph) -> Effort:
    """Of a static graph; a node without a definition counts as nothing."""
    known: dict[Hashable, tuple[float, int]] = {}
    found: list[tuple[float, int]] = []
    for node in graph.nodes:
        types = tuple(None if value is None else graph.type(value) for value in node.inputs)
        results = tuple(graph.type(value) for value in node.outputs)
        key = node.op, types, results, tuple(sorted(node.attrs.items(), key=lambda attr: attr[0]))
        if key not in known:
            known[key] = _seconds_and_points(node, types, results)
        found.append(known[key])
    peak, largest = _peak(graph, [points for _, points in found])
    slowest = max(range(len(found)), key=found.__getitem__, default=None)
    return Effort(
        tuple(seconds for seconds, _ in found), peak, largest, None if slowest is None else graph.nodes[slowest]
    )


def _seconds_and_points(
    node: Node, types: tuple[TensorType | None, ...], results: tuple[TensorType, ...]
) -> tuple[float, int]:
    """Wall seconds, and the points of the node's largest loop nest."""
    if node.bodies:
        efforts = [reference_effort(body.graph) for body in node.bodies.values()]
        turns = (Loop.of(node).most or UNKNOWN_TURNS) if node.op == WHILE else 1
        bytes = max(effort.bytes for effort in efforts)
        return NODE_S + turns * max(effort.seconds for effort in efforts), -(-bytes // WIDE)
    try:
        kernel = OPERATORS[node.op].define(node, types, results)
    except Unsupported:
        return 0.0, 0
    elements = sum(type.elements for type in (*types, *results) if type is not None)
    if isinstance(kernel, Routine):
        return NODE_S + SORT_S * elements, elements
    steps = prod(axis.extent for axis in kernel.sequential) if kernel.sequential else 0
    blocks = sum(_visited(kernel, block) * _point_seconds(block) for block in kernel.blocks)
    return NODE_S + STEP_S * steps + ELEMENT_S * elements + blocks, max(_points(kernel, one) for one in kernel.blocks)


def _points(kernel: Kernel, block: Block) -> int:
    return prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))


def _visited(kernel: Kernel, block: Block) -> int:
    """Its points, of axes that end at a number that is read UNKNOWN_PLACES at most."""
    ended = _ended_by_data(block)
    return prod(
        min(axis.extent, UNKNOWN_PLACES) if axis in ended else axis.extent
        for axis in (*kernel.shared, *block.axes, *block.reduction)
    )


def _ended_by_data(block: Block) -> set[Axis]:
    """The axes of a reduction beyond whose ends, which data say, a point changes nothing."""
    parts = [part for one in block.values if isinstance(one, Where) for part in conjuncts(one.condition)]
    bounds = ((axis, bound_along(part, axis)) for part in parts for axis in block.reduction)
    return {axis for axis, bound in bounds if bound is not None and bound.is_end and bound.limit.loads}


def _point_seconds(block: Block) -> float:
    if block.monoid == "sum" and all(map(_is_product, block.values)):
        return PRODUCT_S
    return ELEMENT_S * sum(_functions(value) for value in block.values)


def _is_product(value: Expr) -> bool:
    """Of two tensors, which is multiplied as matrices."""
    return any(
        isinstance(part, Apply) and part.function == "mul" and len({load.slot for load in part.loads}) > 1
        for part in value.walk()
    )


def _functions(value: Expr) -> int:
    return max(sum(isinstance(part, Apply) for part in value.walk()), 1)


def _peak(graph: Graph, points: Sequence[int]) -> tuple[int, Node | None]:
    """The most bytes at once, floats being WIDE, and the node that they are held for.

    Constants are widened when read, but for large ones that are read as they are, where they lie.

    The model's inputs are held once more as they are given, and its outputs as they are computed by the artifact.
    """
    last = {value: position for position, node in enumerate(graph.nodes) for value in node.used}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    given = sum(graph.type(value).bytes for value in (*graph.inputs, *graph.outputs))
    alive: dict[int, int] = {}
    peak, largest = given, None
    for position, node in enumerate(graph.nodes):
        held_here = {value for value in (*node.used, *node.outputs) if not is_widened_late(graph, node, value)}
        alive |= {value: _wide_bytes(graph.type(value)) for value in held_here}
        own = sum(alive[value] for value in held_here)
        pieces = PIECES * WIDE * min(PIECE_ELEMENTS, points[position])
        held = given + sum(alive.values()) + TEMPORARIES * own + pieces
        if held > peak:
            peak, largest = held, node
        for value in (*node.used, *node.outputs):
            if last.get(value, position) <= position:
                alive.pop(value, None)
    return peak, largest


def _wide_bytes(type: TensorType) -> int:
    return type.elements * (WIDE if type.dtype.is_float else type.dtype.bytes)
