from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.contract import OutputError
from compiler.errors import InputsError
from compiler.ir.graph import Graph, Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.prove.agree import MANTISSA, MOST_GRANTED, ModelRunner, agree, compare, default_tolerance
from compiler.prove.foresee import foresee
from compiler.prove.inputs import FURTHER
from compiler.prove.reference import evaluate_graph
from tests.parse import parse_graph

NAN, INF = math.nan, math.inf
DRAWS = FURTHER[:-1]
"""Of graphs without integers."""
DENSE = """graph(%0: f32[3, 40], %1: f32[40, 5]) -> (%3)
  %2: f32[3, 5] = MatMul(%0, %1) from "dense"
  %3: f32[3, 5] "y" = Tanh(%2) from "tanh"
"""


def error_of(got: Sequence[float], want: Sequence[float], dtype: DType = DType.F32) -> OutputError:
    """One output compared; references of floats are float64."""
    array = np.array(got, dtype.numpy)
    reference = np.array(want, np.float64 if dtype.is_float else dtype.numpy)
    (error,) = compare([array], [reference], [Value(4, TensorType(dtype, array.shape), "y")])
    return error


def numpy_model(graph: Graph, change: Callable[[np.ndarray], np.ndarray] = lambda y: y) -> ModelRunner:
    """Runs a graph in its own precision, and alters the last output."""

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS, wide=False)
        results = [found[value] for value in graph.outputs]
        return [*results[:-1], change(results[-1]).astype(results[-1].dtype)]

    return run


def test_errors_are_absolute_relative_to_the_largest_and_in_units_of_float32() -> None:
    ulp = 2.0**-23
    error = error_of([1 + 2 * ulp, -4.0], [1.0, -4.0])
    assert error == OutputError("y", 2 * ulp, 2 * ulp / 4, 2.0)


def test_the_distance_is_to_the_unrounded_reference() -> None:
    assert error_of([1.0], [1 + 2.0**-25]).max_ulp == 0.25


@pytest.mark.parametrize("kind", [NAN, INF, -INF])
def test_what_is_not_finite_agrees_with_its_own_kind_only(kind: float) -> None:
    assert error_of([kind, 2.0], [kind, 2.0]) == OutputError("y", 0.0, 0.0, 0.0)
    for other in {1.0, 0.0, INF, -INF} - {kind}:
        assert error_of([other, 2.0], [kind, 2.0]).max_relative == INF
        assert error_of([kind, 2.0], [other, 2.0]).max_relative == INF


def test_a_reference_beyond_the_range_of_the_output_is_infinite() -> None:
    assert error_of([INF, 1.0], [1e39, 1.0]).max_absolute == 0
    assert error_of([65504.0], [1e6], DType.F16).max_absolute == INF


def test_the_finite_elements_beside_infinite_ones_are_still_judged() -> None:
    assert error_of([INF, 3.0], [INF, 2.0]).max_relative == 0.5


def test_against_an_all_zero_reference_the_error_is_absolute() -> None:
    assert error_of([1e-3, 0.0], [0.0, -0.0]).max_relative == pytest.approx(1e-3)
    assert error_of([0.0], [0.0]) == OutputError("y", 0.0, 0.0, 0.0)


def test_unequal_integers_and_booleans_are_counted() -> None:
    assert error_of([1, 2, 9], [1, 3, 5], DType.I64) == OutputError("y", 4.0, 0.8, 2.0)
    assert error_of([True, False], [True, True], DType.BOOL) == OutputError("y", 1.0, 1.0, 1.0)
    assert error_of([2**62 + 1], [2**62], DType.I64).max_ulp == 1
    assert error_of([255, 0], [0, 0], DType.U8) == OutputError("y", 255.0, 255.0, 1.0)


def test_an_empty_output_agrees() -> None:
    assert error_of([], []) == OutputError("y", 0.0, 0.0, 0.0)


