"""Activation functions that exporters write out, recognised.

Constants count when they are within four units in the last place of float32 of the number they stand for. Products are
read in any order (`factors`), the rest are terms. PyTorch writes GELU, Swish, Mish and Softplus out in older opsets,
Keras its clamps as Min and Max and a leaky ReLU as two ReLUs, JAX everything: sigmoid and softplus from Exp, ELU and
leaky ReLU as a Where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.rewrite.pattern import Either, Found, Op, constant, either, match, number, op, scalar, value
from compiler.rewrite.rounding import near
from compiler.rewrite.rule import REASSOCIATES, Rule
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
    """Pairs (x, argument) where the product is x / 2 * (1 + function(argument)), each with the nodes in between."""
    found = []
    for gate, x in (whole.factors, whole.factors[::-1]) if len(whole.factors) == 2 else ():
        add = view.producer(gate, "Add")
        for inner, other in () if add is None else (add.used, add.used[::-1]):
            half, curved = view.scalar(other), product(view, inner)
            curve = view.producer(curved.factors[0], function) if len(curved.factors) == 1 else None
            if add is None or curve is None or half is None or not near(half * whole.coefficient, 0.5):
                continue
            if near(curved.coefficient, half):
                found.append((x, curve.used[0], [add, *curved.nodes, curve]))
    return found


def gelu_by_erf(view: View, node: Node) -> Rewrite | No | None:
    """0.5 * x * (1 + erf(x / sqrt(2))) = gelu(x), the product in any order."""
    whole = product(view, node.outputs[0])
    for x, argument, between in _gates(view, whole, "Erf"):
        scaled = product(view, argument)
        if scaled.factors == [x] and near(scaled.coefficient, math.sqrt(0.5)):
            swallowed = [*whole.nodes[1:], *between, *scaled.nodes]
            return _replace(view, node, swallowed, "Gelu", x, {"approximate": "none"})
    return None


def gelu_by_tanh(view: View, node: Node) -> Rewrite | No | None:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) = gelu(x, approximate="tanh"),
    the products in any order.
    """
    whole = product(view, node.outputs[0])
    for x, argument, between in _gates(view, whole, "Tanh"):
        polynomial = _cubic(view, product(view, argument), x)
        if polynomial is not None:
            swallowed = [*whole.nodes[1:], *between, *polynomial]
            return _replace(view, node, swallowed, "Gelu", x, {"approximate": "tanh"})
    return None


LINEAR, CUBIC = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)


def _cubic(view: View, argument: Product, x: int) -> list[Node] | None:
    """The nodes that make LINEAR x + CUBIC x**3, as that or as x (LINEAR + CUBIC x**2); None for another product."""
    if len(argument.factors) not in (1, 2):
        return None
    powers = 2 if len(argument.factors) == 2 else 3
    other = argument.factors[0] if argument.factors[-1] == x else argument.factors[-1]
    add = view.producer(other, "Add")
    if add is None or (powers == 2 and x not in argument.factors):
        return None
    for low, high in (add.used, add.used[::-1]):
        first, second = product(view, low), product(view, high)
        if first.factors != [x] * (powers - 2) or second.factors != [x] * powers:
            continue
        pairs = ((first.coefficient, LINEAR), (second.coefficient, CUBIC))
        if all(near(argument.coefficient * found, wanted) for found, wanted in pairs):
            return [*argument.nodes, add, *first.nodes, *second.nodes]
    return None


X = value("x")
ALPHA = scalar("alpha")


def _recognised(
    view: View, node: Node, term: Op | Either, name: str, attrs: Mapping[str, float | str] | None = None
) -> Rewrite | No | None:
    """`name` of x where `term` ends in the node; attributes that are names of numbers in the term take those."""
    found = match(view, node, term)
    if found is None:
        return None
    given = {key: found.scalars[at] if isinstance(at, str) else at for key, at in (attrs or {}).items()}
    if not all(math.isfinite(number) for number in given.values()):
        return None
    return _replace(view, node, list(found.nodes), name, found["x"], dict(given))


SIGMOID = either(
    op("Reciprocal", op("Add", number(1), op("Exp", op("Neg", X)))),
    op("Div", number(1), op("Add", number(1), op("Exp", op("Neg", X)))),
    op("Mul", number(0.5), op("Add", number(1), op("Tanh", op("Mul", number(0.5), X)))),
    op("Add", number(0.5), op("Mul", number(0.5), op("Tanh", op("Mul", number(0.5), X)))),
)


