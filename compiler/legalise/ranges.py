"""What values may hold, given what the inputs may hold: an interval for each tensor, forwards through the operators.

Intervals are of the reals: rounding is not counted. A value of which nothing is known has infinite ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from compiler.ir.graph import Node
from compiler.legalise.curves import ERF, GELU, GELU_TANH, HARD_SWISH, MISH, SIGMOID, SILU, SOFTPLUS, TANH, Curve, elu
from compiler.legalise.derived import map_of, values_on
from compiler.ops import having
from compiler.ops.attributes import number_of
from compiler.ops.traits import Trait

Range: TypeAlias = tuple[float, float]
EVERYTHING: Range = (-math.inf, math.inf)
KEEPS = (having(Trait.MOVES) | {"MaxPool", "ReduceMax", "ReduceMin", "ReduceMean", "GlobalMaxPool", "Identity"}) - {
    "Pad",
    "GatherND",
}
AVERAGES = frozenset({"AveragePool", "GlobalAveragePool", "Resize"})


def curve_of(node: Node) -> Curve | None:
    """The function of one variable that a node applies; None where it is none of those known here."""
    match node.op:
        case "Sigmoid":
            return SIGMOID
        case "Tanh":
            return TANH
        case "Erf":
            return ERF
        case "Softplus":
            return SOFTPLUS
        case "Gelu":
            return GELU_TANH if node.attrs.get("approximate") == "tanh" else GELU
        case "Swish":
            return SILU if number_of(node, "alpha", 1.0) == 1.0 else None
        case "Mish":
            return MISH
        case "HardSwish":
            return HARD_SWISH
        case "Elu":
            return elu(number_of(node, "alpha", 1.0)) if number_of(node, "alpha", 1.0) > 0 else None
    return None


def of_array(array: np.ndarray) -> Range:
    """The ends of a constant; everything where it holds something that is no number."""
    if array.dtype.kind not in "fiub" or not array.size or not np.isfinite(array).all():
        return EVERYTHING
    return float(array.min()), float(array.max())


def transfer(  # noqa: C901 - a table by operator
    node: Node,
    given: tuple[Range | None, ...],
    dims: Callable[[int], tuple[int, ...]],
    constants: Mapping[int, np.ndarray],
) -> Range:
    """What a node's results may hold; `given` is what each of its inputs may."""
    x = given[0] if given and given[0] is not None else EVERYTHING
    curve = curve_of(node)
    if curve is not None:
        return _of_curve(curve, x)
    match node.op:
        case "Add" | "Sum":
            some = [one for one in given if one is not None]
            return sum(one[0] for one in some), sum(one[1] for one in some)
        case "Sub" if given[1] is not None:
            return x[0] - given[1][1], x[1] - given[1][0]
        case "Mul" if given[1] is not None:
            if node.inputs[0] == node.inputs[1]:
                return _squared(x)
            return _products(x, given[1])
        case "Div" if given[1] is not None and given[1][0] > 0:
            return _products(x, (1 / given[1][1], 1 / given[1][0]))
        case "Neg":
            return -x[1], -x[0]
        case "Relu":
            return max(x[0], 0.0), max(x[1], 0.0)
        case "LeakyRelu":
            alpha = number_of(node, "alpha", 0.01)
            below = [end * alpha for end in x if end < 0]
            return min([x[0], *below]), max([x[1], *below])
        case "Clip":
            low = given[1] if len(given) > 1 and given[1] is not None else (-math.inf, -math.inf)
            high = given[2] if len(given) > 2 and given[2] is not None else (math.inf, math.inf)
            return min(max(x[0], low[0]), high[1]), min(max(x[1], low[0]), high[1])
        case "Abs":
            return (0.0 if x[0] <= 0 <= x[1] else min(map(abs, x))), max(map(abs, x))
        case "Max" | "Min":
            chosen = max if node.op == "Max" else min
            some = [one for one in given if one is not None]
            return chosen(one[0] for one in some), chosen(one[1] for one in some)
        case "Exp":
            return _exp(x[0]), _exp(x[1])
        case "Sqrt" if x[0] >= 0:
            return math.sqrt(x[0]), math.sqrt(x[1])
        case "Reciprocal" if x[0] > 0:
            return 1 / x[1], 1 / x[0]
        case "Pow" if x[0] > 0 and given[1] == (-0.5, -0.5):
            return (0.0 if math.isinf(x[1]) else x[1] ** -0.5), x[0] ** -0.5
        case "HardSigmoid" | "Softmax":
            return 0.0, 1.0
        case "LayerNormalization" if len(node.outputs) == 1:
            return _normalised(node, dims, given)
        case "ReduceSum":
            count = math.prod(dims(node.used[0])) // max(1, math.prod(dims(node.outputs[0])))
            return x[0] * count, x[1] * count
        case "Conv" | "MatMul" | "Gemm":
            return _weighted(node, x, constants)
        case "Pad":
            return min(x[0], 0.0), max(x[1], 0.0)
        case "Concat":
            some = [one for one in given if one is not None]
            return min(one[0] for one in some), max(one[1] for one in some)
    if node.op in AVERAGES and not (node.op == "Resize" and node.attrs.get("mode") == "cubic"):
        return (min(x[0], 0.0), max(x[1], 0.0)) if node.attrs.get("count_include_pad") else x
    return x if node.op in KEEPS else _of_map(node, given, constants)


