"""Scales and shifts by constants move into the weights of the linear operator beside them.

Every such operator is y = W x + b with one row of W and one element of b for each output channel, so that

    s * (W x + b) + t = (s W) x + (s b + t)        and        W (s x) = (W s) x

with s and t constant along everything but the channel. Padding holds zeros, which a scale leaves zero and a shift does not: only a
scale moves into the weights behind it. New weights are computed in float64 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ir.tensor import DType
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View

LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class _Linear:
    """A linear operator with constant weights: which axis of its output, and of its weights, is the channel."""

    node: Node
    weights: np.ndarray
    bias: np.ndarray | None
    channel: int
    """Axis of the output."""
    channels: int

    @property
    def groups(self) -> int:
        group = self.node.attrs.get("group", 1)
        assert isinstance(group, int)
        return group

    def along_rows(self, scale: np.ndarray) -> np.ndarray:
        """A factor for each output channel, or one for all, in the shape that multiplies the weights."""
        if scale.size == 1:
            return scale.reshape(())
        rank = self.weights.ndim
        if self.node.op == "Conv":
            return scale.reshape(-1, *(1,) * (rank - 1))
        if self.node.op == "ConvTranspose":  # [C, M/g, ...]: the group is that of the input channel
            per_group = np.repeat(scale.reshape(self.groups, 1, -1), self.weights.shape[0] // self.groups, 1)
            return per_group.reshape(self.weights.shape[0], -1, *(1,) * (rank - 2))
        return scale.reshape(-1, 1) if self.node.attrs.get("transB", 0) else scale

    def along_columns(self, scale: np.ndarray) -> np.ndarray:
        """A factor for each input channel, or one for all, in the shape that multiplies the weights."""
        if scale.size == 1:
            return scale.reshape(())
        rank = self.weights.ndim
        if self.node.op == "Conv":  # [K, C/g, ...]: the group is that of the output channel
            per_group = np.repeat(scale.reshape(self.groups, 1, -1), self.weights.shape[0] // self.groups, 1)
            return per_group.reshape(self.weights.shape[0], -1, *(1,) * (rank - 2))
        if self.node.op == "ConvTranspose":
            return scale.reshape(-1, *(1,) * (rank - 1))
        if self.node.attrs.get("transB", 0) or rank == 1:
            return scale
        return scale.reshape(-1, 1)


def _linear(view: View, node: Node) -> _Linear | No:
    """The operator with its weights; No where they, or its bias, are not constant."""
    weights = view.constant(node.inputs[1])
    if weights is None:
        return No(f"the weights %{node.inputs[1]} of {node.op} are not constant")
    if not view.type(node.outputs[0]).dtype.is_float:
        return No("integers do not scale")
    bias_id = node.inputs[2] if len(node.inputs) > 2 else None
    bias = view.constant(bias_id)
    if bias_id is not None and bias is None:
        return No(f"the bias %{bias_id} of {node.op} is not constant")
    dims = view.dims(node.outputs[0])
    if node.op == "MatMul" and weights.ndim < 2:
        return No("the product has no channels")
    channel = 1 if node.op in ("Conv", "ConvTranspose") else len(dims) - 1
    return _Linear(node, weights, bias, channel, dims[channel])


def _per_channel(array: np.ndarray, rank: int, channel: int, channels: int) -> np.ndarray | No:
    """A constant that broadcasts to a tensor of this rank as one element per channel, or one element; in float64."""
    if array.size == 1 and array.ndim <= rank:
        return wide(array).reshape(1)
    axis = channel - (rank - array.ndim)
    if array.ndim > rank or axis < 0 or array.shape[axis] != channels or array.size != channels:
        return No(f"a constant of shape {list(array.shape)} is not one number per channel")
    return wide(array).reshape(-1)


def _scaled(
    view: View, root: Node, linear: _Linear, scale: np.ndarray | None, shift: np.ndarray | None, why: str
) -> Rewrite | No:
    """scale * y + shift in the place of `root`, where y is the linear operator's result."""
    node = linear.node
    if (refusal := view.enclosed(root, [node])) is not None:
        return refusal
    dtype = view.type(root.outputs[0]).dtype
    draft = view.draft(root)
    inputs: list[int | None] = list(node.inputs[:2])
    attrs = dict(node.attrs)
    if scale is not None:
        weights = _times(linear.weights, linear.along_rows(scale), dtype)
        if isinstance(weights, No):
            return weights
        inputs[1] = draft.constant(weights)
    bias = _shifted(linear, scale, shift, dtype)
    if isinstance(bias, No):
        return bias
    if bias is not None:
        if node.op == "MatMul":
            return No("a MatMul has no bias")
        inputs.append(draft.constant(bias))
        attrs |= _bias_attrs(node)
    draft.node(node.op, tuple(inputs), attrs, node.source)
    return draft.done(why)


