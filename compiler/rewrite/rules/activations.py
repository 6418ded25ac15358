"""Activation functions that exporters write out, recognised.

Constants count when they are within four units in the last place of float32 of the number they stand for.
"""

from __future__ import annotations

import math

from compiler.ir.graph import Attr, Node
from compiler.rewrite.rounding import near
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.factors import Product, plus_constant, product
from compiler.rewrite.view import No, Rewrite, View


def _replace(
    view: View, root: Node, swallowed: list[Node], op: str, x: int, attrs: dict[str, Attr]
) -> Rewrite | No | None:
    """`op` of x in the place of a written-out form that ends in `root`."""
    if view.type(x) != view.type(root.outputs[0]) or not view.type(x).dtype.is_float:
        return None
    if (refusal := view.enclosed(root, swallowed)) is not None:
        return refusal
    draft = view.draft(root)
    draft.node(op, (x,), attrs)
    return draft.done(f"{len(swallowed) + 1} nodes are a {op}")


def _gates(view: View, whole: Product, function: str) -> list[tuple[int, int, list[Node]]]:
    """Pairs (x, argument) where the product is x * (1 + function(argument)), each with the nodes in between."""
    found = []
    if len(whole.factors) == 2:
        for gate, x in (whole.factors, whole.factors[::-1]):
            inner = plus_constant(view, gate, 1.0)
            curve = None if inner is None else view.producer(inner[0], function)
            if inner is not None and curve is not None:
                found.append((x, curve.used[0], [inner[1], curve]))
    return found


def gelu_by_erf(view: View, node: Node) -> Rewrite | No | None:
    """0.5 * x * (1 + erf(x / sqrt(2))) = gelu(x), the product in any order."""
    whole = product(view, node.outputs[0])
    for x, argument, between in _gates(view, whole, "Erf") if near(whole.coefficient, 0.5) else ():
        scaled = product(view, argument)
        if scaled.factors == [x] and near(scaled.coefficient, math.sqrt(0.5)):
            swallowed = [*whole.nodes[1:], *between, *scaled.nodes]
            return _replace(view, node, swallowed, "Gelu", x, {"approximate": "none"})
    return None


def gelu_by_tanh(view: View, node: Node) -> Rewrite | No | None:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) = gelu(x, approximate="tanh"), the products in any order."""
    whole = product(view, node.outputs[0])
    for x, argument, between in _gates(view, whole, "Tanh") if near(whole.coefficient, 0.5) else ():
        scaled = product(view, argument)
        if not near(scaled.coefficient, math.sqrt(2 / math.pi)):
            continue
        polynomial = _cubic(view, scaled.factors, x)
        if polynomial is not None:
            swallowed = [*whole.nodes[1:], *between, *scaled.nodes, *polynomial]
            return _replace(view, node, swallowed, "Gelu", x, {"approximate": "tanh"})
    return None


def _cubic(view: View, factors: list[int], x: int) -> list[Node] | None:
    """The nodes that make x + 0.044715 x**3, as that or as x (1 + 0.044715 x**2); None where the factors are something else."""
    if len(factors) == 1:
        add = view.producer(factors[0], "Add")
        for rest in [] if add is None or x not in add.used else [[v for v in add.used if v != x]]:
            power = product(view, rest[0]) if len(rest) == 1 else Product()
            if power.factors == [x] * 3 and near(power.coefficient, 0.044715):
                return [*([add] if add else []), *power.nodes]
    if len(factors) == 2 and x in factors:
        other = factors[0] if factors[1] == x else factors[1]
        inner = plus_constant(view, other, 1.0)
        power = Product() if inner is None else product(view, inner[0])
        if inner is not None and power.factors == [x] * 2 and near(power.coefficient, 0.044715):
            return [inner[1], *power.nodes]
    return None


def swish_by_sigmoid(view: View, node: Node) -> Rewrite | No | None:
    """x * sigmoid(a * x) = swish(x, a)."""
    for gate, x in (node.used, node.used[::-1]):
        sigmoid = view.producer(gate, "Sigmoid")
        if sigmoid is None:
            continue
        if sigmoid.used[0] == x:
            return _replace(view, node, [sigmoid], "Swish", x, {"alpha": 1.0})
        scale = view.producer(sigmoid.used[0], "Mul")
        if scale is not None and x in scale.used:
            alpha = view.scalar(scale.used[0] if scale.used[1] == x else scale.used[1])
            if alpha is not None and math.isfinite(alpha):
                return _replace(view, node, [sigmoid, scale], "Swish", x, {"alpha": alpha})
    return None


def hard_swish_by_clamp(view: View, node: Node) -> Rewrite | No | None:
    """x * hard_sigmoid(x, 1/6, 1/2) = x * clip(x + 3, 0, 6) / 6 = hard_swish(x), the product in any order."""
    whole = product(view, node.outputs[0])
    if len(whole.factors) != 2:
        return None
    for gate, x in (whole.factors, whole.factors[::-1]):
        sigmoid = view.producer(gate, "HardSigmoid")
        if sigmoid is not None and sigmoid.used[0] == x and near(whole.coefficient, 1.0) and _is_sixth(sigmoid):
            return _replace(view, node, [*whole.nodes[1:], sigmoid], "HardSwish", x, {})
        clip = view.producer(gate, "Clip")
        shifted = None if clip is None or not _clips_to_six(view, clip) else plus_constant(view, clip.used[0], 3.0)
        if clip is not None and shifted is not None and shifted[0] == x and near(whole.coefficient, 1 / 6):
            return _replace(view, node, [*whole.nodes[1:], clip, shifted[1]], "HardSwish", x, {})
    return None


def _is_sixth(sigmoid: Node) -> bool:
    alpha, beta = sigmoid.attrs.get("alpha", 0.2), sigmoid.attrs.get("beta", 0.5)
    return isinstance(alpha, int | float) and near(float(alpha), 1 / 6) and beta == 0.5


def _clips_to_six(view: View, clip: Node) -> bool:
    bounds = [view.scalar(value) for value in (*clip.inputs[1:], None, None)[:2]]
    return bounds == [0.0, 6.0]


def hard_sigmoid_by_clip(view: View, node: Node) -> Rewrite | No | None:
    """clip(x + 3, 0, 6) / 6 = hard_sigmoid(x, 1/6, 1/2)."""
    whole = product(view, node.outputs[0])
    if len(whole.factors) != 1 or not near(whole.coefficient, 1 / 6):
        return None
    clip = view.producer(whole.factors[0], "Clip")
    shifted = None if clip is None or not _clips_to_six(view, clip) else plus_constant(view, clip.used[0], 3.0)
    if clip is None or shifted is None:
        return None
    swallowed = [*whole.nodes[1:], clip, shifted[1]]
    return _replace(view, node, swallowed, "HardSigmoid", shifted[0], {"alpha": 1 / 6, "beta": 0.5})


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Mul", "Div"), gelu_by_erf),
    Rule(REASSOCIATES, ("Mul", "Div"), gelu_by_tanh),
    Rule(EXACT, ("Mul",), swish_by_sigmoid),
    Rule(REASSOCIATES, ("Mul", "Div"), hard_swish_by_clamp),
    Rule(REASSOCIATES, ("Mul", "Div"), hard_sigmoid_by_clip),
)
