"""What rounding some of a model's values to a 16-bit float does to its outputs, by numpy in float32.

A kernel that multiplies in bf16 or fp16 rounds what it multiplies, and one whose results lie in memory so rounds these.
Both are written into the graph as casts to that type and back; sums stay in float32, as in the kernels. What no cast
reaches is not computed again: of a single kernel only what follows it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from compiler.errors import InputsError, UnsupportedModel
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import having
from compiler.ops.cast import ONNX_DTYPES
from compiler.ops.traits import Trait
from compiler.prove.agree import compare, distance
from compiler.prove.reference import Operators, evaluate_graph

MULTIPLIES = having(Trait.CONTRACTION)
LINEAR = having(Trait.LINEAR)
NUMBERS: Mapping[DType, int] = {dtype: number for number, dtype in ONNX_DTYPES.items()}
"""What a Cast is to, as ONNX counts types."""


def rounded(graph: Graph, multiplied: Collection[int], stored: Collection[int], element: DType) -> Graph:
    """The graph in which float32 operands of the products at these positions, and these values, are rounded.

    An operand that is only added, as a bias, keeps all its digits. Values keep their ids; rounded ones have new ids.

    stored   results of nodes, and constants
    element  the 16-bit float that they are rounded to
    """
    fresh = count(max(graph.values, default=0) + 1)
    values: dict[int, Value] = dict(graph.values)
    nodes: list[Node] = []
    instead: dict[int, int] = {}
    made: dict[int, int] = {}

    def shortened(value: int) -> int:
        if value not in made:
            short, wide = next(fresh), next(fresh)
            type = graph.type(value)
            values[short], values[wide] = Value(short, TensorType(element, type.shape)), Value(wide, type)
            nodes.append(Node("Cast", (value,), (short,), {"to": NUMBERS[element]}))
            nodes.append(Node("Cast", (short,), (wide,), {"to": NUMBERS[type.dtype]}))
            made[value] = wide
        return made[value]

    instead |= {value: shortened(value) for value in sorted({*graph.constants} & {*stored})}
    for position, node in enumerate(graph.nodes):
        inputs = [instead.get(value, value) if value is not None else None for value in node.inputs]
        if position in multiplied:
            factors = 2 if node.op in LINEAR else len(inputs)
            for place, value in enumerate(node.inputs[:factors]):
                if value is not None and value not in instead and graph.type(value).dtype is DType.F32:
                    inputs[place] = shortened(value)
        nodes.append(replace(node, inputs=tuple(inputs)))
        for value in node.outputs:
            if value in stored and graph.type(value).dtype is DType.F32:
                instead[value] = shortened(value)
    return replace(graph, nodes=tuple(nodes), values=values)


@dataclass(frozen=True)
class Case:
    """A graph's values by id on some inputs, in float32."""

    graph: Graph
    values: Mapping[int, np.ndarray]
    operators: Operators

    @property
    def is_finite(self) -> bool:
        """Whether any output has a finite number."""
        arrays = [self.values[id] for id in self.graph.outputs]
        return any(not array.size or bool(np.isfinite(array.astype(np.float64)).any()) for array in arrays)

    def error(self, changed: Graph) -> float:
        """How far the outputs of a graph that `rounded` made are from those of this one, as agreement has it.

        The furthest output counts; infinite where one is not finite any more.
        """
        reached = {id for id in changed.values if id not in self.graph.values}
        nodes = []
        for node in changed.nodes:
            if not reached.isdisjoint((*node.used, *node.outputs)):
                nodes.append(node)
                reached |= {*node.outputs}
        outputs = tuple(id for id in changed.outputs if id in reached)
        known = {id: array for id, array in self.values.items() if id not in reached}
        partial = replace(changed, nodes=tuple(nodes), outputs=outputs)
        found = evaluate_graph(partial, known, self.operators, wide=False)
        values = [self.graph.values[id] for id in outputs]
        errors = compare([found[id] for id in outputs], [self.values[id] for id in outputs], values)
        return max((distance(value, one) for value, one in zip(values, errors, strict=True)), default=0.0)


def cases(
    graph: Graph, inputs: Iterable[Mapping[int, np.ndarray]], operators: Operators, most: int, most_bytes: int
) -> list[Case]:
    """The first `most` inputs, by value id, on which the graph has a finite result; others show nothing.

    All values are kept, so there are only as many as fit into `most_bytes`.
    """
    kept = {id for node in graph.nodes for id in (*node.used, *node.outputs)} - {*graph.constants}
    each = sum(graph.type(id).bytes for id in kept if graph.type(id).is_static)
    found: list[Case] = []
    for given in inputs:
        if len(found) >= most or (len(found) + 1) * each > most_bytes:
            break
        try:
            values = evaluate_graph(graph, given, operators, wide=False, keep=kept | {*graph.inputs})
        except (InputsError, UnsupportedModel):
            continue
        case = Case(graph, values, operators)
        if case.is_finite:
            found.append(case)
    return found


def largest_error(judged: Sequence[Case], changed: Graph, most: float = math.inf) -> float:
    """Over all cases, or up to the first one beyond `most`."""
    worst = 0.0
    for case in judged:
        worst = max(worst, case.error(changed))
        if worst > most:
            break
    return worst
