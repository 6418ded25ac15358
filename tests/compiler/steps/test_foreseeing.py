from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions, Event
from compiler.errors import ModelTooLarge
from compiler.preflight import preflight
from compiler.prove.effort import Effort
from compiler.steps.foreseeing import foreseen, proof_notices
from compiler.steps.proving import Progress
from compiler.trace import Trace
from tests.compiling import compile_file
from tests.parse import parse_graph

HUGE = parse_graph(
    """graph(%0: f32[20000, 20000], %1: f32[20000, 20000]) -> (%3)
  %2: f32[20000, 20000] = MatMul(%0, %1) from "huge"
  %3: f32[20000, 20000] = Relu(%2) from "small"
"""
)


def sliding(length: int) -> onnx.ModelProto:
    """A few kilobytes: a convolution over a long input."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="slide")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, length, 33])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((64, 3, 3, 3), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_reference_that_takes_too_long_is_refused_by_node_estimate_and_limit() -> None:
    with pytest.raises(ModelTooLarge, match=r"about \d+ s .* node 'huge' \(MatMul\); proof_limit_s grants 600 s") as no:
        foreseen(HUGE, CompileOptions())
    assert "proof_limit_s" in no.value.fix
    assert no.value.details["node"] == "huge"
    assert no.value.details["proof_s"] > no.value.details["limit_s"] == 600
    assert foreseen(HUGE, CompileOptions(proof_limit_s=36000.0), 1 << 60).seconds > 600


def test_a_reference_that_does_not_fit_into_memory_is_refused_by_node_estimate_and_limit() -> None:
    options = CompileOptions(proof_limit_s=36000.0)
    with pytest.raises(ModelTooLarge, match=r"GiB of memory .* node 'huge' \(MatMul\); there are 4.0 GiB") as no:
        foreseen(HUGE, options, 4 << 30)
    assert no.value.details["proof_bytes"] > no.value.details["limit_bytes"] == 4 << 30


def test_what_takes_long_is_told_as_a_notice() -> None:
    (notice,) = proof_notices(foreseen(HUGE, CompileOptions(proof_limit_s=36000.0), 1 << 60))
    assert "takes about" in notice
    assert proof_notices(Effort((1.0,), 1 << 20, None, None)) == []


def test_a_small_file_over_a_large_input_is_refused_by_compiler_and_preflight_alike(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(sliding(1_000_000).SerializeToString())
    options = CompileOptions(threads=1, tuning_budget_s=0, proof_limit_s=5.0)
    answer = preflight(path, options)
    assert not answer["ok"]
    assert answer["problem"]["code"] == "model_too_large"
    assert answer["proof"]["seconds"] > 5
    assert answer["proof"]["bytes"] > 8 * 1_000_000 * 33 * 64
    assert answer["memory_bytes"]["compile"] > answer["proof"]["bytes"]
    assert any("float64 reference" in notice for notice in answer["notices"])
    with pytest.raises(ModelTooLarge) as no:
        compile_file(path, tmp_path / "model.tw", options)
    assert no.value.to_json() == answer["problem"]
    with pytest.raises(ModelTooLarge, match="GiB of memory"):
        compile_file(path, tmp_path / "model.tw", replace(options, proof_limit_s=600.0), memory_bytes=1 << 30)


def test_a_model_that_fits_is_proved_and_preflight_tells_what_that_takes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(sliding(50).SerializeToString())
    options = CompileOptions(threads=1, tuning_budget_s=0)
    answer = preflight(path, options)
    assert answer["ok"]
    assert 0 < answer["proof"]["seconds"] < 1
    assert compile_file(path, tmp_path / "model.tw", options).errors[0].max_relative < 1e-4


def test_the_progress_of_a_long_evaluation_is_told_and_who_is_after_a_stop_request_hears_what_is_left() -> None:
    events: list[Event] = []
    stopping: list[bool] = []
    effort = Effort((10.0, 30.0), 0, None, None)
    progress = Progress(Trace(events.append), lambda: bool(stopping), effort)
    progress(0, 0.5)
    progress(0, 0.501)
    stopping.append(True)
    progress(1, 0.0)
    progress(1, 1.0)
    progress(0, 1.0)
    assert [event.message for event in events if event.kind == "progress"] == [
        "float64 reference: 12% of about 40 s",
        "float64 reference: 25% of about 40 s",
        "float64 reference: 100% of about 40 s",
        "float64 reference: 25% of about 40 s, evaluation 2",
    ]
    assert [event.message for event in events if event.kind == "notice"] == [
        "the artifact is being proved, which is never left out: about 30 s more"
    ]


def test_a_short_evaluation_is_not_told() -> None:
    events: list[Event] = []
    Progress(Trace(events.append), lambda: True, Effort((1.0,), 0, None, None))(0, 1.0)
    assert not events
