"""Outputs of small types: their reference's elements, or at a tie one of the two beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.contract import OutputError
from compiler.ir.graph import Graph, Value
from compiler.ir.small import places
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.prove.agree import QUANTISED_TOLERANCE, Agreement, agree, compare, default_tolerance
from compiler.prove.inputs import edge_inputs, sample_inputs
from compiler.prove.reference import evaluate_graph
from tests.parse import parse_graph

E4M3 = DType.F8E4M3FN
QUANTISES = """graph(%0: f32[3, 40], %1: f32[40, 5]) -> (%3)
  %2: f32[3, 5] = MatMul(%0, %1) from "dense"
  %3: f8e4m3fn[3, 5] "y" = Cast(%2) to=17 from "cast"
"""
TIES = """graph(%0: f32[8]) -> (%2)
  %3: f32[1] = const {1.0}
  %1: f32[8] = Mul(%0, %3) from "scale"
  %2: f8e4m3fn[8] "y" = Cast(%1) to=17 from "cast"
"""


def error_of(got: Sequence[float], want: Sequence[float], dtype: DType) -> OutputError:
    arrays = [np.array(one, np.float32).astype(dtype.numpy) for one in (got, want)]
    (error,) = compare([arrays[0]], [arrays[1]], [Value(4, TensorType(dtype, arrays[0].shape), "y")])
    return error


def moved(array: np.ndarray, steps: int) -> np.ndarray:
    """The first element replaced by the one so many steps above it."""
    dtype = DType.of(array.dtype)
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    place = places(array, dtype).reshape(-1)[0] + steps
    changed = array.copy()
    changed.reshape(-1)[0] = every[np.flatnonzero(places(every, dtype) == place)[0]]
    return changed


def judged(graph: Graph, change: Callable[[np.ndarray], np.ndarray], tolerance: float | None = None) -> Agreement:
    """The verdict on numpy's own evaluation, of which the output is changed; random inputs and samples of ties."""

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS, wide=False)
        return [change(found[value]) for value in graph.outputs]

    return agree(run, graph, OPERATORS, tolerance, 0)


def test_steps_are_counted_from_one_element_to_the_next() -> None:
    assert error_of([1.0, -4.0], [1.0, -4.0], E4M3) == OutputError("y", 0.0, 0.0, 0.0)
    assert error_of([1.125, -4.0], [1.0, -4.0], E4M3) == OutputError("y", 0.125, 0.125 / 4, 1.0)
    assert error_of([-0.0, 2.0], [0.0, 2.0], E4M3) == OutputError("y", 0.0, 0.0, 0.0)
    assert error_of([3, -2], [5, -2], DType.I4).max_ulp == 2
    assert error_of([4.0], [1.0], DType.F8E8M0).max_ulp == 2


def test_nan_agrees_with_nan_alone_and_infinity_is_the_next_after_the_greatest() -> None:
    assert error_of([math.nan], [math.nan], E4M3).max_ulp == 0
    assert error_of([448.0], [math.nan], E4M3).max_ulp == math.inf
    assert error_of([math.nan], [448.0], E4M3).max_ulp == math.inf
    assert error_of([math.inf], [57344.0], DType.F8E5M2).max_ulp == 1


def test_a_right_program_passes_and_what_rounds_to_small_types_counts_as_quantised() -> None:
    graph = parse_graph(QUANTISES)
    verdict = judged(graph, lambda y: y)
    assert verdict.passed
    assert verdict.worst == 0
    assert default_tolerance(graph, "fp32") == QUANTISED_TOLERANCE


@pytest.mark.parametrize("tolerance", [None, 1e-4, 0.5])
@pytest.mark.parametrize("steps", [1, -1, 2, -2])
def test_an_element_beside_the_right_one_is_wrong_where_no_rounding_error_explains_it(
    steps: int, tolerance: float | None
) -> None:
    assert not judged(parse_graph(QUANTISES), lambda y: moved(y, steps), tolerance).passed


def at_tie(steps: int, tolerance: float | None, offset: float = 0.0) -> bool:
    """The verdict on a program that is so many steps off where the value lies in the middle, 1.0625, or beside it."""
    graph = parse_graph(TIES)
    sample = {0: np.full(8, 1.0625 + offset, np.float32)}

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS, wide=False)
        result = found[graph.outputs[0]]
        return [moved(result, steps) if np.array_equal(inputs[0], sample[0]) else result]

    return agree(run, graph, OPERATORS, tolerance, 0, samples={"ties": sample}).passed


@pytest.mark.parametrize("tolerance", [None, 1e-4])
def test_at_a_tie_the_neighbour_on_the_other_side_is_right_and_no_other(tolerance: float | None) -> None:
    assert at_tie(0, tolerance)
    assert at_tie(1, tolerance)
    assert not at_tie(-1, tolerance)
    assert not at_tie(2, tolerance)


def test_what_lies_off_the_middle_by_more_than_rounding_is_no_tie() -> None:
    assert at_tie(1, None, -5e-5)
    assert not at_tie(1, None, -5e-4)


READ_BACK = """graph(%0: f32[8]) -> (%2)
  %1: f8e4m3fn[8] = Cast(%0) to=17 from "narrow"
  %2: f32[8] "y" = Cast(%1) to=1 from "wide"
"""


def test_a_float_read_from_an_element_at_a_tie_is_not_judged_wrong() -> None:
    graph = parse_graph(READ_BACK)
    sample = {0: np.full(8, 1.0625, np.float32)}

    def run(inputs: Sequence[np.ndarray], wrong: float = 1.125) -> list[np.ndarray]:
        found = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS, wide=False)
        return [np.full(8, wrong, np.float32) if np.array_equal(inputs[0], sample[0]) else found[graph.outputs[0]]]

    verdict = agree(run, graph, OPERATORS, None, 0, samples={"ties": sample})
    assert verdict.passed
    assert "ties" in verdict.undecided


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_small], ids=str)
def test_inputs_of_small_types_are_drawn_as_finite_elements(dtype: DType) -> None:
    graph = parse_graph(f'graph(%0: {dtype}[200]) -> (%1)\n  %1: {dtype}[200] "y" = Identity(%0) from "same"\n')
    drawn = [("random", sample_inputs(graph, 1)), *edge_inputs(graph, 1)]
    assert len(drawn) == 5
    for name, inputs in drawn:
        assert inputs[0].dtype == dtype.numpy
        assert np.isfinite(inputs[0].astype(np.float32)).all(), name
    spread = np.unique(drawn[0][1][0].astype(np.float32))
    assert len(spread) >= (4 if dtype in (DType.I2, DType.U2) else 8)
