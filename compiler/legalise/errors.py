"""How far the outputs may be from those of the model, by the bounds of the approximations.

The one rule is |g~(y) - g(x)| <= L(g) |y - x| + |g~ - g|, in the greatest norm: L is the operator's Lipschitz constant,
and the second part is an approximation's own bound. A layer with constant weights has the greatest row sum of |W|; a
product of values |a| e_b + |b| e_a + e_a e_b, with what the operands may hold. The product of such factors grows with
the depth: sound, and soon useless as a promise, which is why a sampled error stands beside it. Where an operator has
no constant (LayerNormalization without a floor under the variance, an unbounded operand) there is no bound: infinity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph, Node
from compiler.legalise.derived import Map, map_of, slope_on
from compiler.legalise.program import Approximation
from compiler.legalise.ranges import EVERYTHING, KEEPS, Range, curve_of, rows
from compiler.ops.attributes import number_of

ONE = KEEPS | {
    "Relu",
    "Clip",
    "AveragePool",
    "GlobalAveragePool",
    "Abs",
    "Neg",
    "Max",
    "Min",
    "Concat",
    "Pad",
    "Softsign",
}
"""Operators with a Lipschitz constant of 1, of the greatest operand's error."""


def propagated(
    graph: Graph, approximations: Mapping[int, Approximation], ranges: Mapping[int, Range]
) -> dict[int, float]:
    """The bound of each value's error; infinity where there is none.

    `graph` is the legalised one, `ranges` what its values and those of the nodes replaced may hold.
    """
    errors: dict[int, float] = dict.fromkeys((*graph.inputs, *graph.constants), 0.0)
    for node in graph.nodes:
        found = approximations.get(node.outputs[0])
        if found is not None and found.joined is not None:
            error = _of_map(*found.joined, errors, ranges)
        else:
            error = _propagated(node if found is None else found.node, errors, ranges, graph)
        if found is not None:
            error += found.bound
        errors |= dict.fromkeys(node.outputs, error)
    return errors


def _propagated(  # noqa: C901 - a table by operator
    node: Node, errors: Mapping[int, float], ranges: Mapping[int, Range], graph: Graph
) -> float:
    given = [errors.get(value, 0.0) for value in node.used]
    if not any(given):
        return 0.0
    curve = curve_of(node)
    if curve is not None:
        return curve.slope * given[0]
    if node.op in ONE:
        return max(given)
    match node.op:
        case "Add" | "Sub" | "Sum":
            return sum(given)
        case "Mul":
            if node.used[0] == node.used[1]:
                return 2 * _most(ranges, node.used[0]) * given[0] + given[0] ** 2
            a, b = (_most(ranges, value) for value in node.used)
            return _times(a, given[1]) + _times(b, given[0]) + given[0] * given[1]
        case "Div" if graph.constants.get(node.used[1]) is not None:
            least = float(np.abs(graph.constants[node.used[1]]).min())
            return given[0] / least if least else math.inf
        case "LeakyRelu":
            return max(1.0, abs(number_of(node, "alpha", 0.01))) * given[0]
        case "HardSigmoid":
            return abs(number_of(node, "alpha", 0.2)) * given[0]
        case "PRelu" if graph.constants.get(node.used[1]) is not None:
            return max(1.0, float(np.abs(graph.constants[node.used[1]]).max())) * given[0]
        case "Softmax":
            return given[0] / 2
        case "Conv" | "MatMul" | "Gemm":
            found = rows(node, graph.constants)
            return math.inf if found is None else float(np.abs(found[0]).sum(axis=1).max()) * given[0]
        case "ReduceSum":
            count = math.prod(graph.type(node.used[0]).dims) / max(1, math.prod(graph.type(node.outputs[0]).dims))
            return count * given[0]
        case "Exp":
            high = ranges.get(node.used[0], (0.0, math.inf))[1] + given[0]
            return math.exp(high) * given[0] if high < 700 else math.inf
        case "Resize" if node.attrs.get("mode") in ("nearest", "linear"):
            return given[0]
        case "Pow":
            low = ranges.get(node.used[0], (0.0, 0.0))[0] - given[0]
            return 0.5 * low**-1.5 * given[0] if low > 0 else math.inf
        case "Reciprocal":
            low = ranges.get(node.used[0], (0.0, 0.0))[0] - given[0]
            return given[0] / low**2 if low > 0 else math.inf
    one = map_of(node, graph.constants)
    if one is None:
        return math.inf
    return _of_map(one, next(value for value in node.used if value not in graph.constants), errors, ranges)


def _of_map(one: Map, value: int, errors: Mapping[int, float], ranges: Mapping[int, Range]) -> float:
    low, high = ranges.get(value, EVERYTHING)
    return _times(slope_on(one, low - errors[value], high + errors[value]), errors[value])


def _most(ranges: Mapping[int, Range], value: int) -> float:
    return max(map(abs, ranges.get(value, (-math.inf, math.inf))))


def _times(size: float, error: float) -> float:
    return 0.0 if error == 0 else size * error