def test_an_output_without_a_name_goes_by_its_number() -> None:
    (error,) = compare([np.zeros(1)], [np.zeros(1)], [Value(4, TensorType(DType.F64, (1,)))])
    assert error.output == "%4"


def test_results_of_another_number_or_shape_are_refused() -> None:
    value = Value(4, TensorType(DType.F32, (2,)), "y")
    with pytest.raises(ValueError, match="1 results and 0 references"):
        compare([np.zeros(2)], [], [value])
    with pytest.raises(ValueError, match=r"output 'y' has shape \[3\], its reference \[2\]"):
        compare([np.zeros(3)], [np.zeros(2)], [value])


def test_a_right_program_passes_on_random_and_edge_inputs() -> None:
    graph = parse_graph(DENSE)
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert verdict.passed
    assert verdict.cases == ("random", *DRAWS, "zeros", "ones", "negative", "large")
    assert 0 < verdict.worst < verdict.tolerance == 1e-4
    assert verdict.errors[0].output == "y"


def test_a_wrong_program_fails_and_hands_back_the_inputs_that_show_it() -> None:
    graph = parse_graph(DENSE)
    verdict = agree(numpy_model(graph, lambda y: y * 1.001), graph, OPERATORS, None, 0)
    assert not verdict.passed
    assert verdict.cases[-1] == "random"
    assert verdict.worst == pytest.approx(1e-3, rel=0.01)
    assert verdict.failing_inputs is not None
    assert verdict.failing_inputs.keys() == {0, 1}


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_every_way_to_run_a_program_is_judged_and_the_one_that_is_furthest_off_named(wrong: int) -> None:
    graph = parse_graph(DENSE)
    ways = [numpy_model(graph, lambda y, off=at == wrong: y * (1.001 if off else 1.0)) for at in range(3)]  # type: ignore[misc]
    verdict = agree(ways[0], graph, OPERATORS, None, 0, others=ways[1:])
    assert (verdict.passed, verdict.failing_way) == (False, wrong)
    assert verdict.worst == pytest.approx(1e-3, rel=0.01)
    stated = agree(ways[0], graph, OPERATORS, 1e-4, 0, others=ways[1:])
    assert (stated.passed, stated.failing_way) == (False, wrong)


TWO_RESULTS = """graph(%0: f32[3, 40], %1: f32[40, 5]) -> (%2, %3)
  %2: f32[3, 5] "sums" = MatMul(%0, %1) from "dense"
  %3: f32[3, 5] "y" = Tanh(%2) from "tanh"
"""