def _bias_attrs(node: Node) -> dict[str, Attr]:
    """The new C of a Gemm is complete: it already holds the old beta."""
    return {"beta": 1.0} if node.op == "Gemm" else {}


def _times(weights: np.ndarray, factors: np.ndarray, dtype: DType) -> np.ndarray | No:
    """The product computed in float64, rounded once, without a float64 copy of the weights."""
    result = np.empty(weights.shape, dtype.numpy)
    with np.errstate(all="ignore"):
        if dtype is DType.BF16:
            return rounded(wide(weights) * factors, dtype)
        np.multiply(weights, factors, out=result, dtype=np.float64, casting="same_kind")
    return result if bool(np.isfinite(result).all()) else No(f"scaled weights would not be finite in {dtype}")


def _shifted(
    linear: _Linear, scale: np.ndarray | None, shift: np.ndarray | None, dtype: DType
) -> np.ndarray | No | None:
    """The new bias; None where there is none."""
    if linear.bias is None and shift is None:
        return None
    beta = linear.node.attrs.get("beta", 1.0) if linear.node.op == "Gemm" else 1.0
    assert isinstance(beta, int | float)
    total = np.zeros(linear.channels) if linear.bias is None else wide(linear.bias) * beta
    if linear.node.op == "Gemm" and linear.bias is not None and total.ndim < 1:
        total = total.reshape(1)
    with np.errstate(all="ignore"):
        total = total if scale is None else total * scale
        total = total if shift is None else total + shift
    return rounded(total, dtype)


def _into_producer(
    view: View, root: Node, value: int, scale: np.ndarray | None, shift: np.ndarray | None
) -> Rewrite | No | None:
    """`scale` and `shift`, constants as `root` broadcasts them, into the linear operator that makes `value`."""
    producer = view.producer(value, *LINEAR)
    if producer is None or view.type(value) != view.type(root.outputs[0]):
        return None
    if shift is not None and producer.op == "MatMul":
        return None  # an Add after a MatMul is its bias already
    linear = _linear(view, producer)
    if isinstance(linear, No):
        return linear
    rank = len(view.dims(value))
    parts: list[np.ndarray | None] = []
    for part in (scale, shift):
        spread = None if part is None else _per_channel(part, rank, linear.channel, linear.channels)
        if isinstance(spread, No):
            return spread
        parts.append(spread)
    factor, offset = parts
    what = f"{root.op} is folded into the {'weights' if scale is not None else 'bias'} of {producer.op}"
    return _scaled(view, root, linear, factor, offset, what)


def batch_norm_into_weights(view: View, node: Node) -> Rewrite | No | None:
    """batch_norm(W x + b) = (f W) x + (f (b - mean) + bias), where f = scale / sqrt(variance + epsilon)."""
    producer = view.producer(node.used[0], *LINEAR)
    if producer is None:
        return None
    factors = _batch_norm(view, node)
    if isinstance(factors, No):
        return factors
    linear = _linear(view, producer)
    if isinstance(linear, No):
        return linear
    if linear.channel != 1:
        return No(f"the channels of {producer.op} are on axis {linear.channel}, those of BatchNormalization on axis 1")
    if producer.op == "MatMul":
        return None
    return _scaled(view, node, linear, *factors, f"BatchNormalization is folded into the weights of {producer.op}")


def batch_norm_alone(view: View, node: Node) -> Rewrite | No | None:
    """batch_norm(x) = x * f + (bias - mean * f), where f = scale / sqrt(variance + epsilon)."""
    factors = _batch_norm(view, node)
    if isinstance(factors, No):
        return factors
    type = view.type(node.outputs[0])
    draft, shape = view.draft(node), (-1, *(1,) * (type.rank - 2))
    value = node.used[0]
    for op, factor in zip(("Mul", "Add"), factors, strict=True):
        constant = rounded(factor.reshape(shape), type.dtype)
        if isinstance(constant, No):
            return constant
        value = draft.node(op, (value, draft.constant(constant)))
    return draft.done("BatchNormalization becomes one multiplication and one addition")


