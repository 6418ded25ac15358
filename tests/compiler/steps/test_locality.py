"""What operators read along an axis, by their definitions: rates, steps and margins."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.steps.locality import EXACT, Margins, NotLocal, Track, local
from tests.compiler.steps.local_models import Net

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
CASES: tuple[tuple[str, Any, dict[str, Any], tuple[int, Fraction, int, int, int]], ...] = (
    ("Conv", (2, 2, 3), {"pads": [1, 1]}, (2, Fraction(1), 1, 1, 1)),
    ("Conv", (2, 2, 3), {"pads": [4, 0], "dilations": [2]}, (2, Fraction(1), 1, 4, 0)),
    ("Conv", (2, 2, 5), {}, (2, Fraction(1), 1, 0, 0)),
    ("Conv", (2, 2, 3), {"pads": [1, 0], "strides": [2]}, (2, Fraction(2), 1, 1, 0)),
    ("ConvTranspose", (2, 2, 4), {"pads": [1, 1], "strides": [2]}, (2, Fraction(1, 2), 2, 2, 2)),
    ("ConvTranspose", (2, 2, 3), {"pads": [1, 0], "strides": [2]}, (2, Fraction(1, 2), 2, 1, 1)),
    ("Resize", [1, 1, 3], NEAREST, (2, Fraction(1, 3), 3, 0, 0)),
    ("Resize", [1, 1, 2], LINEAR, (2, Fraction(1, 2), 2, 1, 3)),
    ("AveragePool", None, {"kernel_shape": [3], "pads": [1, 1]}, (2, Fraction(1), 1, 2, 1)),
    ("Softmax", None, {"axis": 1}, (2, Fraction(1), 1, 0, 0)),
    ("Transpose", None, {"perm": [0, 2, 1]}, (1, Fraction(1), 1, 0, 0)),
)
"""An operator, what it is given beside x [1, 2, 24], and what is found: axis of the result, rate of x, step,
and margins. Those of transposed, interpolating and counting ones are some positions more than need be: bounds of an
index know neither phases nor that a limit is met exactly."""


@pytest.mark.parametrize(("op", "given", "attrs", "wanted"), CASES)
def test_rates_steps_and_margins_follow_from_the_definition(
    op: str, given: Any, attrs: dict[str, Any], wanted: tuple[int, Fraction, int, int, int]
) -> None:
    net = Net(np.random.default_rng(0))
    beside = [net.normal(*given)] if isinstance(given, tuple) else ["", net.constant(given)] if given else []
    graph = load(net.model((1, 2, 24), net.node(op, "x", *beside, **attrs)), CompileOptions(), OPERATORS).graph
    axis, rate, step, before, after = wanted
    (read,), (written,) = graph.inputs, graph.nodes[0].outputs
    found = local(graph, graph.nodes[0], {written: Track(axis, Fraction(1))})
    assert found.tracks == {read: Track(2, rate)}
    assert (found.moduli[written], found.margins({read: EXACT})) == (step, Margins(before, after))


def test_the_other_axis_is_not_local() -> None:
    net = Net(np.random.default_rng(0))
    graph = load(net.model((1, 2, 24), net.node("Softmax", "x", axis=1)), CompileOptions(), OPERATORS).graph
    with pytest.raises(NotLocal, match="reads all positions of the axis"):
        local(graph, graph.nodes[0], {graph.nodes[0].outputs[0]: Track(1, Fraction(1))})