@pytest.mark.parametrize("tolerance", [None, 1e-4])
@pytest.mark.parametrize(("wrong", "name"), [(0, "sums"), (1, "y")])
def test_every_output_is_judged(wrong: int, name: str, tolerance: float | None) -> None:
    graph = parse_graph(TWO_RESULTS)
    right = numpy_model(graph)

    def model(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [array * np.float32(1.001 if at == wrong else 1) for at, array in enumerate(right(inputs))]

    verdict = agree(model, graph, OPERATORS, tolerance, 0)
    assert not verdict.passed
    assert [error.output for error in verdict.errors] == ["sums", "y"]
    assert [error.output for error in verdict.errors if error.max_relative > verdict.tolerance] == [name]
    assert agree(right, graph, OPERATORS, tolerance, 0).passed


def test_a_fault_that_only_an_edge_case_shows_is_found() -> None:
    graph = parse_graph("graph(%0: f32[50]) -> (%1)\n  %1: f32[50] = Abs(%0)")
    verdict = agree(numpy_model(graph, lambda y: np.minimum(y, 50)), graph, OPERATORS, None, 0)
    assert (verdict.passed, verdict.cases[-1]) == (False, "large")


def test_the_stated_tolerance_rules() -> None:
    graph = parse_graph(DENSE)
    off = numpy_model(graph, lambda y: y * 1.001)
    assert agree(off, graph, OPERATORS, 2e-3, 0).passed
    assert not agree(numpy_model(graph), graph, OPERATORS, 1e-9, 0).passed


# The result keeps few bits of %0: adding %1 rounds them away.
LOSSY = """graph(%0: f32[200]) -> (%3)
  %1: f32[] = const {{{large}}}
  %2: f32[200] = Add(%0, %1)
  %3: f32[200] = Sub(%2, %1)
"""


def test_rounding_that_float32_itself_suffers_is_granted_unless_a_tolerance_is_stated() -> None:
    graph = parse_graph(LOSSY.format(large=30000.0))
    assert not agree(numpy_model(graph), graph, OPERATORS, 1e-4, 0).passed
    granted = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert granted.passed
    assert 1e-4 < granted.worst < granted.tolerance < MOST_GRANTED
    assert not agree(numpy_model(graph, lambda y: y * 1.02), graph, OPERATORS, None, 0).passed


def test_one_lucky_draw_of_rounding_errors_does_not_make_another_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy, ones = LOSSY.format(large=30000.0).replace("-> (%3)", "-> (%5)"), ", ".join(["1.0"] * 200)
    graph = parse_graph(f"{lossy}  %4: f32[200] = const {{{ones}}}\n  %5: f32[] = MatMul(%3, %4)\n")
    monkeypatch.setattr("compiler.prove.agree.edge_inputs", lambda *_: iter(()))

    def passed(factor: float) -> int:
        def scaled(given: Sequence[np.ndarray]) -> list[np.ndarray]:
            scale, large = np.float32(1.25), np.float32(30000.0)
            return [np.float32(factor) * (((given[0] * scale) + large) - large).sum() / scale]

        return sum(agree(scaled, graph, OPERATORS, None, seed).passed for seed in range(24))

    several = passed(1.0)
    assert several >= 20
    assert passed(1.1) == 0
    monkeypatch.setattr("compiler.prove.agree.FURTHER_DRAWS", 0)
    assert passed(1.0) <= several - 2, "numpy's own evaluation alone"


def test_a_case_that_float32_itself_cannot_decide_decides_nothing() -> None:
    graph = parse_graph(LOSSY.format(large=3000000.0))
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert verdict.undecided
    assert verdict.tolerance <= MOST_GRANTED
    assert not agree(numpy_model(graph), graph, OPERATORS, 1e-4, 0).passed


def test_a_class_that_wins_by_a_hair_may_lose_but_not_many_of_them() -> None:
    graph = parse_graph(
        "graph(%0: f32[30000, 4]) -> (%1)\n  %1: i64[30000] = ArgMax(%0) axis=1 keepdims=0 select_last_index=0"
    )

    def flip(count: int) -> ModelRunner:
        return numpy_model(graph, lambda y: np.concatenate((3 - y[:count], y[count:])))

    assert agree(flip(2), graph, OPERATORS, 1e-4, 0).passed
    assert not agree(flip(30), graph, OPERATORS, 1e-4, 0).passed


def test_a_case_in_which_the_model_itself_overflows_decides_nothing() -> None:
    graph = parse_graph(
        """graph(%0: f32[20]) -> (%3)
      %1: f32[20] = Exp(%0)
      %2: f32[] = const {1e-30}
      %3: f32[20] = Mul(%1, %2)"""
    )
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert verdict.passed
    assert verdict.undecided == ("large",)
    assert verdict.cases == ("random", *DRAWS, "zeros", "ones", "negative")


def test_a_model_that_gives_no_number_at_all_has_not_passed() -> None:
    graph = parse_graph(
        """graph(%0: f32[20]) -> (%2)
      %1: f32[] = const {nan}
      %2: f32[20] = Add(%0, %1)"""
    )
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert (verdict.passed, verdict.cases, len(verdict.undecided)) == (False, (), 1 + len(DRAWS) + 4)
    assert verdict.unshown == ("%2",)
    assert not verdict.failed


def test_without_time_the_random_case_is_judged_all_the_same() -> None:
    graph = parse_graph(DENSE)
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0, budget_s=0)
    assert verdict.passed
    assert verdict.cases == ("random",)
    assert verdict.skipped == (*DRAWS, "zeros", "ones", "negative", "large")


