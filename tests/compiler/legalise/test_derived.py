"""Any function of one number becomes a sum of ReLUs with a proved bound, or is refused with the reason."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from onnx import helper

from compiler.ir.graph import Node
from compiler.legalise import curves, sums
from compiler.legalise.curves import Curve
from compiler.legalise.derived import Map, curve_on, map_of, slope_on, values_on
from compiler.legalise.errors import propagated
from compiler.ops import having
from compiler.ops.traits import Trait
from tests.compiler.legalise.graphs import brought, chain, profile, single

RELUS = profile("Conv Relu Add Sub Mul")
BETWEEN = {"Acosh": (1.05, 4.0), "Tan": (-1.3, 1.3), **dict.fromkeys(("Asin", "Acos", "Atanh"), (-0.9, 0.9))}
CURVED = {
    "Selu", "Celu", "Softsign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
    "Elu", "Erf", "Exp", "Gelu", "HardSwish", "Mish", "Sigmoid", "Softplus", "Swish", "Tanh",
}  # fmt: skip
STRAIGHT = {"Abs", "HardSigmoid", "LeakyRelu", "Relu", "Clip"}
"""Of straight pieces, which sums with as many knots follow to rounding."""
JUMPING = {"Sign", "Floor", "Ceil", "Round", "ThresholdedRelu", "Shrink"}


def of(op: str) -> Map:
    found = map_of(Node(op, (0,), (1,), {}), {})
    assert found is not None
    return found


@pytest.mark.parametrize("op", sorted(CURVED | STRAIGHT))
def test_the_bound_of_a_derived_curve_holds_and_is_near_what_is_reached(op: str) -> None:
    low, high = BETWEEN.get(op, (-2.4, 3.1))
    curve = curve_on(of(op), low, high)
    assert isinstance(curve, Curve), curve
    error = 1e-4 if op in STRAIGHT else 0.02 * (of(op)(np.array([low, high])).max() + 1)
    found = sums.fewest(curve, error, low, high)
    assert found is not None
    x = np.linspace(low, high, 60_001)
    reached = np.abs(found(x) - of(op)(x)).max()
    assert reached <= found.bound <= error
    assert found.bound <= 1.01 * reached + 2e-5


@pytest.mark.parametrize("op", sorted(JUMPING))
def test_a_jump_is_refused_and_said_where_it_is(op: str) -> None:
    found = curve_on(of(op), -1.3, 1.6)
    assert isinstance(found, str)
    assert "jumps by" in found
    assert slope_on(of(op), -1.3, 1.6) == math.inf


def test_every_map_of_floats_is_in_one_of_these_lists() -> None:
    """Exp is among them by its own curve; of what is left out nothing curves or it has no slope."""
    maps = having(Trait.ELEMENTWISE) & having(Trait.UNARY)
    domain = {"Log", "Sqrt", "Reciprocal"}
    others = {"Identity", "Neg", "Not", "BitwiseNot", "IsNaN", "IsInf", "Cast", "BitCast"}
    assert maps - CURVED - STRAIGHT - JUMPING - domain - others == set()


@pytest.mark.parametrize(("op", "low", "high"), [("Tan", 1.0, 2.0), ("Log", -1.0, 2.0), ("Acosh", 0.5, 2.0)])
def test_a_function_that_is_not_defined_everywhere_is_refused(op: str, low: float, high: float) -> None:
    found = curve_on(of(op), low, high)
    assert isinstance(found, str)
    assert "not defined, or infinitely steep" in found
    assert values_on(of(op), low, high) == (-math.inf, math.inf)


STEEP = [
    (curves.RSQRT, 1e-3, 100.0),
    (curves.LOG, 1e-3, 100.0),
    (curves.RECIPROCAL, 0.01, 50.0),
    (curves.EXP, -8.0, 6.0),
    (curves.SQRT, 1e-3, 100.0),
]


@pytest.mark.parametrize("terms", [12, 32])
@pytest.mark.parametrize(("curve", "low", "high"), STEEP, ids=lambda one: getattr(one, "name", None))
def test_the_bound_holds_in_float32_whatever_the_order_and_form(
    curve: Curve, low: float, high: float, terms: int
) -> None:
    """Steep terms at one end do not cancel at the other: 1 / sqrt erred 0.45 where 0.023 was promised."""
    found = sums.best(curve, terms, low, high)
    assert found is not None
    rng = np.random.default_rng(2)
    x = np.sort(np.concatenate([rng.uniform(low, high, 20_000), np.linspace(low, high, 20_000)])).astype(np.float32)
    x = x[(x >= low) & (x <= high)]
    weights, knots, signs = (np.asarray(one, np.float32) for one in (found.weights, found.knots, found.signs))
    forward = np.arange(found.terms)
    for order, inside in itertools.product((forward, forward[::-1], rng.permutation(forward)), (False, True)):
        y = np.zeros_like(x)
        for at in order:
            w, t, s = weights[at], knots[at], signs[at]
            if inside:  # the weight goes into the convolution before the ReLU
                term = np.sign(w) * np.maximum(abs(w) * s * x - abs(w) * s * t, np.float32(0))
            else:
                term = w * np.maximum(s * x - s * t, np.float32(0))
            y = y + term
        y = y + np.float32(found.constant)
        assert np.abs(y.astype(np.float64) - curve.function(x.astype(np.float64))).max() <= found.bound


@pytest.mark.parametrize(("op", "others"), [("Pow", [1.7]), ("Pow", [3.0]), ("Max", [0.3]), ("Selu", []), ("Sin", [])])
def test_a_map_that_nobody_listed_goes_to_the_accelerator(op: str, others: list[float]) -> None:
    graph = single(op, others=others)
    between = (0.2, 4.0) if others == [1.7] else (-2.0, 2.0)
    rewritten, _, left = brought(graph, RELUS, between)
    assert not left
    assert {one.rule for one in rewritten.log} >= ({"relu_sum"} if op != "Max" else set())


def test_maps_one_after_another_are_one_sum_with_one_bound() -> None:
    nodes = [
        helper.make_node(op, [one, *more], [two], name=op.lower())
        for op, one, more, two in (
            ("Sin", "x", [], "a"), ("Mul", "a", ["two"], "b"), ("Exp", "b", [], "c"), ("Atan", "c", [], "y"),
        )
    ]  # fmt: skip
    graph = chain(nodes, (1, 2, 4, 4), {"two": np.asarray(0.5, np.float32)})
    rewritten, context, left = brought(graph, RELUS, (-2.0, 2.0))
    assert not left
    (found,) = context.approximations.values()
    assert found.joined is not None
    assert found.joined[0].name == "Atan of Exp of Mul of Sin"
    x = np.linspace(-2, 2, 999)
    assert found.joined[0](x) == pytest.approx(np.arctan(np.exp(0.5 * np.sin(x))), abs=1e-15)
    (x_id,) = graph.inputs
    (bound,) = (
        propagated(rewritten.graph, context.approximations, {x_id: (-2.0, 2.0)})[value] for value in graph.outputs
    )
    assert bound == found.bound


def test_a_value_between_two_maps_that_is_read_elsewhere_is_approximated_by_itself() -> None:
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], name="sin"),
        helper.make_node("Atan", ["a"], ["b"], name="atan"),
        helper.make_node("Add", ["a", "b"], ["y"], name="add"),
    ]
    _, context, left = brought(chain(nodes, (1, 2, 4, 4), {}), RELUS, (-2.0, 2.0))
    assert not left
    assert [one.joined for one in context.approximations.values()] == [None, None]


def test_an_error_before_a_map_grows_by_its_slope() -> None:
    graph = single("Sinh", (2, 3))
    (x,) = graph.inputs
    (y,) = graph.outputs
    errors = propagated(graph, {}, {x: (-1.0, 2.0)})
    assert errors[y] == 0.0
    one = map_of(graph.nodes[0], {})
    assert one is not None
    assert slope_on(one, -1.0, 2.0) == pytest.approx(math.cosh(2.0), rel=1e-9)