def sigmoid_by_exp(view: View, node: Node) -> Rewrite | No | None:
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2 = sigmoid(x)."""
    return _recognised(view, node, SIGMOID, "Sigmoid")


TANH = op("Add", number(-1), op("Mul", number(2), op("Sigmoid", op("Mul", number(2), X))))


def tanh_by_sigmoid(view: View, node: Node) -> Rewrite | No | None:
    """2 sigmoid(2 x) - 1 = tanh(x)."""
    return _recognised(view, node, TANH, "Tanh")


BELOW_ONE = op("Softplus", op("Neg", op("Abs", X)))
SOFTPLUS = either(
    op("Log", op("Add", number(1), op("Exp", X))),
    op("Add", op("Relu", X), BELOW_ONE),
    op("Add", op("Max", X, number(0)), BELOW_ONE),
)


def softplus_by_exp(view: View, node: Node) -> Rewrite | No | None:
    """log(1 + exp(x)) = relu(x) + softplus(-|x|) = softplus(x)."""
    return _recognised(view, node, SOFTPLUS, "Softplus")


def mish_by_softplus(view: View, node: Node) -> Rewrite | No | None:
    """x * tanh(softplus(x)) = mish(x)."""
    return _recognised(view, node, op("Mul", X, op("Tanh", op("Softplus", X))), "Mish")


SWISH = op("Mul", X, op("Sigmoid", X))
SWISH_OF_SCALED = op("Mul", X, op("Sigmoid", op("Mul", X, ALPHA)))
SWISH_BY_EXP = op("Div", X, op("Add", number(1), op("Exp", op("Neg", X))))


def swish_by_sigmoid(view: View, node: Node) -> Rewrite | No | None:
    """x * sigmoid(a * x) = swish(x, a)."""
    plain = _recognised(view, node, SWISH, "Swish", {"alpha": 1.0})
    return plain or _recognised(view, node, SWISH_OF_SCALED, "Swish", {"alpha": "alpha"})


def swish_by_exp(view: View, node: Node) -> Rewrite | No | None:
    """x / (1 + exp(-x)) = swish(x, 1)."""
    return _recognised(view, node, SWISH_BY_EXP, "Swish", {"alpha": 1.0})


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
        shifted = None if clip is None or _bounds(view, clip) != (0, 6) else plus_constant(view, clip.used[0], 3.0)
        if clip is not None and shifted is not None and shifted[0] == x and near(whole.coefficient, 1 / 6):
            return _replace(view, node, [*whole.nodes[1:], clip, shifted[1]], "HardSwish", x, {})
    return None


def _is_sixth(sigmoid: Node) -> bool:
    alpha, beta = sigmoid.attrs.get("alpha", 0.2), sigmoid.attrs.get("beta", 0.5)
    return isinstance(alpha, int | float) and near(float(alpha), 1 / 6) and beta == 0.5


def _bounds(view: View, clip: Node) -> tuple[float | None, float | None]:
    """The lower and upper bound of a Clip; None where there is none, or none that is known."""
    low, high = (*(view.scalar(bound) for bound in clip.inputs[1:]), None, None)[:2]
    return low, high


def hard_sigmoid_by_clip(view: View, node: Node) -> Rewrite | No | None:
    """clip(a x + b, 0, 1 / c) * c = hard_sigmoid(x, a c, b c), as in clip(x + 3, 0, 6) / 6;
    c = 1 where a is another number.
    """
    whole = Product(factors=[node.outputs[0]]) if node.op == "Clip" else product(view, node.outputs[0])
    clip = view.producer(whole.factors[0], "Clip") if len(whole.factors) == 1 else None
    add = None if clip is None else view.producer(clip.used[0], "Add")
    if clip is None or add is None:
        return None
    low, high = _bounds(view, clip)
    if low != 0 or high is None or not high > 0 or not near(high * whole.coefficient, 1.0):
        return None
    for inner, array in view.operands(add):
        scaled = product(view, inner)
        shift = float(array.reshape(-1)[0]) if array.size == 1 else math.nan
        alpha, beta = scaled.coefficient * whole.coefficient, shift * whole.coefficient
        if len(scaled.factors) != 1 or not math.isfinite(alpha * beta) or (node.op == "Clip" and not scaled.nodes):
            continue
        swallowed = [*([] if node.op == "Clip" else [*whole.nodes[1:], clip]), add, *scaled.nodes]
        attrs: dict[str, Attr] = {"alpha": 1 / 6 if near(alpha, 1 / 6) else alpha, "beta": beta}
        return _replace(view, node, swallowed, "HardSigmoid", scaled.factors[0], attrs)
    return None


def clip_by_min_max(view: View, node: Node) -> Rewrite | No | None:
    """max(x, a) = clip(x, a, inf) and min(x, b) = clip(x, -inf, b), for one number each."""
    if len(node.used) != 2 or not view.type(node.outputs[0]).dtype.is_float:
        return None
    for x, array in view.operands(node):
        if array.size != 1 or view.type(x) != view.type(node.outputs[0]) or np.isnan(array.astype(np.float64)).any():
            continue
        draft = view.draft(node)
        bound = draft.constant(array.reshape(()))
        draft.node("Clip", (x, bound, None) if node.op == "Max" else (x, None, bound))
        return draft.done(f"{node.op} with a number is a Clip")
    return None


SLOPE = constant("slope")
SCALED = op("Mul", X, SLOPE)
LEAKY = either(
    op("Where", op(("Greater", "GreaterOrEqual"), X, number(0)), X, SCALED),
    op("Where", op(("Less", "LessOrEqual"), X, number(0)), SCALED, X),
    op("Where", op(("Less", "LessOrEqual"), number(0), X), X, SCALED),
)
LARGER = op("Max", X, SCALED)
BELOW = op("Relu", op("Neg", X))
BOTH_SIDES = either(op("Add", op("Relu", X), op("Mul", SLOPE, BELOW)), op("Add", op("Relu", X), op("Neg", BELOW)))
DIFFERENCE = either(op("Sub", op("Relu", X), op("Mul", SLOPE, BELOW)), op("Sub", op("Relu", X), BELOW))


def leaky_relu_by_where(view: View, node: Node) -> Rewrite | No | None:
    """where(x > 0, x, a x) = max(x, a x) = prelu(x, a), the last for 0 < a <= 1."""
    term = LEAKY if node.op == "Where" else LARGER
    found = match(view, node, term) or (match(view, node, op("Max", SCALED, X)) if node.op == "Max" else None)
    slope = None if found is None else view.constant(found["slope"])
    if found is None or slope is None:
        return None
    if node.op == "Max" and not ((slope > 0) & (slope <= 1)).all():
        return No("a slope is not between 0 and 1")
    return _leaky(view, node, found, slope)


def leaky_relu_by_relus(view: View, node: Node) -> Rewrite | No | None:
    """relu(x) - a relu(-x) = prelu(x, a)."""
    found = match(view, node, BOTH_SIDES if node.op == "Add" else DIFFERENCE)
    if found is None:
        return None
    known = view.constant(found["slope"]) if "slope" in found.values else None
    slope = np.ones((), view.type(found["x"]).dtype.numpy) if known is None else known
    return _leaky(view, node, found, -slope if node.op == "Add" and known is not None else slope)


def _leaky(view: View, node: Node, found: Found, slope: np.ndarray) -> Rewrite | No | None:
    """LeakyRelu for one slope, PRelu for several; an infinite one would make NaN of what is above 0."""
    if not np.isfinite(slope.astype(np.float64)).all():
        return No("a slope is not finite")
    if slope.size == 1:
        alpha = float(slope.reshape(-1)[0])
        return _replace(view, node, list(found.nodes), "LeakyRelu", found["x"], {"alpha": alpha})
    type = view.type(found["x"])
    if type != view.type(node.outputs[0]) or not type.dtype.is_float:
        return None
    if (refusal := view.enclosed(node, found.nodes)) is not None:
        return refusal
    draft = view.draft(node)
    draft.node("PRelu", (found["x"], draft.constant(slope)))
    return draft.done(f"{len(found.nodes) + 1} nodes are a PRelu")


POSITIVE = either(op("Greater", X, number(0)), op("GreaterOrEqual", X, number(0)))
EXPM1 = either(
    op("Add", op("Exp", X), number(-1)), op("Add", op("Exp", op("Where", POSITIVE, number(0), X)), number(-1))
)
ELU = op("Where", POSITIVE, X, EXPM1)
ELU_OF_ALPHA = op("Where", POSITIVE, X, op("Mul", ALPHA, EXPM1))


def elu_by_where(view: View, node: Node) -> Rewrite | No | None:
    """where(x > 0, x, a (exp(x) - 1)) = elu(x, a)."""
    plain = _recognised(view, node, ELU, "Elu", {"alpha": 1.0})
    return plain or _recognised(view, node, ELU_OF_ALPHA, "Elu", {"alpha": "alpha"})


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Mul", "Div"), gelu_by_erf),
    Rule(REASSOCIATES, ("Mul", "Div"), gelu_by_tanh),
    Rule(REASSOCIATES, ("Reciprocal", "Div", "Mul", "Add"), sigmoid_by_exp),
    Rule(REASSOCIATES, ("Add",), tanh_by_sigmoid),
    Rule(REASSOCIATES, ("Log", "Add"), softplus_by_exp),
    Rule(REASSOCIATES, ("Mul",), mish_by_softplus),
    Rule(REASSOCIATES, ("Mul",), swish_by_sigmoid),
    Rule(REASSOCIATES, ("Div",), swish_by_exp),
    Rule(REASSOCIATES, ("Mul", "Div"), hard_swish_by_clamp),
    Rule(REASSOCIATES, ("Mul", "Div", "Clip"), hard_sigmoid_by_clip),
    Rule(REASSOCIATES, ("Max", "Min"), clip_by_min_max),
    Rule(REASSOCIATES, ("Where", "Max"), leaky_relu_by_where),
    Rule(REASSOCIATES, ("Sub", "Add"), leaky_relu_by_relus),
    Rule(REASSOCIATES, ("Where",), elu_by_where),
)