def test_a_graph_without_inputs_is_judged_once() -> None:
    graph = parse_graph("graph() -> (%1)\n  %0: f32[2] = const {1.0, 2.0}\n  %1: f32[2] = Neg(%0)")
    assert agree(numpy_model(graph), graph, OPERATORS, None, 0).cases == ("random",)


def test_quantised_models_have_a_wider_default() -> None:
    assert default_tolerance(parse_graph(DENSE), "fp32") == 1e-4
    quantised = parse_graph(
        """graph(%0: f32[2]) -> (%3)
      %1: f32[] = const {0.1}
      %2: u8[] = const {3}
      %3: u8[2] = QuantizeLinear(%0, %1, %2) axis=1"""
    )
    assert default_tolerance(quantised, "fp32") == 2e-2


SHARP = """graph(%0: f32[500, 16]) -> (%1)
  %1: f32[500, 16] "y" = Softmax(%0) axis=1 from "soft"
"""


def short_model(graph: Graph, mantissa: int, change: Callable[[np.ndarray], np.ndarray] = lambda y: y) -> ModelRunner:
    """Runs a graph with every value in so many bits, and alters the last output."""

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = dict(zip(graph.inputs, inputs, strict=True))
        found = evaluate_graph(graph, given, OPERATORS, wide=False, mantissa=mantissa)
        return [change(found[value]).astype(np.float32) for value in graph.outputs]

    return run


@pytest.mark.parametrize("precision", sorted(MANTISSA))
def test_a_case_that_rounding_to_the_jobs_precision_spoils_shows_nothing_and_others_still_do(precision: str) -> None:
    """A softmax of large numbers turns their rounding into an error of its own size."""
    graph = parse_graph(SHARP)
    verdict = agree(short_model(graph, MANTISSA[precision]), graph, OPERATORS, None, 1, precision=precision)
    assert verdict.passed
    assert "large" in verdict.undecided
    assert "random" in verdict.cases
    stated = agree(short_model(graph, MANTISSA[precision]), graph, OPERATORS, 1e-4, 1, precision=precision)
    assert not stated.passed


def test_a_fault_larger_than_the_rounding_of_the_precision_is_found() -> None:
    graph = parse_graph(DENSE)
    run = short_model(graph, MANTISSA["fp16"], lambda y: y + np.float32(0.03))
    assert not agree(run, graph, OPERATORS, None, 1, precision="fp16").passed
    assert agree(short_model(graph, MANTISSA["fp16"]), graph, OPERATORS, None, 1, precision="fp16").passed


def saturated(largest: float) -> ModelRunner:
    """DENSE with its product in a float that ends at `largest`: what is beyond is no number."""
    graph = parse_graph(DENSE)

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = evaluate_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), OPERATORS, keep=[2])
        return [np.where(np.abs(found[2]) > largest, np.nan, found[3]).astype(np.float32)]

    return run


def test_a_random_case_beyond_the_range_fails_and_names_the_node() -> None:
    verdict = agree(saturated(3.0), parse_graph(DENSE), OPERATORS, None, 1, precision="fp16", largest=3.0)
    assert (verdict.passed, verdict.cases[-1]) == (False, "random")
    assert verdict.beyond_range.startswith("node 'dense' (MatMul) gives values of up to ")
    assert verdict.beyond_range.endswith("the largest number is 3")


def test_an_edge_case_beyond_the_range_shows_nothing() -> None:
    verdict = agree(saturated(100.0), parse_graph(DENSE), OPERATORS, None, 1, precision="fp16", largest=100.0)
    assert verdict.passed
    assert (verdict.undecided, verdict.beyond_range) == (("offset", "large"), "")
    unlimited = agree(saturated(100.0), parse_graph(DENSE), OPERATORS, None, 1, precision="fp16")
    assert (unlimited.passed, unlimited.cases[-1], unlimited.beyond_range) == (False, "offset", "")


