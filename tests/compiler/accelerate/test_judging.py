"""The int8 file held against the model, by LiteRT or without it, and the operator that is at fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.accelerate import judging
from compiler.accelerate.compile import compile_for_accelerator, ranges_of
from compiler.accelerate.dividing import Divisible
from compiler.accelerate.formats import run_of
from compiler.accelerate.interpreter import Model
from compiler.accelerate.judging import Comparison
from compiler.accelerate.parts import Assembled, Assembly, Placed
from compiler.accelerate.tflite import kernels
from compiler.accelerate.tflite.convert import Converter
from compiler.accelerate.tflite.flatbuffer import Tensor
from compiler.accelerate.tflite.kernels import KERNELS, Operand, Options
from compiler.accelerate.tflite.operators import OPERATORS
from compiler.accelerate.tosa.lower import lowered
from compiler.accelerate.tosa.write import to_bytes
from compiler.accelerate.vela import Compiled
from compiler.contract import CompileOptions, QuantizeOptions
from compiler.errors import Disagreement, Unverified
from compiler.pipeline import compile_model
from compiler.quantize import quantize
from compiler.quantize.network import open_network
from compiler.request import Request

TARGET = "npu:ethos-u55-128"


def network(path: Path) -> Path:
    """Layers of each kind, a branch, and a softmax: from `x` to `y`, written there."""
    random = np.random.default_rng(11)
    arrays = {
        "w1": random.normal(size=(8, 3, 3, 3)) / 4,
        "w2": random.normal(size=(8, 1, 3, 3)) / 3,
        "w3": random.normal(size=(8, 8, 1, 1)) / 3,
        "w4": random.normal(size=(8, 5)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "stem", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("HardSwish", ["c1"], ["h1"], "swish"),
        helper.make_node("Conv", ["h1", "w2"], ["c2"], "depthwise", pads=[1] * 4, group=8),
        helper.make_node("Relu", ["c2"], ["r2"], "relu"),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], "pointwise"),
        helper.make_node("Add", ["c3", "h1"], ["a"], "join"),
        helper.make_node("GlobalAveragePool", ["a"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "w4"], ["m"], "head"),
        helper.make_node("Softmax", ["m"], ["y"], "soft"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 12, 12))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5))],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def compared(folder: Path, *, tosa: bool = False) -> Comparison:
    """The network in int8, on one sample, as TFLite or as TOSA."""
    path, out = network(folder / "m.onnx"), folder / "q.onnx"
    sample = {"x": np.random.default_rng(2).normal(size=(1, 3, 12, 12)).astype(np.float32)}
    options = QuantizeOptions(activations="int8", outputs=True)
    quantize(path, out, options, [sample])
    _, opened = open_network(out)
    converted = Converter(opened, ranges_of(opened, out, options, [sample])).convert(OPERATORS)
    divisible = Divisible(opened)
    given = to_bytes(lowered(converted.program).graph) if tosa else converted.model
    made = converted, Compiled(given, b"", 1.0, 0, 0, {}, (), (), 1)
    assembly = Assembly(Placed(divisible, (divisible.whole(),), (made,), {}))
    part = assembly.on_accelerator(divisible.whole(), made)
    return Comparison(path, options, [sample], Assembled(assembly, [part], [run_of(*made)]))


def moved(kind: str, by: int) -> Any:
    """A kernel whose first element is off."""
    right = KERNELS[kind]

    def run(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
        found = right(options, operands, out).copy()
        found.flat[0] += by if found.flat[0] < 100 else -by
        return found

    return run


def test_every_operator_of_a_network_is_the_one_of_litert(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    assert compared(tmp_path).differences() == []


def test_an_operator_that_is_off_by_a_step_is_told_and_by_more_is_refused_with_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert")
    one = compared(tmp_path)
    monkeypatch.setitem(kernels.KERNELS, "ADD", moved("ADD", 1))
    (said,) = one.differences()
    assert "by one step: ADD of Add join (1 of 288)" in said
    monkeypatch.setitem(kernels.KERNELS, "CONV_2D", moved("CONV_2D", 2))
    with pytest.raises(Disagreement, match=r"CONV_2D of Conv stem is off by 2 steps in LiteRT .* 1 of 288 elements"):
        one.differences()


def test_what_tosa_computes_otherwise_is_told_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = compared(tmp_path, tosa=True)
    assert one.differences() == []
    monkeypatch.setitem(kernels.KERNELS, "ADD", moved("ADD", 1))
    assert one.differences() == [
        "TOSA rounds otherwise than this compiler's int8 operators, by one step: ADD of Add join (1 of 288)"
    ]
    monkeypatch.setitem(kernels.KERNELS, "ADD", moved("ADD", 1))
    with pytest.raises(Disagreement, match=r"ADD of Add join is off by 2 steps in TOSA"):
        one.differences()
    monkeypatch.setattr(judging, "EXACT_IN_TOSA", ("ADD",))
    (said,) = one.differences()
    assert "by 2 steps: ADD" in said


def test_without_litert_the_artifact_is_judged_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("ethosu.regor")
    model, found = network(tmp_path / "m.onnx"), util.find_spec
    archive = tmp_path / "s.npz"
    np.savez(archive, x=np.random.default_rng(2).normal(size=(1, 3, 12, 12)).astype(np.float32))
    options = CompileOptions(target=TARGET, tuning_budget_s=0.0)
    asked = Request(model, tmp_path / "a.tw", options, samples={"s": archive})
    by_litert = compile_for_accelerator(asked, compile_model)
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "ai_edge_litert" else found(name))
    alone = compile_for_accelerator(replace(asked, artifact=tmp_path / "b.tw"), compile_model)
    assert alone.agreement == by_litert.agreement
    assert any("LiteRT is not installed" in notice for notice in alone.notices)
    assert alone.judged == 1
    with Model(tmp_path / "b.tw") as runs:
        one = compared(tmp_path)
        np.testing.assert_array_equal(runs.run(one.samples[0])["y"], one.made.run(one.samples[0])["y"])


def test_what_misses_the_budget_names_the_operator_that_loses_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = compared(tmp_path)
    (said,) = one.judge(one.made.run, 10.0)
    assert said["snr_db"] > 20
    right = KERNELS["HARD_SWISH"]
    monkeypatch.setitem(
        kernels.KERNELS, "HARD_SWISH", lambda options, operands, out: np.maximum(right(options, operands, out), 0)
    )
    with pytest.raises(Disagreement, match=r"most is lost at HARD_SWISH of HardSwish swish: \d+\.\d dB before it, "):
        one.judge(one.made.run, 90.0)
    with pytest.raises(Disagreement, match=r"off by .* more than 1e-06; most is lost at HARD_SWISH of HardSwish swish"):
        one.judge(one.made.run, 1.0, 1e-6)


@pytest.mark.parametrize(
    ("found", "wanted", "is_right"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.inf], [1.0, np.inf], True),
        ([1.0, -np.inf], [1.0, np.inf], False),
        ([1.0, 0.0], [1.0, np.nan], False),
        ([np.nan, 2.0], [1.0, 2.0], False),
        ([1.0, 0.0], [np.nan, np.nan], False),
    ],
)
def test_what_is_not_finite_agrees_with_its_own_kind_alone(
    found: list[float], wanted: list[float], is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = compared(tmp_path)
    monkeypatch.setattr(one.evaluated, "outputs", lambda sample: {"y": np.array([wanted])})
    monkeypatch.setattr(one, "blame", lambda: "")

    def run(sample: Any) -> dict[str, np.ndarray]:
        return {"y": np.array([found], np.float32)}

    if is_right:
        (said,) = one.judge(run, 10.0)
        assert (said["max_absolute"], said["shown_by"]) == (0.0, [0])
    else:
        with pytest.raises(Disagreement, match="dB of signal to noise"):
            one.judge(run, 10.0)


@pytest.mark.parametrize("wanted", [np.full((1, 5), np.nan), np.zeros((1, 0))])
def test_an_output_that_no_sample_shows_is_unverified(
    wanted: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = compared(tmp_path)
    monkeypatch.setattr(one.evaluated, "outputs", lambda sample: {"y": wanted})
    with pytest.raises(Unverified, match="'y' is empty, or has no finite number, on each of 1 samples"):
        one.judge(lambda sample: {"y": wanted.astype(np.float32)}, 10.0)
