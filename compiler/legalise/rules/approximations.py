"""What has no exact form on an accelerator: x * sigmoid(polynomial), then sums of ReLUs, each with its proved bound."""

from __future__ import annotations

import math

import numpy as np

from compiler.ir.graph import Node
from compiler.legalise import forms, sums
from compiler.legalise.curves import EXP, LOG, RECIPROCAL, RSQRT, SQRT, SQUARE, Curve
from compiler.legalise.derived import Map, curve_on, map_of
from compiler.legalise.program import Approximation, Legalising, context_of
from compiler.legalise.ranges import curve_of
from compiler.legalise.rules.pieces import Writer, is_float
from compiler.rewrite.rule import Kind, Rule
from compiler.rewrite.view import No, Rewrite, View

APPROXIMATE = Kind("approximate")
"""The bound is that of each application, and stands beside it in the report."""
BY_CURVATURE = "greatest difference on a fine grid, and h**2 / 8 max|f''| between its points"


def sigmoid_form(view: View, node: Node) -> Rewrite | No | None:
    """f(x) = x * sigmoid(c + a x + b x**3) within a proved bound, for GELU and Mish."""
    program = context_of(view)
    curve = curve_of(node)
    if curve is None or curve.name not in forms.FORMS or not is_float(view, node):
        return None
    if not (program.has("Sigmoid") or program.has("Tanh")):
        return None
    if not program.context.budget.forms:
        return No("sigmoid forms are not permitted")
    wanted = program.context.budget.error
    fitting = [form for form in forms.FORMS[curve.name] if forms.bound(form) <= wanted]
    if not fitting and not program.context.budget.fixed:
        best = min(map(forms.bound, forms.FORMS[curve.name]))
        return No(f"its sigmoid forms are wrong by up to {best:.3g}, and {wanted:.3g} is permitted")
    form = fitting[0] if fitting else forms.FORMS[curve.name][-1]
    w = Writer(view, node)
    x = node.used[0]
    if form.cube:
        square = w.node("Mul", w.node("Mul", x, x), w.number(form.cube))
        inner = w.node("Mul", x, w.node("Add", square, w.number(form.scale)))
    else:
        inner = w.node("Mul", x, w.number(form.scale))
    if form.shift:
        inner = w.node("Add", inner, w.number(form.shift))
    w.node("Mul", x, w.node("Sigmoid", inner))
    made = w.done(f"{curve.name} as a product with a sigmoid, wrong by at most {forms.bound(form):.3g}")
    whole = (-math.inf, math.inf)
    return program.offer(made, Approximation(node, "sigmoid form", forms.bound(form), whole, 0, BY_CURVATURE))


def relu_sum(view: View, node: Node) -> Rewrite | No | None:
    """f(x) = c + sum of w_i relu(+-(x - t_i)) within a proved bound, with the fewest terms that the error permits.

    f is any function of one number whose slope interval arithmetic can bound on the range of x.
    """
    program = context_of(view)
    if not is_float(view, node):
        return None
    later = _last(program, node)
    if later is not None and isinstance(_found(program, later, *_joined(program, later)), sums.ReluSum):
        return No(f"it is approximated with {later.op} after it")
    one, x = _joined(program, node)
    found = _found(program, node, one, x)
    if found is None or isinstance(found, No):
        return found
    w = Writer(view, node)
    _write(w, x, found)
    made = w.done(f"{found.curve.name} as a sum of {found.terms} ReLUs, wrong by at most {found.bound:.3g}")
    joined = None if x in node.used or one is None else (one, x)
    offered = Approximation(node, "relu sum", found.bound, found.domain, found.terms, BY_CURVATURE, joined)
    return program.offer(made, offered)


def _found(program: Legalising, node: Node, one: Map | None, x: int) -> sums.ReluSum | No | None:
    """The sum for a node and the maps before it, which are `one` of `x`; None where that is no function, or a line."""
    curve = _curve(program, node) if x in node.used else None
    if curve is not None:
        return _sum_of(program, curve, program.range_of(x))
    return None if one is None or one.is_line else _sum_of(program, one, program.range_of(x))


def _joined(program: Legalising, node: Node) -> tuple[Map | None, int]:
    """What a node and the maps before it, up to one that the accelerator lacks, are together; and what they read."""
    x = next((value for value in node.used if program.constant(value) is None), node.used[0])
    one = _map(program, node)
    first, of = (one, x), one
    while of is not None and (before := program.producer(x)) is not None and len(program.readers(x)) == 1:
        earlier = _map(program, before)
        if earlier is None or x in program.outputs:
            break
        x = next(value for value in before.used if program.constant(value) is None)
        of = of.after(earlier)
        if not program.is_carried_out(before):
            first = of, x
    return first


