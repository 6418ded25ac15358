"""Loops whose condition counts, as TensorFlow's are exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ir.region import WHILE
from compiler.ops import OPERATORS
from compiler.pack.loader import Model
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened
from tests.compiling import compile_file


def counting(condition: str, rows: str = "n") -> bytes:
    """A loop over the rows of x that carries a counter, its limit and a sum, and has no trip count."""
    return model_of(
        f"m (float[{rows},3] x) => (float[3] y, float[k,3] each)"
        " <int32 zero = {0}, float[3] start = {0, 0, 0}, int64[1] front = {0}> {"
        " whole = Shape<start=0, end=1>(x) long = Squeeze(whole, front) steps = Cast<to=6>(long)"
        " nothing = Cast<to=1>(zero) some = Cast<to=1>(steps) goes = Less(nothing, some)"
        " count, limit, y, each = Loop<body = b (int64 i, bool c, int32 at, int32 most, float[3] sum)"
        " => (bool again, int32 next, int32 kept, float[3] more, float[3] row)"
        " <int32 one = {1}, int32 ten = {10}> {"
        " next = Add(at, one) slice = Gather<axis=0>(x, at) bent = Tanh(sum) more = Add(bent, slice)"
        " row = Identity(more) kept = Identity(most)"
        f" {condition} }}>(, goes, zero, steps, start) }}"
    )


LESS = "f = Cast<to=1>(next) g = Cast<to=1>(most) again = Less(f, g)"
BOTH = "a = Greater(most, next) b = LessOrEqual(next, ten) again = And(a, b)"


def runs(model: bytes, rows: int) -> int:
    """Rows that ONNX Runtime stacks."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return len(session.run(None, {"x": np.ones((rows, 3), np.float32)})[1])


def test_a_long_loop_that_counts_is_one_of_the_artifact(tmp_path: Path) -> None:
    rows = 250
    model = counting(LESS, str(rows))
    graph = load(model, CompileOptions(), OPERATORS).graph
    assert [node.attrs["most"] for node in graph.nodes if node.op == WHILE] == [rows]
    file, artifact = tmp_path / "model.onnx", tmp_path / "model.tw"
    file.write_bytes(model)
    compile_file(file, artifact, CompileOptions(threads=1, tuning_budget_s=0), measure=False)
    x = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with Model(artifact) as opened_one:
        for found, right in zip(opened_one.run({"x": x}).values(), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_a_short_loop_that_counts_is_written_out() -> None:
    graph = load(counting(LESS, "4"), CompileOptions(), OPERATORS).graph
    ops = [node.op for node in graph.nodes]
    assert WHILE not in ops
    assert ops.count("Tanh") == 3, "that of the first iteration is known"


@pytest.mark.parametrize("condition", [LESS, BOTH])
def test_a_loop_over_an_open_axis_counts_to_its_size(condition: str) -> None:
    model = counting(condition)
    loaded = opened(model, {"n": (1, 12)})
    assert loaded.open_shapes is not None
    for rows in (1, 5, 10, 11, 12):
        y, each, *_ = agree_at(loaded, model, {"n": rows})
        assert y.shape == (3,)
        assert runs(model, rows) == (rows if condition == LESS else min(rows, 11)), each.shape


@pytest.mark.parametrize(
    "condition", ["f = Mul(next, one) again = Less(f, most)", "a = Less(next, most) b = Not(a) again = Not(b)"]
)
def test_a_condition_of_another_form_is_followed_from_iteration_to_iteration(condition: str) -> None:
    model = counting(condition, "4")
    graph = load(model, CompileOptions(), OPERATORS).graph
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    found = evaluate_graph(graph, {graph.inputs[0]: x}, OPERATORS)
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for id, right in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[id], right, rtol=1e-5, atol=1e-6)
