"""Activation functions that a recurrent cell names, as expressions and in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Expr, Where
from compiler.ir.graph import Attr, Node
from compiler.ops.build import call, number
from compiler.ops.operator import Unsupported


@dataclass(frozen=True)
class CellFunction:
    """`build` and `compute` take the argument, alpha and beta.

    None as a default says that the function has no such parameter.
    """

    name: str
    alpha: float | None
    beta: float | None
    build: Callable[[Expr, float, float], Expr]
    compute: Callable[[np.ndarray, float, float], np.ndarray]


@dataclass(frozen=True)
class Activation:
    """A function with its parameters."""

    function: CellFunction
    alpha: float
    beta: float

    def __call__(self, x: Expr) -> Expr:
        """The function of `x`, with this activation's alpha and beta."""
        return self.function.build(x, self.alpha, self.beta)

    def compute(self, x: np.ndarray) -> np.ndarray:
        """The function of each element of x, in numpy."""
        return self.function.compute(x, self.alpha, self.beta)


def _affine(x: Expr, alpha: float, beta: float) -> Expr:
    return call("add", call("mul", x, number(alpha, x.dtype)), number(beta, x.dtype))


def _limited(x: Expr, low: float, high: float) -> Expr:
    return call("min", call("max", x, number(low, x.dtype)), number(high, x.dtype))


def _positive(x: Expr, otherwise: Expr) -> Expr:
    return Where(call("ge", x, number(0, x.dtype)), x, otherwise)


def _softplus(x: Expr, alpha: float, beta: float) -> Expr:
    """max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    tail = call("log1p", call("exp", call("neg", call("abs", x))))
    return call("add", call("max", x, number(0, x.dtype)), tail)


FUNCTIONS: tuple[CellFunction, ...] = (
    CellFunction(
        "Relu", None, None, lambda x, a, b: call("max", x, number(0, x.dtype)), lambda x, a, b: np.maximum(x, 0)
    ),
    CellFunction("Tanh", None, None, lambda x, a, b: call("tanh", x), lambda x, a, b: np.tanh(x)),
    CellFunction("Sigmoid", None, None, lambda x, a, b: call("sigmoid", x), lambda x, a, b: (1 + np.tanh(x / 2)) / 2),
    CellFunction("Affine", 1.0, 0.0, _affine, lambda x, a, b: a * x + b),
    CellFunction(
        "LeakyRelu",
        0.01,
        None,
        lambda x, a, b: _positive(x, call("mul", x, number(a, x.dtype))),
        lambda x, a, b: np.where(x >= 0, x, a * x),
    ),
    CellFunction(
        "ThresholdedRelu",
        1.0,
        None,
        lambda x, a, b: Where(call("gt", x, number(a, x.dtype)), x, number(0, x.dtype)),
        lambda x, a, b: np.where(x > a, x, 0),
    ),
    CellFunction(
        "ScaledTanh",
        1.0,
        1.0,
        lambda x, a, b: call("mul", number(a, x.dtype), call("tanh", call("mul", x, number(b, x.dtype)))),
        lambda x, a, b: a * np.tanh(b * x),
    ),
    CellFunction(
        "HardSigmoid",
        0.2,
        0.5,
        lambda x, a, b: _limited(_affine(x, a, b), 0, 1),
        lambda x, a, b: np.clip(a * x + b, 0, 1),
    ),
    CellFunction(
        "Elu",
        1.0,
        None,
        lambda x, a, b: _positive(x, call("mul", number(a, x.dtype), call("expm1", x))),
        lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    ),
    CellFunction(
        "Softsign",
        None,
        None,
        lambda x, a, b: call("div", x, call("add", number(1, x.dtype), call("abs", x))),
        lambda x, a, b: x / (1 + np.abs(x)),
    ),
    CellFunction("Softplus", None, None, _softplus, lambda x, a, b: np.logaddexp(x, 0)),
)
_BY_NAME = {function.name.lower(): function for function in FUNCTIONS}


def activations(node: Node, defaults: tuple[str, ...], directions: int) -> tuple[tuple[Activation, ...], ...]:
    """The functions of each direction. alpha and beta are dealt, in order, to the functions that have such a parameter.

    Raises Unsupported for a function ONNX does not name or a wrong number of them.
    """
    count = len(defaults)
    names = node.attrs.get("activations") or defaults * directions
    if not isinstance(names, tuple) or len(names) < count * directions:
        raise Unsupported(f"activations are {names!r:.200}", f"give {count} for each direction")
    alphas, betas = (_floats(node.attrs.get(name)) for name in ("activation_alpha", "activation_beta"))
    found = []
    # The schema's default for an RNN names two, also for a single direction.
    for name in names[: count * directions]:
        function = _BY_NAME.get(str(name).lower())
        if function is None:
            raise Unsupported(
                f"activation {name!r:.80} is unknown", f"use one of {', '.join(f.name for f in FUNCTIONS)}"
            )
        alpha = alphas.pop(0) if alphas and function.alpha is not None else function.alpha
        beta = betas.pop(0) if betas and function.beta is not None else function.beta
        found.append(Activation(function, alpha or 0.0, beta or 0.0))
    return tuple(tuple(found[place : place + count]) for place in range(0, len(found), count))


def _floats(value: Attr) -> list[float]:
    items = value if isinstance(value, tuple) else ()
    return [float(item) for item in items if isinstance(item, int | float)]
