"""Maps of elements in other maps, with the same values over the reals.

Which of several right sides is taken is decided by the profile: those are tried in the order in which they stand here,
and the first that leads to operators that the accelerator has is applied.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.ir.graph import Node
from compiler.legalise.program import context_of
from compiler.legalise.rules.pieces import Writer, is_float
from compiler.ops.attributes import number_of
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View

ROW = np.ones((1, 1))


def difference_as_sum(view: View, node: Node) -> Rewrite | No | None:
    """a - b = a + (-1) * b."""
    w = Writer(view, node)
    constant = view.constant(node.used[1])
    negative = w.node("Mul", node.used[1], w.number(-1)) if constant is None else w.array(-constant)
    w.node("Add", node.used[0], negative)
    return w.done("a difference is the sum with the negative")


def negative_as_product(view: View, node: Node) -> Rewrite | No | None:
    """-x = (-1) * x."""
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.number(-1))
    return w.done("a negative is a product with -1")


def product_as_convolution(view: View, node: Node) -> Rewrite | No | None:
    """c * x = a depthwise 1x1 convolution, for one number for each channel or for all."""
    if not is_float(view, node):
        return None
    for x, array in view.operands(node):
        if view.type(x) != view.type(node.outputs[0]):
            continue
        w = Writer(view, node)
        rank = len(view.dims(x))
        if array.size > 1 and (rank != 4 or array.ndim < 3 or array.size != array.shape[-3]):
            return No("the factor has more than one number for each channel")
        here = w.image(x)
        channels = w.dims(here)[1]
        kernel = np.broadcast_to(array.reshape(-1), (channels,)).reshape(-1, 1, 1, 1)
        w.reshaped(w.convolution(here, kernel, None, group=channels), view.dims(x))
        return w.done("a product with a number for each channel is a depthwise convolution")
    return None


def quotient_by_number(view: View, node: Node) -> Rewrite | No | None:
    """x / c = x * (1 / c)."""
    divisor = view.constant(node.used[1])
    if divisor is None or not is_float(view, node):
        return None
    if not divisor.all():
        return No("it divides by a constant zero")
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.array(1 / divisor.astype(np.float64)))
    return w.done("a quotient by a constant is a product")


def quotient_by_root(view: View, node: Node) -> Rewrite | No | None:
    """a / sqrt(v) = a * v**-0.5."""
    root = view.producer(node.used[1], "Sqrt")
    if root is None or not is_float(view, node):
        return None
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.node("Pow", root.used[0], w.number(-0.5)))
    return w.done("a quotient by a root is a product with the reciprocal root")


def quotient_by_value(view: View, node: Node) -> Rewrite | No | None:
    """a / b = a * (1 / b)."""
    if view.constant(node.used[1]) is not None or not is_float(view, node):
        return None
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.node("Reciprocal", node.used[1]))
    return w.done("a quotient is a product with the reciprocal")


def reciprocal_root(view: View, node: Node) -> Rewrite | No | None:
    """1 / sqrt(x) = x**-0.5."""
    root = view.producer(node.used[0], "Sqrt")
    if root is None:
        return None
    w = Writer(view, node)
    w.node("Pow", root.used[0], w.number(-0.5))
    return w.done("the reciprocal of a root is one operator")


def reciprocal_by_roots(view: View, node: Node) -> Rewrite | No | None:
    """1 / x = x**-0.5 * x**-0.5, for x above 0."""
    low, _ = context_of(view).range_of(node.used[0])
    if not low > 0:
        return No(f"the input may be as low as {low:g}, and only for numbers above 0 it is a square of 1 / sqrt(x)")
    w = Writer(view, node)
    root = w.node("Pow", node.used[0], w.number(-0.5))
    w.node("Mul", root, root)
    return w.done("a reciprocal is the square of the reciprocal root")


def root_by_reciprocal_root(view: View, node: Node) -> Rewrite | No | None:
    """sqrt(x) = x * x**-0.5, for x above 0."""
    low, _ = context_of(view).range_of(node.used[0])
    if not low > 0:
        return No(f"the input may be as low as {low:g}, and 0 * 0**-0.5 is no number")
    readers = view.readers(node.outputs[0])
    if readers and all(one.op in ("Div", "Reciprocal") and one.used[-1] == node.outputs[0] for one in readers):
        return No("what reads it takes the reciprocal root itself")
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.node("Pow", node.used[0], w.number(-0.5)))
    return w.done("a root is the number times its reciprocal root")


def hard_swish_as_product(view: View, node: Node) -> Rewrite | No | None:
    """hardswish(x) = x * hardsigmoid(x, 1/6, 1/2)."""
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.node("HardSigmoid", node.used[0], alpha=1 / 6, beta=0.5))
    return w.done("a HardSwish is a product with a HardSigmoid")


def hard_sigmoid_as_clip(view: View, node: Node) -> Rewrite | No | None:
    """hardsigmoid(x, a, b) = clip(6 a x + 6 b, 0, 6) * (1/6)."""
    if not context_of(view).has("Clip"):
        return None
    alpha, beta = number_of(node, "alpha", 0.2), number_of(node, "beta", 0.5)
    w = Writer(view, node)
    inner = node.used[0]
    if not math.isclose(6 * alpha, 1.0, rel_tol=1e-6):
        inner = w.node("Mul", inner, w.number(6 * alpha))
    shifted = w.node("Add", inner, w.number(6 * beta))
    w.node("Mul", w.node("Clip", shifted, w.number(0), w.number(6)), w.number(1 / 6))
    return w.done("a HardSigmoid is a ReLU6")


def hard_sigmoid_as_relus(view: View, node: Node) -> Rewrite | No | None:
    """hardsigmoid(x, a, b) = relu(a x + b) - relu(a x + b - 1)."""
    alpha, beta = number_of(node, "alpha", 0.2), number_of(node, "beta", 0.5)
    w = Writer(view, node)
    w.relus(
        node.used[0], np.array([[alpha], [alpha]]), np.array([[beta], [beta - 1]]), np.array([[1], [-1]]), np.zeros(1)
    )
    return w.done("a HardSigmoid is the difference of two ReLUs")


def clip_as_relus(view: View, node: Node) -> Rewrite | No | None:
    """clip(x, a, b) = a + relu(x - a) - relu(x - b)."""
    low, high = (view.scalar(node.inputs[at]) if len(node.inputs) > at else None for at in (1, 2))
    if any(at < len(node.inputs) and node.inputs[at] is not None and end is None for at, end in ((1, low), (2, high))):
        return No("its bounds are computed")
    if not is_float(view, node) or (low is None and high is None) or (low or -math.inf) > (high or math.inf):
        return None
    w = Writer(view, node)
    x = node.used[0]
    if low is not None and high is not None:
        w.relus(x, np.ones((2, 1)), np.array([[-low], [-high]]), np.array([[1], [-1]]), np.array([low]))
    elif low is not None:
        w.relus(x, ROW, np.array([[-low]]), ROW, np.array([low]))
    else:
        w.relus(x, -ROW, np.array([[high or 0.0]]), -ROW, np.array([high or 0.0]))
    return w.done("a Clip is a sum of ReLUs")


def leaky_relu_as_prelu(view: View, node: Node) -> Rewrite | No | None:
    """leakyrelu(x, a) = prelu(x, a)."""
    if not context_of(view).has("PRelu"):
        return None
    w = Writer(view, node)
    rank = len(view.dims(node.used[0]))
    w.node("PRelu", node.used[0], w.array(np.full((1,) * rank, number_of(node, "alpha", 0.01))))
    return w.done("a LeakyRelu is a PRelu with one slope")


def leaky_relu_as_relus(view: View, node: Node) -> Rewrite | No | None:
    """leakyrelu(x, a) = relu(x) - a relu(-x)."""
    w = Writer(view, node)
    alpha = number_of(node, "alpha", 0.01)
    w.relus(node.used[0], np.array([[1], [-1]]), np.zeros((2, 1)), np.array([[1], [-alpha]]), np.zeros(1))
    return w.done("a LeakyRelu is the sum of two ReLUs")


def prelu_as_relus(view: View, node: Node) -> Rewrite | No | None:
    """prelu(x, a) = relu(x) - a relu(-x), for a constant a with a number for each channel or one for all."""
    slope, dims = view.constant(node.used[1]), view.dims(node.used[0])
    if slope is None:
        return No("its slopes are computed")
    if slope.size > 1 and (len(dims) != 4 or slope.ndim < 3 or slope.size != dims[1] or slope.shape[-3] != dims[1]):
        return No("its slopes are not one for each channel")
    w = Writer(view, node)
    negative = -slope.reshape(1, -1).astype(np.float64)
    weights = np.concatenate([np.ones_like(negative), negative])
    w.relus(node.used[0], np.array([[1], [-1]]), np.zeros((2, 1)), weights, np.zeros(1))
    return w.done("a PRelu is the sum of two ReLUs")


def absolute_as_maximum(view: View, node: Node) -> Rewrite | No | None:
    """abs(x) = max(x, -x)."""
    w = Writer(view, node)
    w.node("Max", node.used[0], w.node("Mul", node.used[0], w.number(-1)))
    return w.done("an Abs is a Max")


def absolute_as_relus(view: View, node: Node) -> Rewrite | No | None:
    """abs(x) = relu(x) + relu(-x)."""
    w = Writer(view, node)
    w.relus(node.used[0], np.array([[1], [-1]]), np.zeros((2, 1)), np.ones((2, 1)), np.zeros(1))
    return w.done("an Abs is the sum of two ReLUs")


def maximum_as_relu(view: View, node: Node) -> Rewrite | No | None:
    """max(a, b) = b + relu(a - b)."""
    if not is_float(view, node) or len(node.used) != 2:
        return No("it has not two operands") if len(node.used) != 2 else None
    a, b = node.used
    w = Writer(view, node)
    w.node("Add", b, w.node("Relu", w.node("Sub", a, b)))
    return w.done("a Max of two is a ReLU of their difference")


def minimum_as_relu(view: View, node: Node) -> Rewrite | No | None:
    """min(a, b) = a - relu(a - b)."""
    if not is_float(view, node) or len(node.used) != 2:
        return No("it has not two operands") if len(node.used) != 2 else None
    a, b = node.used
    w = Writer(view, node)
    w.node("Sub", a, w.node("Relu", w.node("Sub", a, b)))
    return w.done("a Min of two is a ReLU of their difference")


def swish_as_product(view: View, node: Node) -> Rewrite | No | None:
    """swish(x, a) = x * sigmoid(a x)."""
    w = Writer(view, node)
    alpha, x = number_of(node, "alpha", 1.0), node.used[0]
    inner = x if alpha == 1.0 else w.node("Mul", x, w.number(alpha))
    w.node("Mul", x, w.node("Sigmoid", inner))
    return w.done("a Swish is a product with a Sigmoid")


def gelu_in_erf(view: View, node: Node) -> Rewrite | No | None:
    """gelu(x) = 0.5 x (1 + erf(x / sqrt(2)))."""
    if node.attrs.get("approximate") == "tanh":
        return None
    w = Writer(view, node)
    x = node.used[0]
    gate = w.node("Add", w.node("Erf", w.node("Mul", x, w.number(math.sqrt(0.5)))), w.number(1))
    w.node("Mul", w.node("Mul", x, w.number(0.5)), gate)
    return w.done("a Gelu is written out with Erf")


def gelu_in_tanh(view: View, node: Node) -> Rewrite | No | None:
    """gelu(x, approximate="tanh") = x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x**3))."""
    if node.attrs.get("approximate") != "tanh":
        return None
    w = Writer(view, node)
    x, scale = node.used[0], 2 * math.sqrt(2 / math.pi)
    factor = w.node("Add", w.node("Mul", w.node("Mul", x, x), w.number(0.044715 * scale)), w.number(scale))
    w.node("Mul", x, w.node("Sigmoid", w.node("Mul", x, factor)))
    return w.done("a Gelu by tanh is a product with a Sigmoid")


def mish_by_tanh(view: View, node: Node) -> Rewrite | No | None:
    """mish(x) = x * tanh(softplus(x))."""
    w = Writer(view, node)
    w.node("Mul", node.used[0], w.node("Tanh", w.node("Softplus", node.used[0])))
    return w.done("a Mish is written out")


def softplus_by_logarithm(view: View, node: Node) -> Rewrite | No | None:
    """softplus(x) = relu(x) + log(1 + exp(-abs(x))): no exponential overflows, and in 8 bits none is rounded away."""
    w = Writer(view, node)
    x = node.used[0]
    small = w.node("Exp", w.node("Mul", w.node("Abs", x), w.number(-1)))
    w.node("Add", w.node("Relu", x), w.node("Log", w.node("Add", small, w.number(1))))
    return w.done("a Softplus is written out in its stable form")


def elu_by_exponential(view: View, node: Node) -> Rewrite | No | None:
    """elu(x, a) = relu(x) + a (exp(min(x, 0)) - 1)."""
    w = Writer(view, node)
    x, alpha = node.used[0], number_of(node, "alpha", 1.0)
    below = w.node("Exp", w.node("Min", x, w.number(0)))
    scaled = w.node("Add", w.node("Mul", below, w.number(alpha)), w.number(-alpha))
    w.node("Add", w.node("Relu", x), scaled)
    return w.done("an Elu is written out")


def sigmoid_in_tanh(view: View, node: Node) -> Rewrite | No | None:
    """sigmoid(x) = 0.5 tanh(0.5 x) + 0.5."""
    if not context_of(view).has("Tanh"):
        return None
    w = Writer(view, node)
    curve = w.node("Tanh", w.node("Mul", node.used[0], w.number(0.5)))
    w.node("Add", w.node("Mul", curve, w.number(0.5)), w.number(0.5))
    return w.done("a Sigmoid is a Tanh of half the number")


def tanh_in_sigmoid(view: View, node: Node) -> Rewrite | No | None:
    """tanh(x) = 2 sigmoid(2 x) - 1."""
    if not context_of(view).has("Sigmoid"):
        return None
    w = Writer(view, node)
    curve = w.node("Sigmoid", w.node("Mul", node.used[0], w.number(2)))
    w.node("Add", w.node("Mul", curve, w.number(2)), w.number(-1))
    return w.done("a Tanh is a Sigmoid of twice the number")


RULES = (
    Rule(REASSOCIATES, ("Sub",), difference_as_sum),
    Rule(REASSOCIATES, ("Neg",), negative_as_product),
    Rule(REASSOCIATES, ("Mul",), product_as_convolution),
    Rule(REASSOCIATES, ("Div",), quotient_by_number),
    Rule(REASSOCIATES, ("Div",), quotient_by_root),
    Rule(REASSOCIATES, ("Div",), quotient_by_value),
    Rule(REASSOCIATES, ("Reciprocal",), reciprocal_root),
    Rule(REASSOCIATES, ("Reciprocal",), reciprocal_by_roots),
    Rule(REASSOCIATES, ("Sqrt",), root_by_reciprocal_root),
    Rule(REASSOCIATES, ("HardSwish",), hard_swish_as_product),
    Rule(REASSOCIATES, ("HardSigmoid",), hard_sigmoid_as_clip),
    Rule(REASSOCIATES, ("HardSigmoid",), hard_sigmoid_as_relus),
    Rule(REASSOCIATES, ("Clip",), clip_as_relus),
    Rule(REASSOCIATES, ("LeakyRelu",), leaky_relu_as_prelu),
    Rule(REASSOCIATES, ("LeakyRelu",), leaky_relu_as_relus),
    Rule(REASSOCIATES, ("PRelu",), prelu_as_relus),
    Rule(REASSOCIATES, ("Abs",), absolute_as_maximum),
    Rule(REASSOCIATES, ("Abs",), absolute_as_relus),
    Rule(REASSOCIATES, ("Max",), maximum_as_relu),
    Rule(REASSOCIATES, ("Min",), minimum_as_relu),
    Rule(REASSOCIATES, ("Swish",), swish_as_product),
    Rule(REASSOCIATES, ("Gelu",), gelu_in_erf),
    Rule(REASSOCIATES, ("Gelu",), gelu_in_tanh),
    Rule(REASSOCIATES, ("Mish",), mish_by_tanh),
    Rule(REASSOCIATES, ("Softplus",), softplus_by_logarithm),
    Rule(REASSOCIATES, ("Elu",), elu_by_exponential),
    Rule(REASSOCIATES, ("Sigmoid",), sigmoid_in_tanh),
    Rule(REASSOCIATES, ("Tanh",), tanh_in_sigmoid),
)
