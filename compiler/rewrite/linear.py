"""Linear operators with constant weights: y = W x + b with one row of W, and one element of b, for each output channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Node
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.view import Draft, No, View

LINEAR = tuple(sorted(having(Trait.LINEAR)))


@dataclass(frozen=True)
class Linear:
    """A linear operator: which axis of its output is the channel, and how its weights lie."""

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

    def folded(
        self, scale: np.ndarray | None, shift: np.ndarray | None, dtype: DType
    ) -> tuple[np.ndarray | None, np.ndarray | None] | No:
        """New weights and the new bias of scale * y + shift, with an element for each channel or one for all; None where the old ones stay."""
        weights = None if scale is None else times(self.weights, self.along_rows(scale), dtype)
        bias = self._shifted(scale, shift, dtype)
        if isinstance(weights, No) or isinstance(bias, No):
            return weights if isinstance(weights, No) else No("a bias would not be finite")
        if bias is not None and self.node.op == "MatMul":
            return No("a MatMul has no bias")
        return weights, bias

    def _shifted(self, scale: np.ndarray | None, shift: np.ndarray | None, dtype: DType) -> np.ndarray | No | None:
        if self.bias is None and shift is None:
            return None
        beta = self.node.attrs.get("beta", 1.0) if self.node.op == "Gemm" else 1.0
        assert isinstance(beta, int | float)
        total = np.zeros(self.channels) if self.bias is None else wide(self.bias) * beta
        if self.node.op == "Gemm" and self.bias is not None and total.ndim < 1:
            total = total.reshape(1)
        with np.errstate(all="ignore"):
            total = total if scale is None else total * scale
            total = total if shift is None else total + shift
        return rounded(total, dtype)

    def write(self, draft: Draft, weights: np.ndarray | None, bias: np.ndarray | None) -> int:
        """The operator with what `folded` gave."""
        node = self.node
        inputs: list[int | None] = list(node.inputs[:2])
        attrs = dict(node.attrs)
        if weights is not None:
            inputs[1] = draft.constant(weights)
        if bias is not None:
            inputs.append(draft.constant(bias))
            if node.op == "Gemm":
                attrs["beta"] = 1.0  # the new C already holds the old one
        return draft.node(node.op, tuple(inputs), attrs, node.source)


def linear_of(view: View, node: Node) -> Linear | No:
    """A linear operator with its weights; No where they, or its bias, are not constant."""
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
    return Linear(node, weights, bias, channel, dims[channel])


def input_channel(node: Node, dims: tuple[int, ...]) -> int:
    """The axis of a linear operator's input, of extents `dims`, that it sums over."""
    if node.op in ("Conv", "ConvTranspose"):
        return 1
    return 0 if node.attrs.get("transA", 0) else len(dims) - 1


def per_channel(array: np.ndarray, rank: int, channel: int, channels: int) -> np.ndarray | No:
    """A constant that broadcasts to a tensor of this rank as one element per channel, or one element; in float64."""
    if array.size == 1 and array.ndim <= rank:
        return wide(array).reshape(1)
    axis = channel - (rank - array.ndim)
    if array.ndim > rank or axis < 0 or array.shape[axis] != channels or array.size != channels:
        return No(f"a constant of shape {list(array.shape)} is not one number per channel")
    return wide(array).reshape(-1)


def times(weights: np.ndarray, factors: np.ndarray, dtype: DType) -> np.ndarray | No:
    """The product computed in float64, rounded once, without a float64 copy of the weights."""
    result = np.empty(weights.shape, dtype.numpy)
    with np.errstate(all="ignore"):
        if dtype is DType.BF16:
            return rounded(wide(weights) * factors, dtype)
        np.multiply(weights, factors, out=result, dtype=np.float64, casting="same_kind")
    return result if bool(np.isfinite(result).all()) else No(f"scaled weights would not be finite in {dtype}")