def _batch_norm(view: View, node: Node) -> tuple[np.ndarray, np.ndarray] | No:
    """Factor and shift of each channel, in float64."""
    arrays = [view.constant(value) for value in node.inputs[1:5]]
    if len(node.outputs) > 1 or node.attrs.get("training_mode", 0):
        return No("BatchNormalization is in training mode")
    if any(array is None for array in arrays):
        return No("a parameter of BatchNormalization is not constant")
    scale, bias, mean, variance = (wide(array) for array in arrays if array is not None)
    epsilon = node.attrs.get("epsilon", 1e-5)
    assert isinstance(epsilon, int | float)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - mean * factor
    if not bool((np.isfinite(factor) & np.isfinite(shift)).all()):
        return No("a factor of BatchNormalization is not finite")
    return factor, shift


def scale_into_weights(view: View, node: Node) -> Rewrite | No | None:
    """s * (W x + b) = (s W) x + s b."""
    for value, array in view.operands(node):
        if node.op == "Div":
            if value != node.inputs[0]:
                continue
            with np.errstate(all="ignore"):
                array = 1.0 / wide(array)
        if (found := _into_producer(view, node, value, array, None)) is not None:
            return found
    return None


def scale_past_shift(view: View, node: Node) -> Rewrite | No | None:
    """s * (W x + t) = (s W) x + s t, where the shift is an Add of its own."""
    for value, array in view.operands(node):
        add = view.producer(value, "Add")
        if add is None or view.type(value) != view.type(node.outputs[0]):
            continue
        for product, shift in view.operands(add):
            matmul = view.producer(product, "MatMul")
            if matmul is None or view.type(product) != view.type(value):
                continue
            linear = _linear(view, matmul)
            return linear if isinstance(linear, No) else _past_shift(view, node, [add, matmul], linear, array, shift)
    return None


def _past_shift(
    view: View, root: Node, swallowed: list[Node], linear: _Linear, array: np.ndarray, shift: np.ndarray
) -> Rewrite | No:
    type = view.type(root.outputs[0])
    scale = _per_channel(array, type.rank, linear.channel, linear.channels)
    if isinstance(scale, No):
        return scale
    if (refusal := view.enclosed(root, swallowed)) is not None:
        return refusal
    weights = _times(linear.weights, linear.along_rows(scale), type.dtype)
    moved = rounded(wide(shift) * scale, type.dtype)  # the channel is the last axis of both
    if isinstance(weights, No) or isinstance(moved, No):
        return weights if isinstance(weights, No) else No("the shift would not be finite")
    draft = view.draft(root)
    product = draft.node("MatMul", (linear.node.used[0], draft.constant(weights)), {}, linear.node.source)
    draft.node("Add", (product, draft.constant(moved)))
    return draft.done("the scale is folded into the weights of MatMul and the shift after it")


def shift_into_bias(view: View, node: Node) -> Rewrite | No | None:
    """(W x + b) + t = W x + (b + t)."""
    for value, array in view.operands(node):
        if (found := _into_producer(view, node, value, None, array)) is not None:
            return found
    return None


def scale_before_weights(view: View, node: Node) -> Rewrite | No | None:
    """W (s x) = (W s) x."""
    multiply = view.producer(node.used[0], "Mul")
    if multiply is None:
        return None
    for value, array in view.operands(multiply):
        if view.type(value) != view.type(multiply.outputs[0]) or not view.type(value).dtype.is_float:
            return No("the scale makes its operand larger")
        if (weights := view.constant(node.inputs[1])) is None:
            return No(f"the weights %{node.inputs[1]} of {node.op} are not constant")
        if (refusal := view.enclosed(node, [multiply])) is not None:
            return refusal
        linear = _Linear(node, weights, None, 0, 0)
        dims = view.dims(value)
        channel = _input_channel(node, dims)
        scale = _per_channel(array, len(dims), channel, dims[channel])
        if isinstance(scale, No):
            return scale
        new = _times(weights, linear.along_columns(scale), view.type(value).dtype)
        if isinstance(new, No):
            return new
        draft = view.draft(node)
        draft.node(node.op, (value, draft.constant(new), *node.inputs[2:]), node.attrs)
        return draft.done(f"the scale before {node.op} is folded into its weights")
    return None


def _input_channel(node: Node, dims: tuple[int, ...]) -> int:
    if node.op in ("Conv", "ConvTranspose"):
        return 1
    return 0 if node.attrs.get("transA", 0) else len(dims) - 1


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("BatchNormalization",), batch_norm_into_weights),
    Rule(REASSOCIATES, ("BatchNormalization",), batch_norm_alone),
    Rule(REASSOCIATES, ("Mul", "Div"), scale_into_weights),
    Rule(REASSOCIATES, ("Mul",), scale_past_shift),
    Rule(REASSOCIATES, ("Add",), shift_into_bias),
    Rule(REASSOCIATES, LINEAR, scale_before_weights),
)
