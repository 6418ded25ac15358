"""Optimisers of ai.onnx.preview.training: one step each, as an Expansion over ai.onnx.

Inputs are the learning rate R, the step T, and for n tensors all of X, all gradients G and all states; outputs the new
X and the new states. Source: the operators of ai.onnx.preview.training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ops.operator import Unsupported

DOMAIN = "ai.onnx.preview.training"
AGAIN = "export the model again"


class Step:
    """Arithmetic on values and numbers in the element type of one tensor."""

    def __init__(self, composition: Composition, position: int) -> None:
        self.composition = composition
        self.kind = composition.site.given(position).dtype

    def attribute(self, name: str, default: float | None = None) -> float:
        """A number. Raises Unsupported where it is absent and has no default."""
        value = self.composition.site.call.attrs.get(name, default)
        if not isinstance(value, int | float):
            raise Unsupported(f"attribute {name!r} is no number", AGAIN)
        return value

    def value(self, of: str | float) -> str:
        """A value, or the constant that holds a number."""
        return of if isinstance(of, str) else self.composition.constant(np.array(of, self.kind.numpy))

    def scalar(self, position: int) -> str:
        """An input of one element in this element type."""
        name = f"x{position}"
        return self.composition.cast(name, self.composition.site.given(position).dtype, self.kind)

    def __call__(self, op: str, *of: str | float) -> str:
        """The name of the result of an operator on these values or numbers."""
        return self.composition.call(op, *map(self.value, of))

    def regularised(self, x: str, gradient: str, factor: float) -> str:
        """G + factor * X."""
        return self("Add", gradient, self("Mul", factor, x)) if factor else gradient


def adagrad(step: Step, x: str, gradient: str, states: Sequence[str]) -> tuple[str, ...]:
    """H' = H + G^2; X' = X - R / (1 + T decay) G / (sqrt(H') + epsilon)."""
    (squares,) = states
    slower = step("Add", 1.0, step("Mul", step.scalar(1), step.attribute("decay_factor", 0.0)))
    gradient = step.regularised(x, gradient, step.attribute("norm_coefficient", 0.0))
    squares = step("Add", squares, step("Mul", gradient, gradient))
    length = step("Add", step("Sqrt", squares), step.attribute("epsilon", 1e-6))
    moved = step("Div", step("Mul", step("Div", step.scalar(0), slower), gradient), length)
    return step("Sub", x, moved), squares


def adam(step: Step, x: str, gradient: str, states: Sequence[str]) -> tuple[str, ...]:
    """V' = alpha V + (1 - alpha) G; H' = beta H + (1 - beta) G^2; X' = X - R' V' / (sqrt(H') + epsilon).

    R' = R sqrt(1 - beta^T) / (1 - alpha^T) where T > 0, else R.
    """
    mean, squares = states
    alpha, beta = step.attribute("alpha", 0.9), step.attribute("beta", 0.999)
    gradient = step.regularised(x, gradient, step.attribute("norm_coefficient", 0.0))
    mean = step("Add", step("Mul", alpha, mean), step("Mul", 1.0 - alpha, gradient))
    squares = step("Add", step("Mul", beta, squares), step("Mul", 1.0 - beta, step("Mul", gradient, gradient)))
    rate, count = step.scalar(0), step.scalar(1)
    left = step("Sqrt", step("Sub", 1.0, step("Pow", beta, count)))
    corrected = step("Div", step("Mul", rate, left), step("Sub", 1.0, step("Pow", alpha, count)))
    rate = step("Where", step("Greater", count, 0.0), corrected, rate)
    length = step("Add", step("Sqrt", squares), step.attribute("epsilon", 1e-6))
    moved = step("Sub", x, step("Div", step("Mul", rate, mean), length))
    return step("Mul", 1.0 - step.attribute("norm_coefficient_post", 0.0), moved), mean, squares


def momentum(step: Step, x: str, gradient: str, states: Sequence[str]) -> tuple[str, ...]:
    """V' = alpha V + b G, where b is 1 at T = 0 and beta later; X' = X - R V', or of Nesterov X - R (G + alpha V')."""
    (speed,) = states
    mode = step.composition.site.call.attrs.get("mode")
    if mode not in ("standard", "nesterov"):
        raise Unsupported(f"mode is {mode!r:.60}", "use standard or nesterov")
    alpha = step.attribute("alpha")
    gradient = step.regularised(x, gradient, step.attribute("norm_coefficient"))
    share = step("Where", step("Greater", step.scalar(1), 0.0), step.attribute("beta"), 1.0)
    speed = step("Add", step("Mul", alpha, speed), step("Mul", share, gradient))
    way = step("Add", gradient, step("Mul", alpha, speed)) if mode == "nesterov" else speed
    return step("Sub", x, step("Mul", step.scalar(0), way)), speed


Rule = Callable[[Step, str, str, Sequence[str]], tuple[str, ...]]


def optimiser(rule: Rule, states: int) -> Callable[[Site], Expansion]:
    """A rule for one tensor, applied to all that a call holds; each has so many states."""

    def expand(site: Site) -> Expansion:
        count, rest = divmod(len(site.call.inputs) - 2, states + 2)
        if count < 1 or rest or len(site.call.outputs) > count * (states + 1):
            raise Unsupported(f"it has {len(site.call.inputs)} inputs, not 2 and {states + 2} for each tensor", AGAIN)
        composition = Composition(site)
        results = []
        for at in range(count):
            x, gradient, *held = (f"x{2 + at + count * part}" for part in range(states + 2))
            results.append(rule(Step(composition, 2 + at), x, gradient, held))
        return composition.gives(*(one[part] for part in range(states + 1) for one in results))

    return expand


TRAINING: Mapping[str, Callable[[Site], Expansion]] = {
    "Adagrad": optimiser(adagrad, 1),
    "Adam": optimiser(adam, 2),
    "Momentum": optimiser(momentum, 1),
}
