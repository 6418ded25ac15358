"""Activation functions: maps of one element, with attributes or bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.ir.expr import Expr, Where
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.arrays import as_array
from compiler.ops.attributes import number_of, word_of
from compiler.ops.build import call, cast, map_kernel, number
from compiler.ops.elementwise import elementwise, same_type, unary
from compiler.ops.error_function import erf
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of, arrays_at, given, optional, present
from compiler.ops.traits import PLAIN, Trait

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
NONE: Mapping[str, float] = MappingProxyType({})
UNARY_MAP = Trait.ELEMENTWISE | Trait.UNARY


def activation(
    name: str,
    fn: Callable[..., Expr],
    reference: Callable[..., Any],
    defaults: Mapping[str, float] = NONE,
    traits: Trait = PLAIN,
) -> Operator:
    """A record whose functions take the element and then the float attributes, in the order of `defaults`.

    Halves are computed in f32 and rounded once, integers (of a Shrink) in f64 and truncated. `traits` are
    those beside UNARY_MAP.
    """

    def numbers(node: Node) -> list[float]:
        return [number_of(node, attribute, default) for attribute, default in defaults.items()]

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        def curve(x: Expr) -> Expr:
            wide = cast(x, accumulator_of(x.dtype) if x.dtype.is_float else DType.F64)
            return fn(wide, *(number(value, wide.dtype) for value in numbers(node)))

        return map_kernel(name, types, outs[0], curve)

    def evaluate(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        with np.errstate(all="ignore"):
            return (as_array(reference(x, *numbers(node))).astype(x.dtype),)

    return Operator(name, same_type, evaluate, define, traits=UNARY_MAP | traits)


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
    return as_array(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _reference_sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return as_array(np.where(x < 0, e, 1) / (1 + e))


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


def _softsign(x: Expr) -> Expr:
    return call("div", x, call("add", number(1, x.dtype), call("abs", x)))


def _mish(x: Expr) -> Expr:
    """x tanh(log(1 + e)) as x n / (n + 2) for e = exp(x), n = e (e + 2).

    From 20 on the factor is 1 in any float, and e would overflow.
    """
    e = call("exp", call("min", x, number(20, x.dtype)))
    n = call("mul", e, call("add", e, number(2, x.dtype)))
    return call("mul", x, call("div", n, call("add", n, number(2, x.dtype))))


def _hard_swish(x: Expr) -> Expr:
    return call("mul", x, _hard_sigmoid(x, number(1 / 6, x.dtype), number(0.5, x.dtype)))


def _swish(x: Expr, alpha: Expr) -> Expr:
    return call("mul", x, call("sigmoid", call("mul", x, alpha)))


def _leaky_relu(x: Expr, alpha: Expr) -> Expr:
    return _negative(x, call("mul", x, alpha))


def _thresholded(x: Expr, alpha: Expr) -> Expr:
    return Where(call("gt", x, alpha), x, _zero(x))


def _reference_selu(x: np.ndarray, alpha: float, gamma: float) -> np.ndarray:
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


def _reference_shrink(x: np.ndarray, bias: float, lambd: float) -> np.ndarray:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _gelu(x: Expr) -> Expr:
    scaled = call("mul", x, number(math.sqrt(0.5), x.dtype))
    half = call("mul", x, number(0.5, x.dtype))
    return call("mul", half, call("add", call("erf", scaled), number(1, x.dtype)))


def _gelu_tanh(x: Expr) -> Expr:
    """x (1 + tanh(u)) / 2 as x sigmoid(2 u), which loses no digits where the tanh is near -1."""
    cube = call("mul", call("mul", x, x), x)
    inner = call("add", x, call("mul", cube, number(0.044715, x.dtype)))
    return call("mul", x, call("sigmoid", call("mul", inner, number(2 * math.sqrt(2 / math.pi), x.dtype))))


def _gelu_record() -> Operator:
    """Gelu, exactly by erf or approximated by tanh."""
    exact = activation("Gelu", _gelu, lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))))
    approximate = activation("Gelu", _gelu_tanh, _reference_gelu_tanh)

    def chosen(node: Node) -> Operator:
        return approximate if word_of(node, "approximate", "none", "tanh") == "tanh" else exact

    return Operator(
        "Gelu",
        lambda node, types: chosen(node).infer(node, types),
        lambda node, arrays: chosen(node).reference(node, arrays),
        lambda node, types, outs: chosen(node).define(node, types, outs),
        traits=UNARY_MAP,
    )


def _reference_gelu_tanh(x: np.ndarray) -> np.ndarray:
    return as_array(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _infer_prelu(node: Node, types: Types) -> tuple[TensorType, ...]:
    """The slope broadcasts to the input, never the other way round."""
    (result,) = same_type(node, types)
    if result.shape != given(types, 0).shape:
        reason = f"slope {given(types, 1)} does not broadcast to {given(types, 0)}"
        raise Unsupported(reason, "export with one slope, or one for each channel")
    return (result,)


def _clip_record() -> Operator:
    """Clip: its bounds are inputs, usually constant; either may be absent."""

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        low, high = present(types, 1), present(types, 2)

        def fn(x: Expr, *bounds: Expr) -> Expr:
            waiting = iter(bounds)
            x = call("max", x, next(waiting)) if low else x
            return call("min", x, next(waiting)) if high else x

        return map_kernel("Clip", types, outs[0], fn)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,), low, high = arrays_at(arrays, 0), optional(arrays, 1), optional(arrays, 2)
        x = x if low is None else np.maximum(x, low)
        return (x if high is None else np.minimum(x, high),)

    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        x = given(types, 0)
        if any(type is not None and (type.rank > x.rank or any(dim != 1 for dim in type.shape)) for type in types[1:]):
            raise Unsupported("a bound is no scalar", "use Max and Min for bounds of each element")
        return (x,)

    return Operator("Clip", infer, reference, define, traits=UNARY_MAP)


OPERATORS: tuple[Operator, ...] = (
    unary(
        "Relu",
        _relu,
        lambda x: np.maximum(x, x.dtype.type(0)),
        traits=Trait.POSITIVE_HOMOGENEOUS | Trait.NOT_NEGATIVE,
    ),
    elementwise(
        "PRelu",
        lambda x, slope: _negative(x, call("mul", x, slope)),
        lambda x, slope: np.where(x < 0, x * slope, x),
        _infer_prelu,
        traits=Trait.POSITIVE_HOMOGENEOUS,
    ),
    activation("Sigmoid", lambda x: call("sigmoid", x), _reference_sigmoid, traits=Trait.NOT_NEGATIVE),
    activation("Softplus", _softplus, _reference_softplus, traits=Trait.NOT_NEGATIVE),
    activation("Softsign", _softsign, lambda x: x / (1 + np.abs(x))),
    activation("Mish", _mish, lambda x: x * np.tanh(_reference_softplus(x))),
    activation("HardSwish", _hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    activation("Swish", _swish, lambda x, alpha: x * _reference_sigmoid(alpha * x), {"alpha": 1.0}),
    activation(
        "LeakyRelu",
        _leaky_relu,
        lambda x, alpha: np.where(x < 0, alpha * x, x),
        {"alpha": 0.01},
        Trait.POSITIVE_HOMOGENEOUS,
    ),
    activation("Elu", _elu, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x), {"alpha": 1.0}),
    activation("Celu", _celu, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x), {"alpha": 1.0}),
    activation("Selu", _selu, _reference_selu, {"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}),
    activation("ThresholdedRelu", _thresholded, lambda x, alpha: np.where(x > alpha, x, 0), {"alpha": 1.0}),
    activation(
        "HardSigmoid",
        _hard_sigmoid,
        lambda x, a, b: np.clip(a * x + b, 0, 1),
        {"alpha": 0.2, "beta": 0.5},
        Trait.NOT_NEGATIVE,
    ),
    activation("Shrink", _shrink, _reference_shrink, {"bias": 0.0, "lambd": 0.5}),
    _gelu_record(),
    _clip_record(),
)