SELECTED = """graph(%0: f32[1, 8]) -> (%2, %5)
  %1: f32[8, 8] = const {%(ones)s}
  %2: f32[1, 8] "all" = MatMul(%0, %1)
  %3: f32[1, 8] = Mul(%2, %2)
  %4: f32[1, 8] = Neg(%3)
  %5: f32[1, 8] "rooted" = Sqrt(%4)
"""
SELECTED = SELECTED.replace("%(ones)s", ", ".join(["1.0"] * 64))
NAN_BY_DESIGN = """graph(%0: f32[4]) -> (%1, %4)
  %1: f32[4] "y" = Neg(%0)
  %2: f32[2] = const {0.0, 0.0}
  %3: f32[2] = Div(%2, %2)
  %4: f32[2] "nothing" = Identity(%3)
"""
NO_ELEMENT = """graph(%0: f32[4], %1: f32[0, 3]) -> (%2, %3)
  %2: f32[4] "y" = Neg(%0)
  %3: f32[0, 3] "none" = Neg(%1)
"""
OF_NOTHING = """graph(%0: f32[2, 0, 4], %1: i64[1]) -> (%2, %4)
  %2: f32[2, 1, 4] "least" = ReduceMax(%0) axes=(1) keepdims=1
  %3: f32[1] = Cast(%1) to=1
  %4: f32[2, 1, 4] "with" = Mul(%2, %3)
"""


@pytest.mark.parametrize(
    ("text", "unshown"),
    [
        (DENSE, ()),
        (SELECTED, ("rooted",)),  # sqrt(-y * y) is NaN but where y is zero, as in an edge case
        (NAN_BY_DESIGN, ()),
        (NO_ELEMENT, ()),
        (OF_NOTHING, ()),
    ],
    ids=["all shown", "one output without a number", "NaN by design", "an output without elements", "of nothing"],
)
def test_every_output_needs_a_draw_that_shows_it(text: str, unshown: tuple[str, ...]) -> None:
    graph = parse_graph(text)
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert verdict.unshown == unshown
    assert (verdict.passed, verdict.failed) == (not unshown, False)
    assert not {case.name for case in verdict.each if not case.decided} - {*verdict.undecided, *verdict.skipped}
    assert all(case.decided or case.why for case in verdict.each)


def test_infinities_of_nothing_have_to_be_the_same_ones() -> None:
    graph = parse_graph(OF_NOTHING)
    assert agree(numpy_model(graph, np.negative), graph, OPERATORS, None, 0).failed
    foreseen = foresee(graph, OPERATORS, 0)
    assert not foreseen.unshown
    assert "ReduceMax" in foreseen.not_finite


def test_an_output_that_drawn_inputs_do_not_show_is_shown_by_a_sample_and_by_no_edge_case() -> None:
    graph = parse_graph(SELECTED)
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0)
    assert "zeros" in verdict.cases
    assert verdict.unshown == ("rooted",)
    sampled = agree(numpy_model(graph), graph, OPERATORS, None, 0, samples={"s": {0: np.zeros((1, 8), np.float32)}})
    assert sampled.passed
    assert agree(numpy_model(graph, lambda y: y + 1), graph, OPERATORS, None, 0).failed


def test_what_one_boolean_switches_on_is_shown_whatever_the_seed() -> None:
    graph = parse_graph("""graph(%0: f32[4], %1: bool[]) -> (%3)
      %2: f32[] = const {nan}
      %3: f32[4] "y" = Where(%1, %0, %2)""")
    for seed in range(20):
        assert agree(numpy_model(graph), graph, OPERATORS, None, seed).passed, seed


