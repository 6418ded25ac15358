"""Models in parts: what the accelerator does not carry out runs on the CPU, in programs of this compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from compiler.accelerate.chips import chip_of
from compiler.accelerate.dividing import Divisible, on_cpu
from compiler.accelerate.interpreter import to_bytes, to_floats
from compiler.accelerate.parts import place
from compiler.accelerate.tflite.convert import Port
from compiler.accelerate.tflite.operators import OPERATORS
from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.quantize.network import open_network
from tests.compiling import compile_file

U65 = "npu:ethos-u65-256"
PORT = Port("", (1, 4, 6, 5), (0.05, 3), True, (1, 6, 5, 4))


def _array(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _ran(model: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by ONNX Runtime, which else would round in other places."""
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, plain, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def _branches(path: Path) -> Path:
    """Two branches that meet, rounded in places, with three outputs: one rounded, one that others read too."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "a", pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["a8"]),
        helper.make_node("DequantizeLinear", ["a8", "s", "z"], ["ar"]),
        helper.make_node("Erf", ["ar"], ["b"], "b"),
        helper.make_node("Relu", ["a"], ["c"], "c"),
        helper.make_node("Add", ["b", "c"], ["d"], "d"),
        helper.make_node("Split", ["d"], ["e", "f"], "e", axis=1, num_outputs=2),
        helper.make_node("Mul", ["e", "f"], ["g"], "g"),
        helper.make_node("QuantizeLinear", ["g", "s", "z"], ["g8"]),
        helper.make_node("DequantizeLinear", ["g8", "s", "z"], ["y"]),
        helper.make_node("Sigmoid", ["ar"], ["h"], "h"),
        helper.make_node("Transpose", ["h"], ["y_turned"], "t", perm=[0, 2, 3, 1]),
    ]
    constants = {"w": _array(4, 4, 3, 3) / 6, "s": np.float32(0.05), "z": np.int8(3)}
    outputs = [("y", (1, 2, 6, 5)), ("c", PORT.shape), ("y_turned", (1, 6, 5, 4))]
    return _saved(path, nodes, constants, [("x", TensorProto.FLOAT, PORT.shape)], outputs)


def _saved(path: Path, nodes: list, constants: dict, inputs: list, outputs: list) -> Path:  # type: ignore[type-arg]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.mark.parametrize("seed", range(8))
def test_parts_run_in_turn_are_the_model_whichever_nodes_are_left_to_the_cpu(seed: int, tmp_path: Path) -> None:
    path = _branches(tmp_path / "m.onnx")
    _, network = open_network(path)
    divisible = Divisible(network)
    names = [node.output[0] for node in divisible.placed]
    assert names == ["a", "b", "c", "d", "e", "g", "h", "y_turned"]
    random = np.random.default_rng(seed)
    left = {name for name in names if random.random() < 0.5} if seed else {*names}
    segments = divisible.segments(left)
    assert sorted(node.output[0] for one in segments for node in one.nodes) == sorted(names)
    held = {"x": _array(*PORT.shape, seed=seed)}
    wanted = _ran(path.read_bytes(), held)
    for one in segments:
        assert {node.output[0] in left for node in one.nodes} == {not one.accelerated}
        assert {*one.inputs} <= {*held}
        held |= _ran(one.network.bytes(), {name: held[name] for name in one.inputs})
    for name in ("c", "y_turned"):
        np.testing.assert_array_equal(held[name], wanted[name])
    rounded = np.float32(0.05) * (np.clip(np.rint(held["g"] / np.float32(0.05)) + 3, -128, 127) - 3)
    np.testing.assert_allclose(rounded, wanted["y"], atol=1e-6)


def test_devices_change_no_more_often_than_they_must(tmp_path: Path) -> None:
    divisible = Divisible(open_network(_branches(tmp_path / "m.onnx"))[1])
    lacking = divisible.lacking(OPERATORS)
    assert lacking == {"b": "there is no int8 operator for it"}
    assert [one.accelerated for one in divisible.segments(lacking)] == [True, False, True]
    segments = divisible.segments({"b", "h"})
    assert [node.name for node in segments[-1].nodes] == ["d", "e", "g", "t"]
    segments = divisible.segments({"b", "d", "g", "h"})
    assert [[node.name for node in one.nodes] for one in segments] == [["a", "c"], ["b", "d", "h"], ["e", "t"], ["g"]]


def test_a_part_of_the_cpu_reads_and_writes_bytes_as_the_accelerator_has_them(tmp_path: Path) -> None:
    segments = Divisible(open_network(_branches(tmp_path / "m.onnx"))[1]).segments({"b"})
    (one,) = (segment for segment in segments if not segment.accelerated)
    model = on_cpu(one, {"a": ("a.int8", PORT)}, {"b": ("b.int8", PORT)}, {"b"})
    given = np.random.default_rng(1).integers(-128, 128, PORT.stored).astype(np.int8)
    made = _ran(model, {"a.int8": given})
    real = to_floats(given, PORT.to_json())
    (wanted,) = _ran(one.network.bytes(), {"a": real}).values()
    np.testing.assert_allclose(made["b"], wanted, atol=1e-6)
    np.testing.assert_array_equal(made["b.int8"], to_bytes(made["b"], PORT.to_json()))


def _tokens(path: Path) -> Path:
    """Numbers of words in, the greatest of some scores out: the CPU's first and last."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], "words"),
        helper.make_node("MatMul", ["x", "w1"], ["a"], "up"),
        helper.make_node("Relu", ["a"], ["b"], "act"),
        helper.make_node("MatMul", ["b", "w2"], ["c"], "down"),
        helper.make_node("TopK", ["c", "k"], ["d", "at"], "best"),
        helper.make_node("Add", ["d", "one"], ["y"], "more"),
    ]
    constants = {"table": _array(50, 96), "w1": _array(96, 256) / 8, "w2": _array(256, 96, seed=4) / 12}
    constants |= {"k": np.array([3]), "one": np.array(1, np.float32)}
    made = _saved(path, nodes, constants, [("ids", TensorProto.INT64, (16,))], [("y", (16, 3))])
    model = onnx.load(made)
    model.graph.output.append(helper.make_tensor_value_info("at", TensorProto.INT64, (16, 3)))
    onnx.save(model, made)
    return made