def _of_map(node: Node, given: tuple[Range | None, ...], constants: Mapping[int, np.ndarray]) -> Range:
    one = map_of(node, constants)
    if one is None:
        return EVERYTHING
    varying = next(value for value in node.inputs if value is not None and value not in constants)
    return values_on(one, *(given[node.inputs.index(varying)] or EVERYTHING))


def _of_curve(curve: Curve, x: Range) -> Range:
    ends = [_at(curve, end) for end in x]
    if curve.least is not None and x[0] <= curve.least[0] <= x[1]:
        ends.append(curve.least[1] - 1e-9)
    return min(ends), max(ends)


def _at(curve: Curve, x: float) -> float:
    if math.isinf(x):
        slope, value = (curve.left, curve.left_value) if x < 0 else (curve.right, curve.right_value)
        return value if slope == 0 else x
    return float(curve.function(np.array([x]))[0])


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _squared(x: Range) -> Range:
    ends = [end * end for end in x]
    return (0.0 if x[0] <= 0 <= x[1] else min(ends)), max(ends)


def _products(a: Range, b: Range) -> Range:
    ends = [0.0 if 0 in (one, two) else one * two for one in a for two in b]
    return min(ends), max(ends)


def _normalised(node: Node, dims: Callable[[int], tuple[int, ...]], given: tuple[Range | None, ...]) -> Range:
    """|x - mean| / sqrt(variance) <= sqrt(n - 1) for n numbers."""
    shape, axis = dims(node.used[0]), node.attrs.get("axis", -1)
    count = math.prod(shape[axis if isinstance(axis, int) else -1 :])
    most = math.sqrt(max(count - 1, 0))
    scaled = _products((-most, most), given[1] or (1.0, 1.0))
    shift = given[2] if len(given) > 2 and given[2] is not None else (0.0, 0.0)
    return scaled[0] + shift[0], scaled[1] + shift[1]


def rows(node: Node, constants: Mapping[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """The weights of a layer, a row for each of its results, and its bias; None where they are computed."""
    if len(node.used) < 2 or node.used[1] not in constants:
        return None
    weights = constants[node.used[1]].astype(np.float64)
    if node.op == "MatMul":
        if weights.ndim < 2:
            return None
        made = np.moveaxis(weights, -1, 0).reshape(weights.shape[-1], -1) if weights.ndim == 2 else None
        return None if made is None else (made, np.zeros(len(made)))
    if node.op == "Gemm":
        made = (weights if node.attrs.get("transB") else weights.T) * number_of(node, "alpha", 1.0)
    else:
        made = weights.reshape(len(weights), -1)
    bias = np.zeros(len(made))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        array = constants.get(node.inputs[2])
        if array is None or array.size not in (1, len(made)):
            return None
        bias = bias + array.reshape(-1).astype(np.float64) * (number_of(node, "beta", 1.0) if node.op == "Gemm" else 1)
    return made, bias


def _weighted(node: Node, x: Range, constants: Mapping[int, np.ndarray]) -> Range:
    found = rows(node, constants)
    if found is None or not all(map(math.isfinite, x)):
        return EVERYTHING
    weights, bias = found
    low, high = x
    if node.op == "Conv" and any(int(pad) for pad in _pads(node)):
        low, high = min(low, 0.0), max(high, 0.0)
    above, below = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
    return float((bias + above * low + below * high).min()), float((bias + above * high + below * low).max())


def _pads(node: Node) -> tuple[int, ...]:
    pads = node.attrs.get("pads") or ()
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return (1,)
    return tuple(pad for pad in pads if isinstance(pad, int)) if isinstance(pads, tuple) else ()