@pytest.mark.parametrize("lost", [2.0**-18, 2.0**-20])
def test_a_sum_that_loses_a_little_with_each_term_is_found_by_terms_of_one_sign(lost: float) -> None:
    graph = parse_graph('graph(%0: f32[4, 5000]) -> (%1)\n  %1: f32[4] "y" = ReduceSum(%0) axes=(1,) keepdims=0')

    def losing(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = inputs[0].astype(np.float64)
        return [(given.sum(1) * (1 - 5000 * lost / 4)).astype(np.float32)]

    verdict = agree(losing, graph, OPERATORS, 1e-4, 0)
    assert verdict.failed


ROWS = """graph(%0: i64[3], %1: f32[4, 2]) -> (%3)
  %2: i64[3] = Identity(%0)
  %3: f32[3, 2] "y" = Gather(%1, %2) axis=0 from "rows"
"""
OPEN = """graph(%0: f32[3, 3], %1: f32[4, 2]) -> (%4)
  %2: f32[3, 3] = MatMul(%0, %0)
  %5: f32[3, 3] = const {1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0}
  %6: f32[3, 3] = Sub(%2, %5)
  %7: f32[3, 3] = Mul(%6, %6)
  %8: f32[] = const {1e6}
  %9: f32[3, 3] = Mul(%7, %8)
  %3: i64[3, 3] = Cast(%9) to=7
  %4: f32[3, 3, 2] "y" = Gather(%1, %3) axis=0 from "rows"
"""
"""What it reads is computed, and no range of its input is known to lead inside."""


def test_samples_are_judged_beside_the_random_and_the_edge_cases() -> None:
    graph = parse_graph(ROWS)
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    samples = {"sample 'a'": {0: np.array([1, 2, 3]), 1: table}, "sample 'b'": {0: np.array([-1, -4, 0]), 1: table}}
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 0, samples=samples, budget_s=0)
    assert verdict.cases == ("random", "sample 'a'", "sample 'b'")
    assert verdict.skipped == (*FURTHER, "zeros", "ones", "negative", "large")


def test_a_program_that_is_wrong_on_a_sample_alone_fails_on_it() -> None:
    graph = parse_graph(DENSE)
    shapes = {value: graph.type(value).dims for value in graph.inputs}
    given = {value: np.full(dims, 0.125, np.float32) for value, dims in shapes.items()}
    right = numpy_model(graph)

    def wrong(inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        is_sample = all(np.all(array == 0.125) for array in inputs)
        return [result * 1.01 if is_sample else result for result in right(inputs)]

    assert agree(wrong, graph, OPERATORS, None, 0).passed
    verdict = agree(wrong, graph, OPERATORS, None, 0, samples={"sample 'x'": given})
    assert (verdict.passed, verdict.cases[-1]) == (False, "sample 'x'")


def test_a_sample_that_leads_outside_is_at_fault_and_named() -> None:
    graph = parse_graph(ROWS)
    given = {0: np.array([0, 4, 0]), 1: np.ones((4, 2), np.float32)}
    with pytest.raises(InputsError, match="sample 'x' inputs: these inputs lead node 'rows'"):
        agree(numpy_model(graph), graph, OPERATORS, None, 0, samples={"sample 'x'": given})


def test_drawn_inputs_that_lead_outside_ask_for_samples_and_decide_nothing_beside_them() -> None:
    graph = parse_graph(OPEN)
    with pytest.raises(InputsError, match="random inputs: these inputs lead node 'rows'") as caught:
        agree(numpy_model(graph), graph, OPERATORS, None, 3)
    assert caught.value.fix == "give samples of inputs that the model takes"
    given = {0: np.eye(3, dtype=np.float32), 1: np.ones((4, 2), np.float32)}
    verdict = agree(numpy_model(graph), graph, OPERATORS, None, 3, samples={"sample 'x'": given})
    assert verdict.passed
    assert verdict.cases[0] == "sample 'x'"
    assert {"random", "large"} <= {*verdict.undecided}