def test_a_model_that_begins_and_ends_on_the_cpu_is_compiled_placed_and_run(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    model, artifact = _tokens(tmp_path / "m.onnx"), tmp_path / "m.tw"
    ids = np.random.default_rng(2).integers(0, 50, (4, 16))
    np.savez(tmp_path / "s.npz", ids=ids)
    report = compile_file(
        model, artifact, CompileOptions(target=U65, tuning_budget_s=0.0), samples={"s": tmp_path / "s.npz"}
    )
    assert report.placement is not None
    parts = report.placement.parts
    assert [(part.on, part.nodes) for part in parts] == [("cpu", 1), (U65, 3), ("cpu", 2)]
    assert (parts[1].bytes_in, parts[1].bytes_out) == (16 * 96, 16 * 96)
    why = {row.operator: row.why for row in report.placement.operators if row.on == "cpu"}
    assert why["TopK"] == why["Gather"] == "there is no int8 operator for it"
    assert "with the call" in why["Add"]
    assert report.latency_s == pytest.approx(sum(part.seconds for part in parts) + report.placement.call_s)
    wanted = _ran(model.read_bytes(), {"ids": ids[0]})
    with tilewright.load(artifact) as runs:
        found = runs.run({"ids": ids[0]})
        assert found["at"].dtype == np.int64
        assert runs.run(runs.random_inputs())["y"].shape == (16, 3)
        with pytest.raises(runs.errors, match="give int64"):
            runs.run({"ids": ids[0].astype(np.float32)})
    assert np.abs(found["y"] - wanted["y"]).max() <= 0.1 * np.abs(wanted["y"]).max()
    assert (found["at"][:, 0] == wanted["at"][:, 0]).mean() > 0.7


def test_a_model_of_which_nothing_is_the_accelerators_is_refused_with_each_reason(tmp_path: Path) -> None:
    nodes = [helper.make_node("Erf", ["x"], ["a"], "erf"), helper.make_node("Identity", ["a"], ["y"], "same")]
    path = _saved(tmp_path / "m.onnx", nodes, {}, [("x", TensorProto.FLOAT, (2, 3))], [("y", (2, 3))])
    with pytest.raises(UnsupportedModel, match=r"no operator of the model runs on npu:ethos-u65-256") as refused:
        place(open_network(path)[1], {"a": (-1.0, 1.0)}, chip_of(U65))
    reasons = {one.node: one.reason for one in refused.value.refusals}
    assert reasons == {
        "erf": "there is no int8 operator for it",
        "same": "it does nothing, between operators that are left to the CPU",
    }
