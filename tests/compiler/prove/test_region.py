from __future__ import annotations

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.errors import InputsError
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.effort import reference_effort
from compiler.prove.ranges import derive
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import model_of

ENDLESS = model_of("""m (float[2] x, float limit) => (float[2] y) <bool on = {1}> {
    y = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w) {
        w = Neg(v) s = ReduceMax<keepdims=0>(w) again = Less(s, limit)
    }>(, on, x)
}""")


def test_a_loop_that_inputs_do_not_end_asks_for_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.prove.region.MOST_TURNS", 50)
    graph = load(ENDLESS, CompileOptions(), OPERATORS).graph

    def at(limit: float) -> dict[int, np.ndarray]:
        return dict(zip(graph.inputs, (np.ones(2, np.float32), np.array(limit, np.float32)), strict=True))

    assert evaluate_graph(graph, at(-5.0), OPERATORS)[graph.outputs[0]].tolist() == [-1.0, -1.0]
    with pytest.raises(InputsError, match="run more than 50 times") as caught:
        evaluate_graph(graph, at(5.0), OPERATORS)
    assert "samples" in caught.value.fix


LOOKED_UP = model_of("""m (int64[1] token, int64 turns, float[9,4] table) => (float[1,4] y)
<float[1,4] zero = {0.0, 0.0, 0.0, 0.0}> {
    y = Loop<body = b (int64 i, bool c, float[1,4] v) => (bool d, float[1,4] w) {
        d = Identity(c) two = Constant<value_int = 2>() k = Mod(i, two) t = Add(token, k)
        e = Gather<axis=0>(table, t) w = Add(v, e)
    }>(turns, , zero)
}""")


def test_what_a_body_reads_as_a_position_is_demanded_of_the_input_that_it_comes_from() -> None:
    graph = load(LOOKED_UP, CompileOptions(), OPERATORS).graph
    token, turns, _ = graph.inputs
    ranges = derive(graph).ranges
    found = ranges[token].interval
    assert -9 <= found.low <= found.high <= 8
    assert "While" in ranges[token].why
    assert (ranges[turns].interval.low, ranges[turns].interval.high) == (0, 16)


def test_a_loop_takes_as_long_as_all_of_its_iterations() -> None:
    text = """m (float[64,64] x) => (float[64,64] y) <int64 most = {MOST}> {
        y = Loop<body = b (int64 i, bool c, float[64,64] v) => (bool d, float[64,64] w) {
            d = Identity(c) t = Tanh(v) w = MatMul(t, x)
        }>(most, , x)
    }"""
    short, long = (
        reference_effort(load(model_of(text.replace("MOST", most)), CompileOptions(), OPERATORS).graph).seconds
        for most in ("500", "5000")
    )
    assert 9 * short < long < 11 * short