def _map(program: Legalising, node: Node) -> Map | None:
    """What a node is as a function of one number, where its result is of the type of what it reads."""
    one = map_of(node, program.constants)
    like = any(program.type(value) == program.type(node.outputs[0]) for value in node.used)
    return one if like else None


def _last(program: Legalising, node: Node) -> Node | None:
    """The last map that the accelerator lacks among those which read one another, the first of them this node."""
    value, found = node.outputs[0], None
    while len(readers := program.readers(value)) == 1 and value not in program.outputs:
        if _map(program, readers[0]) is None:
            break
        value = readers[0].outputs[0]
        if not program.is_carried_out(readers[0]):
            found = readers[0]
    return found


def product_by_squares(view: View, node: Node) -> Rewrite | No | None:
    """a b = ((a + b)**2 - (a - b)**2) / 4, the squares as sums of ReLUs within a proved bound."""
    program = context_of(view)
    if not is_float(view, node) or any(view.constant(value) is not None for value in node.used):
        return None
    (a0, a1), (b0, b1) = (program.range_of(value) for value in node.used)
    most = max(abs(a0 + b0), abs(a1 + b1), abs(a0 - b1), abs(a1 - b0))
    found = _sum_of(program, SQUARE, (-most, most), 2.0)
    if isinstance(found, No):
        return found
    w = Writer(view, node)
    a, b = node.used
    same = a == b
    parts: list[int] = []
    for value in [w.node("Add", a, b)] + ([] if same else [w.node("Sub", a, b)]):
        parts.append(_write(w, value, found, -0.25 if parts else 0.25))
    if not same:
        w.node("Add", *parts)
    bound = found.bound / 4 if same else found.bound / 2
    made = w.done(f"a product by squares as sums of {found.terms} ReLUs, wrong by at most {bound:.3g}")
    return program.offer(made, Approximation(node, "relu sum", bound, found.domain, found.terms, BY_CURVATURE))


def _curve(view: View, node: Node) -> Curve | None:
    known = curve_of(node)
    if known is not None:
        return known
    if node.op == "Pow":
        return RSQRT if view.scalar(node.used[1]) == -0.5 else None
    return {"Exp": EXP, "Reciprocal": RECIPROCAL, "Sqrt": SQRT, "Log": LOG}.get(node.op)


def _write(w: Writer, x: int, found: sums.ReluSum, factor: float = 1.0) -> int:
    """`factor` times the sum of x."""
    signs, weights = found.signs[:, None], factor * found.weights[:, None]
    return w.relus(x, signs, -signs * found.knots[:, None], weights, np.array([factor * found.constant]))


def _sum_of(
    program: Legalising, given: Curve | Map, between: tuple[float, float], factor: float = 1.0
) -> sums.ReluSum | No:
    """The sum that the budget asks for; `factor`: by how much the error may exceed the one of the result."""
    budget = program.context.budget
    if not budget.sums:
        return No("sums of ReLUs are not permitted")
    low, high = between
    tails = isinstance(given, Curve) and given.has_tails
    least = given.low if isinstance(given, Curve) else -math.inf
    if not tails:
        if not (math.isfinite(low) and math.isfinite(high)) or low <= least:
            return No(f"{given.name} needs a finite range above {least:g}, and its input may be {low:g} ... {high:g}")
        if low == high:
            low, high = low - 1e-3 * abs(low), high + 1e-3 * abs(high)
    low, high = _rounded(low, -1), _rounded(high, 1)
    curve = given if isinstance(given, Curve) else curve_on(given, low, high)
    if isinstance(curve, str):
        return No(curve)
    wanted = budget.error * factor
    if budget.fixed:
        if curve.has_tails:
            low, high = -math.inf, math.inf  # one sum for all places
        found = sums.best(curve, budget.terms, low, high)
        return found or No(f"{curve.name} has no sum of {budget.terms} ReLUs")
    found = sums.fewest(curve, wanted, low, high)
    if found is not None and found.terms <= budget.terms:
        return found
    said = f"{found.terms} would do" if found else f"{sums.MOST_TERMS} would not do either"
    return No(f"{curve.name} within {wanted:.3g} needs more than {budget.terms} ReLUs: {said}")


def _rounded(end: float, direction: int) -> float:
    """Outwards to two digits, so that like ranges share one sum; a positive low end stays above 0."""
    if not math.isfinite(end) or end == 0:
        return end
    step = 10.0 ** (math.floor(math.log10(abs(end))) - 1)
    return float(round((math.ceil(end / step) if direction > 0 else math.floor(end / step)) * step, 12)) or end


RULES = (
    Rule(APPROXIMATE, ("Gelu", "Mish"), sigmoid_form),
    Rule(APPROXIMATE, (), relu_sum),
    Rule(APPROXIMATE, ("Mul",), product_by_squares),
)
