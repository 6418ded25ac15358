"""Errors beside those of float32 itself, decisions that differ, and what is said of outputs that are much worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.zoo import build
from compiler.contract import BesideFloat32, CompileOptions, LayerError, OutputError
from compiler.ir.graph import Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.prove import beside
from compiler.prove.agree import Known, agree
from compiler.prove.beside import beside_float32, count_decisions, explained, with_decisions
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from tests.compiling import compile_file
from tests.parse import parse_graph

GRAPH = parse_graph("""
graph(%0: f32[40, 30] "x", %1: f32[30, 7] "w") -> (%3, %4)
  %2: f32[40, 7] = MatMul(%0, %1) from "first"
  %3: f32[40, 7] "y" = Softmax(%2) axis=1 from "second"
  %4: i64[40] "c" = ArgMax(%2) axis=1 keepdims=0 select_last_index=0 from "third"
""")


def value(name: str, dtype: DType, *shape: int) -> Value:
    return Value(0, TensorType(dtype, shape), name)


def run(inputs: Sequence[np.ndarray], slip: float = 0.0) -> list[np.ndarray]:
    """The graph in float32; with a slip the first class is a little likelier."""
    found = evaluate_graph(GRAPH, dict(zip(GRAPH.inputs, inputs, strict=True)), OPERATORS, wide=False)
    shares, classes = (found[id] for id in GRAPH.outputs)
    shares = shares.copy()
    shares[:, 0] *= np.float32(1 + slip)
    return [shares, classes]


def test_the_errors_of_the_random_case_stand_beside_those_of_float32_on_the_same_inputs() -> None:
    inputs = sample_inputs(GRAPH, 3)
    known = Known(inputs, evaluate_graph(GRAPH, inputs, OPERATORS))
    samples = {"a": sample_inputs(GRAPH, 4), "b": sample_inputs(GRAPH, 5)}
    same = agree(run, GRAPH, OPERATORS, 0.3, 3, samples=samples, known=known)
    (one,) = same.beside
    assert (one.output, one.decisions, one.differing) == ("y", 3 * 40, 0)
    assert 0 < one.artifact == one.float32 < 1e-6
    slipped = agree(lambda given: run(given, 0.5), GRAPH, OPERATORS, 1.0, 3, samples=samples, known=known)
    (other,) = slipped.beside
    assert 0.1 < other.artifact <= 0.5
    assert other.float32 == one.float32
    assert 0 < other.differing < other.decisions == 3 * 40
    assert agree(run, GRAPH, OPERATORS, 0.3, 3, known=known, budget_s=0.0).beside == ()


def test_the_reference_is_not_evaluated_again_for_inputs_of_which_its_results_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = sample_inputs(GRAPH, 3)
    wrong = {id: array + 9 for id, array in evaluate_graph(GRAPH, inputs, OPERATORS).items()}
    assert agree(run, GRAPH, OPERATORS, 0.3, 3, known=Known(inputs, wrong)).failed
    assert agree(run, GRAPH, OPERATORS, 0.3, 3).passed


def test_rows_of_floats_decide_and_nothing_else_does() -> None:
    right = np.array([[0.1, 0.9], [0.6, 0.4], [0.5, 0.4]])
    found: dict[str, tuple[int, int]] = {}
    count_decisions(found, [value("y", DType.F32, 3, 2)], [right[:, ::-1]], [right])
    assert found == {"y": (3, 3)}
    count_decisions(found, [value("y", DType.F32, 3, 2)], [right], [right])
    assert found == {"y": (3, 3)}, "the way that is furthest off counts"
    others = [
        (value("i", DType.I64, 3, 2), right.astype(np.int64)),
        (value("v", DType.F32, 3), right[:, 0]),
        (value("one", DType.F32, 3, 1), right[:, :1]),
        (value("nan", DType.F32, 3, 2), np.where(right > 0.5, np.nan, right)),
    ]
    for one, array in others:
        found = {}
        count_decisions(found, [one], [array], [array])
        assert found == {}


def test_decisions_of_several_cases_are_added() -> None:
    beside = beside_float32(
        [value("y", DType.F32, 3, 2), value("i", DType.I64, 3)],
        [OutputError("y", 1.0, 3e-7, 2.0), OutputError("i", 0.0, 0.0, 0.0)],
        [OutputError("y", 1.0, 2e-7, 2.0), OutputError("i", 0.0, 0.0, 0.0)],
    )
    assert beside == (BesideFloat32("y", 3e-7, 2e-7),)
    twice = with_decisions(with_decisions(beside, {"y": (3, 1)}), {"y": (3, 2)})
    assert twice == (BesideFloat32("y", 3e-7, 2e-7, 6, 3),)
    assert with_decisions(twice, {}) == twice


def test_what_is_four_times_less_exact_is_explained_and_what_is_not_is_not() -> None:
    bad = BesideFloat32("y", 9e-6, 1e-6)
    (said,) = explained([bad, replace(bad, artifact=4e-6), replace(bad, artifact=9e-7, float32=0.0)], ["winograd"], ())
    assert said.startswith("output 'y' is 9 times as far from float64")
    assert said.endswith("winograd may round more, as far as the tolerance goes")
    layers = [
        LayerError(0, ("conv", "relu"), "Conv+Relu", "v", 1e-5, 8e-6, 1.0, None),
        LayerError(1, ("gemm",), "Gemm", "y", 1e-5, 9e-6, 1.0, 8e-6),
    ]
    (said,) = explained([bad], [], layers)
    assert said.endswith("sums are in another order; most of it begins at 'conv', 'relu'")


def test_boxes_decide_for_their_best_class_where_its_score_is_above_one_half() -> None:
    right = np.array([[[0.9, 0.1], [0.2, 0.6], [0.3, 0.4], [0.4, 0.3]]])
    moved = np.array([[[0.9, 0.2], [0.2, 0.4], [0.3, 0.6], [0.3, 0.4]]])
    found: dict[str, tuple[int, int]] = {}
    count_decisions(found, [value("y", DType.F32, 1, 4, 2)], [moved], [right])
    assert found == {"y": (4, 2)}, "one is lost, one is found, and below the threshold no class counts"
    for other in (right + 0.2, right - 0.2, np.where(right > 0.8, np.nan, right), right[:, :0]):
        found = {}
        count_decisions(found, [value("y", DType.F32, *other.shape)], [other], [other])
        assert found == {}


def test_the_first_value_that_is_far_off_is_named_beside_what_float32_gives_there() -> None:
    bad = BesideFloat32("y", 9e-6, 1e-6)
    layers = [
        LayerError(0, ("conv",), "Conv", "v", 1e-5, 3e-6, 1.0, 0.0, 1e-6),
        LayerError(1, ("sum",), "ReduceSum", "s", 1e-5, 5e-6, 1.0, 3e-6, 1e-6),
        LayerError(2, ("gemm",), "Gemm", "y", 1e-5, 9e-6, 1.0, 5e-6, 1e-6),
    ]
    (said,) = explained([bad], [], layers)
    first = "the first value that is so far off is 's', which 'sum' compute: 5.0e-06, and 1.0e-06 in plain float32"
    assert said.endswith(first)
    (said,) = explained([bad], [], [replace(layers[0], max_relative=None)])
    assert "which 'conv' compute: inf" in said


def test_a_compilation_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error is taken for one that is to be explained, for which layers are run one by one."""
    monkeypatch.setattr(beside, "TIMES", 0.0)
    monkeypatch.setattr(beside, "LEAST", 0.0)
    (tmp_path / "m.onnx").write_bytes(build("tiny_cnn").SerializeToString())
    report = compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions(tuning_budget_s=0, threads=1))
    (one,) = report.beside_float32
    assert one.decisions == 1
    assert one.differing == 0
    assert 0 < one.float32 < 1e-5
    assert one.artifact <= max(error.max_relative for error in report.errors)
    (said,) = (notice for notice in report.notices if "the first value that is so far off" in notice)
    first = next(layer for layer in report.layers if layer.max_relative)
    assert f"{first.value!r}, which {', '.join(map(repr, first.nodes))} compute" in said
    assert first.float32 is not None
