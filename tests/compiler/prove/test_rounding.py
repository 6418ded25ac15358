from __future__ import annotations

import ml_dtypes
import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.prove.rounding import cases, largest_error, rounded
from tests.compiler.rewrite.sketch import Sketch


def short(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def network(seed: int = 0) -> tuple[Graph, tuple[np.ndarray, ...]]:
    """A Gemm with a bias, a Relu and a MatMul; with its weights."""
    s = Sketch(seed, DType.F32)
    w, b, v = (s.rng.normal(size=shape).astype(np.float32) for shape in ((16, 24), (24,), (24, 8)))
    y = s("Relu", s("Gemm", s.x(4, 16), s.c(w), s.c(b)))
    return s.graph(s("MatMul", y, s.c(v))), (w, b, v)


def drawn(graph: Graph, seed: int) -> dict[int, np.ndarray]:
    random = np.random.default_rng(seed)
    return {id: random.normal(size=graph.type(id).dims).astype(np.float32) for id in graph.inputs}


def test_factors_of_products_and_stored_results_are_rounded_and_what_is_added_is_not() -> None:
    graph, (w, b, v) = network()
    (given,) = (inputs := drawn(graph, 1)).values()
    relu = graph.nodes[1].outputs[0]
    every = rounded(graph, {0, 2}, {relu}, DType.BF16)
    every.verify()
    hidden = np.maximum(short(given) @ short(w) + b, 0)
    assert not np.array_equal(b, short(b))
    found = evaluate_graph(every, inputs, OPERATORS, wide=False)
    np.testing.assert_allclose(found[graph.outputs[0]], short(hidden) @ short(v), rtol=1e-5, atol=1e-5)
    stored = evaluate_graph(rounded(graph, set(), {relu}, DType.BF16), inputs, OPERATORS, wide=False)
    np.testing.assert_allclose(stored[graph.outputs[0]], short(np.maximum(given @ w + b, 0)) @ v, rtol=1e-5, atol=1e-5)
    assert rounded(graph, set(), set(), DType.BF16) == graph
    assert [node.op for node in every.nodes if node.op == "Cast"] == ["Cast"] * 2 * len({"x", "w", "relu", "v"})


def test_what_is_evaluated_from_the_first_rounded_value_on_is_what_the_whole_graph_gives() -> None:
    for seed in range(4):
        graph, _ = network(seed)
        inputs = [drawn(graph, seed), drawn(graph, seed + 10)]
        judged = cases(graph, inputs, OPERATORS, 2, 1 << 30)
        for multiplied, stored in (({0}, ()), ({2}, ()), ((), {graph.nodes[1].outputs[0]}), ({0, 2}, ())):
            changed = rounded(graph, multiplied, stored, DType.BF16)
            errors = []
            for given in inputs:
                (want,) = evaluate_graph(graph, given, OPERATORS, wide=False).values()
                (got,) = evaluate_graph(changed, given, OPERATORS, wide=False).values()
                errors.append(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())
            assert largest_error(judged, changed) == max(errors) > 1e-5
            assert largest_error(judged, changed, most=1e-9) == errors[0]
        assert largest_error(judged, graph) == 0


def test_inputs_without_a_finite_result_show_nothing_and_there_are_no_more_cases_than_asked_for_or_fit() -> None:
    graph, _ = network()
    (id,) = graph.inputs
    broken = {id: np.full((4, 16), np.nan, np.float32)}
    inputs = [broken, *(drawn(graph, seed) for seed in range(5))]
    assert not cases(graph, [broken], OPERATORS, 9, 1 << 30)
    assert len(cases(graph, inputs, OPERATORS, 9, 1 << 30)) == 5
    assert len(cases(graph, inputs, OPERATORS, 3, 1 << 30)) == 3
    each = sum(value.type.bytes for value in graph.values.values() if value.id not in graph.constants)
    assert len(cases(graph, inputs, OPERATORS, 3, 2 * each)) == 2
    assert not cases(graph, inputs, OPERATORS, 3, each - 1)


def test_constants_that_are_stored_short_are_rounded_to_the_type_that_is_asked_for() -> None:
    graph, (w, b, v) = network()
    (given,) = (inputs := drawn(graph, 2)).values()
    (weights,) = (id for id, array in graph.constants.items() if array.shape == v.shape)
    for element, narrow in ((DType.F16, np.float16), (DType.BF16, ml_dtypes.bfloat16)):
        stored = rounded(graph, set(), {weights}, element)
        stored.verify()
        found = evaluate_graph(stored, inputs, OPERATORS, wide=False)[graph.outputs[0]]
        want = np.maximum(given @ w + b, 0) @ v.astype(narrow).astype(np.float32)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        assert np.abs(found - np.maximum(given @ w + b, 0) @ v).max() > 1e-4
