"""What stands around a normalisation, taken into it: scales and biases behind it, casts on both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Node
from compiler.ir.tensor import DType
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View

OVER_AXES = ("LayerNormalization", "RMSNormalization")
OVER_CHANNELS = ("GroupNormalization", "InstanceNormalization")


@dataclass(frozen=True)
class _Affine:
    """A normalisation, its scale and bias, and what the node joins to its result, like them."""

    norm: Node
    scale: np.ndarray
    bias: np.ndarray | None
    operand: np.ndarray


def _affine(view: View, node: Node, ops: tuple[str, ...]) -> _Affine | No | None:
    for value, array in view.operands(node):
        norm = view.producer(value, *ops)
        if norm is None or len(norm.outputs) > 1 or view.type(value) != view.type(node.outputs[0]):
            continue
        scale = view.constant(norm.inputs[1])
        bias_id = norm.inputs[2] if len(norm.inputs) > 2 else None
        bias = view.constant(bias_id)
        if scale is None or (bias_id is not None and bias is None):
            return No(f"the scale or bias of the {norm.op} is not constant")
        if (refusal := view.enclosed(node, [norm])) is not None:
            return refusal
        spread = array.reshape((1,) * (len(view.dims(value)) - array.ndim) + array.shape)
        operand = _parameter(view, norm, spread)
        if operand is None:
            return No(f"a constant of shape {list(array.shape)} varies along axes that are not those of its scale")
        return _Affine(norm, wide(scale), None if bias is None else wide(bias), operand)
    return None


def _parameter(view: View, norm: Node, array: np.ndarray) -> np.ndarray | None:
    """A constant of the rank of a norm's result, in the shape of the norm's scale; None if it varies along others."""
    dims = view.dims(norm.outputs[0])
    axis = norm.attrs.get("axis", -1)
    assert isinstance(axis, int)
    own = {1} if norm.op in OVER_CHANNELS else set(range(axis % len(dims), len(dims)))
    if any(n != 1 and at not in own for at, n in enumerate(array.shape)):
        return None
    tail = tuple(dims[at] for at in sorted(own))
    return np.broadcast_to(wide(array).reshape([array.shape[at] for at in sorted(own)]), tail)


def _with_affine(view: View, node: Node, found: _Affine, scale: np.ndarray, bias: np.ndarray | None) -> Rewrite | No:
    dtype, norm = view.type(node.outputs[0]).dtype, found.norm
    draft = view.draft(node)
    inputs = [norm.used[0]]
    for part in (scale, bias):
        if part is not None:
            constant = rounded(part, dtype)
            if isinstance(constant, No):
                return constant
            inputs.append(draft.constant(constant))
    draft.node(norm.op, tuple(inputs), norm.attrs, norm.source)
    return draft.done(f"{node.op} is folded into the {norm.op}")


def layer_norm_scale(view: View, node: Node) -> Rewrite | No | None:
    """s * layer_normalization(x, a, b) = layer_normalization(x, s a, s b), and so for rms_normalization."""
    return _times(view, node, OVER_AXES)


def layer_norm_bias(view: View, node: Node) -> Rewrite | No | None:
    """layer_normalization(x, a, b) + t = layer_normalization(x, a, b + t)."""
    return _plus(view, node, OVER_AXES[:1])


def group_norm_scale(view: View, node: Node) -> Rewrite | No | None:
    """s * group_normalization(x, a, b) = group_normalization(x, s a, s b), s one number for each channel;
    so for instance_normalization.
    """
    return _times(view, node, OVER_CHANNELS)


def group_norm_bias(view: View, node: Node) -> Rewrite | No | None:
    """group_normalization(x, a, b) + t = group_normalization(x, a, b + t), t one number for each channel;
    so for instance_normalization.
    """
    return _plus(view, node, OVER_CHANNELS)


def _times(view: View, node: Node, ops: tuple[str, ...]) -> Rewrite | No | None:
    found = _affine(view, node, ops)
    if found is None or isinstance(found, No):
        return found
    bias = None if found.bias is None else found.bias * found.operand
    return _with_affine(view, node, found, found.scale * found.operand, bias)


def _plus(view: View, node: Node, ops: tuple[str, ...]) -> Rewrite | No | None:
    found = _affine(view, node, ops)
    if found is None or isinstance(found, No):
        return found
    bias = found.operand if found.bias is None else found.bias + found.operand
    return _with_affine(view, node, found, found.scale, bias)


def norm_between_casts(view: View, node: Node) -> Rewrite | No | None:
    """cast(layer_normalization(cast(x, float), a, b), T) = layer_normalization(x, a, b) for x of T,
    whose sums are float32 anyway.
    """
    norm = view.producer(node.used[0], *OVER_AXES)
    before = None if norm is None else view.producer(norm.used[0], "Cast")
    if norm is None or before is None or len(norm.outputs) > 1:
        return None
    x, dtype = before.used[0], view.type(node.outputs[0]).dtype
    if (
        view.type(x).dtype is not dtype
        or dtype not in (DType.F16, DType.BF16)
        or {view.type(value).dtype for value in (norm.used[0], norm.outputs[0])} != {DType.F32}
    ):
        return None
    arrays = [view.constant(parameter) for parameter in norm.used[1:]]
    narrow = [None if array is None else array.astype(dtype.numpy) for array in arrays]
    if not all(
        a is not None and b is not None and bool((wide(a) == wide(b)).all())
        for a, b in zip(arrays, narrow, strict=True)
    ):
        return No(f"its scale or bias is not known in {dtype}")
    if (refusal := view.enclosed(node, [norm])) is not None:
        return refusal
    draft = view.draft(node)
    parameters = tuple(draft.constant(array) for array in narrow if array is not None)
    draft.node(norm.op, (x, *parameters), norm.attrs, norm.source)
    return draft.done(f"{norm.op} of {dtype} computes in float32")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Mul",), layer_norm_scale),
    Rule(REASSOCIATES, ("Add",), layer_norm_bias),
    Rule(REASSOCIATES, ("Mul",), group_norm_scale),
    Rule(REASSOCIATES, ("Add",), group_norm_bias),
    Rule(REASSOCIATES, ("Cast",), norm_between_casts),
)
