"""Activation functions: elementwise, with attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.ir.expr import Expr, Where
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import TensorType
from compiler.ops.build import call, map_kernel, number
from compiler.ops.elementwise import elementwise, erf, same_type
from compiler.ops.operator import Arrays, Operator, Types


def _attr(node: Node, name: str, default: float) -> float:
    value = node.attrs.get(name)
    return float(value) if isinstance(value, int | float) else default


def with_attributes(
    name: str, defaults: dict[str, float], fn: Callable[..., Expr], reference: Callable[..., Any]
) -> Operator:
    """An elementwise record whose functions also take float attributes, in the order of `defaults`."""

    def values(node: Node) -> list[float]:
        return [_attr(node, attribute, default) for attribute, default in defaults.items()]

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        return map_kernel(name, types, outs[0], lambda x: fn(x, *(number(v, x.dtype) for v in values(node))))

    def evaluate(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        assert arrays[0] is not None
        with np.errstate(all="ignore"):
            return (np.asarray(reference(arrays[0], *values(node))).astype(arrays[0].dtype),)

    return Operator(name, same_type, evaluate, define)


def _zero(x: Expr) -> Expr:
    return number(0, x.dtype)


def _relu(x: Expr) -> Expr:
    return call("max", x, _zero(x))


def _clamp(x: Expr, low: float, high: float) -> Expr:
    return call("min", call("max", x, number(low, x.dtype)), number(high, x.dtype))


def _negative(x: Expr, below: Expr) -> Expr:
    """`below` where x < 0, else x."""
    return Where(call("lt", x, _zero(x)), below, x)


def _softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which cannot overflow."""
    return call("add", _relu(x), call("log1p", call("exp", call("neg", call("abs", x)))))


def _reference_softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _reference_sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _hard_sigmoid(x: Expr, alpha: Expr, beta: Expr) -> Expr:
    return _clamp(call("add", call("mul", x, alpha), beta), 0, 1)


def _elu(x: Expr, alpha: Expr) -> Expr:
    return _negative(x, call("mul", alpha, call("expm1", x)))


def _celu(x: Expr, alpha: Expr) -> Expr:
    return _negative(x, call("mul", alpha, call("expm1", call("div", x, alpha))))


def _selu(x: Expr, alpha: Expr, gamma: Expr) -> Expr:
    return call("mul", gamma, Where(call("gt", x, _zero(x)), x, call("mul", alpha, call("expm1", x))))


def _shrink(x: Expr, bias: Expr, lambd: Expr) -> Expr:
    inside = Where(call("gt", x, lambd), call("sub", x, bias), _zero(x))
    return Where(call("lt", x, call("neg", lambd)), call("add", x, bias), inside)


def _gelu(x: Expr) -> Expr:
    scaled = call("mul", x, number(math.sqrt(0.5), x.dtype))
    half = call("mul", x, number(0.5, x.dtype))
    return call("mul", half, call("add", call("erf", scaled), number(1, x.dtype)))


def _gelu_tanh(x: Expr) -> Expr:
    cube = call("mul", call("mul", x, x), x)
    inner = call("add", x, call("mul", cube, number(0.044715, x.dtype)))
    curve = call("tanh", call("mul", inner, number(math.sqrt(2 / math.pi), x.dtype)))
    return call("mul", call("mul", x, number(0.5, x.dtype)), call("add", curve, number(1, x.dtype)))


def _gelu_record() -> Operator:
    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        return map_kernel("Gelu", types, outs[0], _gelu_tanh if node.attrs.get("approximate") == "tanh" else _gelu)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x = arrays[0]
        assert x is not None
        if node.attrs.get("approximate") == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + erf(x * math.sqrt(0.5))),)

    return Operator("Gelu", same_type, reference, define)


def _clip_record() -> Operator:
    """Clip: its bounds are inputs, usually constant; either may be absent."""

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        low, high = _there(types, 1), _there(types, 2)

        def fn(x: Expr, *bounds: Expr) -> Expr:
            given = list(bounds)
            if low:
                x = call("max", x, given.pop(0))
            return call("min", x, given.pop(0)) if high else x

        return map_kernel("Clip", types, outs[0], fn)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x, low, high = (*arrays, None, None)[:3]
        assert x is not None
        x = x if low is None else np.maximum(x, low)
        return (x if high is None else np.minimum(x, high),)

    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    return Operator("Clip", infer, reference, define)


def _there(types: Types, position: int) -> bool:
    return position < len(types) and types[position] is not None


SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875

OPERATORS: tuple[Operator, ...] = (
    elementwise("Relu", _relu, lambda x: np.maximum(x, np.zeros((), x.dtype))),
    elementwise("Sigmoid", lambda x: call("sigmoid", x), _reference_sigmoid),
    elementwise("Softplus", _softplus, _reference_softplus),
    elementwise("Softsign", lambda x: call("div", x, call("add", number(1, x.dtype), call("abs", x))), lambda x: x / (1 + np.abs(x))),
    elementwise("Mish", lambda x: call("mul", x, call("tanh", _softplus(x))), lambda x: x * np.tanh(_reference_softplus(x))),
    elementwise(
        "HardSwish",
        lambda x: call("mul", x, _hard_sigmoid(x, number(1 / 6, x.dtype), number(0.5, x.dtype))),
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    ),
    with_attributes(
        "Swish", {"alpha": 1.0}, lambda x, a: call("mul", x, call("sigmoid", call("mul", x, a))), lambda x, a: x * _reference_sigmoid(a * x)
    ),
    with_attributes("LeakyRelu", {"alpha": 0.01}, lambda x, a: _negative(x, call("mul", x, a)), lambda x, a: np.where(x < 0, a * x, x)),
    with_attributes("Elu", {"alpha": 1.0}, _elu, lambda x, a: np.where(x < 0, a * np.expm1(x), x)),
    with_attributes("Celu", {"alpha": 1.0}, _celu, lambda x, a: np.where(x < 0, a * np.expm1(x / a), x)),
    with_attributes(
        "Selu", {"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}, _selu, lambda x, a, g: g * np.where(x > 0, x, a * np.expm1(x))
    ),
    with_attributes(
        "ThresholdedRelu", {"alpha": 1.0}, lambda x, a: Where(call("gt", x, a), x, _zero(x)), lambda x, a: np.where(x > a, x, 0)
    ),
    with_attributes("HardSigmoid", {"alpha": 0.2, "beta": 0.5}, _hard_sigmoid, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    with_attributes(
        "Shrink",
        {"bias": 0.0, "lambd": 0.5},
        _shrink,
        lambda x, b, lambd: np.where(x < -lambd, x + b, np.where(x > lambd, x - b, 0)),
    ),
    _gelu_record(),
    _clip_record(),
)

