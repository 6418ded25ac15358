"""Models that draw random numbers: compiled for a CPU and for a GPU, run by run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.ir.graph import Node
from compiler.ops.random import OPERATORS
from compiler.pack.loader import Model
from compiler.runner import infer
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.test_pipeline_cuda import needs_double, needs_nvrtc, no_gpu
from tests.compiling import compile_file
from tests.cuda_double.double import MODES
from tilewright.arrays import write_npz

__all__ = ["no_gpu"]

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def compiled(folder: Path, target: str) -> Path:
    """free and seeded draw uniform numbers, dropped and kept are a Dropout's."""
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["free"]),
        helper.make_node("RandomUniform", [], ["seeded"], shape=[5], seed=2.0),
        helper.make_node("Constant", [], ["training"], value=onnx.numpy_helper.from_array(np.array(True))),
        helper.make_node("Dropout", ["x", "", "training"], ["dropped", "kept"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    nodes = nodes if target == "cpu" else nodes[:1]
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name != "training"]
    graph = helper.make_graph(nodes, "g", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    file, artifact, sample = folder / "model.onnx", folder / "model.tw", folder / "sample.npz"
    file.write_bytes(model.SerializeToString())
    write_npz(sample, {"x": X})
    options = CompileOptions.from_json(
        {"target": target, "tuning_budget_s": 0, **({"threads": 1} if target == "cpu" else {})}
    )
    compile_file(file, artifact, options, measure=False, samples={"x": sample})
    return artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("random"), "cpu")


def words(count: int, key: int, run: int) -> np.ndarray:
    """Of the first stream."""
    node = Node("RandomBits", (0,), (1,), {"shape": (count,), "stream": 0})
    return OPERATORS[0].reference(node, (np.array([key, run], np.int64),))[0]


def uniform(bits: np.ndarray) -> np.ndarray:
    """Numbers from 0 to below 1."""
    found: np.ndarray = (bits >> 8) * np.float32(2**-24)
    return found


def test_each_run_draws_anew_from_the_seed_that_a_caller_gives(artifact: Path) -> None:
    with Model(artifact, seed=5) as one, Model(artifact, seed=5) as same, Model(artifact, seed=6) as other:
        assert [spec.name for spec in one.inputs] == ["x"]
        first, second = one.run({"x": X}), one.run({"x": X})
        np.testing.assert_array_equal(first["free"].ravel(), (words(12, 5, 1) >> 8) * np.float32(2**-24))
        np.testing.assert_array_equal(second["free"].ravel(), (words(12, 5, 2) >> 8) * np.float32(2**-24))
        assert not np.array_equal(first["seeded"], second["seeded"])
        np.testing.assert_array_equal(first["dropped"], np.where(first["kept"], 2 * X, 0))
        again = [same.run_flat([X]), same.run_flat([X])]
        for name, *pair in zip(("free", "seeded", "dropped", "kept"), *again, strict=True):
            np.testing.assert_array_equal(pair[0], first[name])
            np.testing.assert_array_equal(pair[1], second[name])
        others = other.run({"x": X})
        assert not np.array_equal(others["free"], first["free"])
        np.testing.assert_array_equal(others["seeded"], first["seeded"])


def test_a_run_with_a_seed_draws_the_same_whatever_ran_before_and_is_not_counted(artifact: Path) -> None:
    with Model(artifact, seed=5) as five, Model(artifact, seed=6) as six:
        first = five.run({"x": X})
        for again in (six.run({"x": X}, seed=5), five.run({"x": X}, seed=5)):
            for name, array in first.items():
                np.testing.assert_array_equal(again[name], array)
        for array, wanted in zip(six.run_flat([X], seed=5), first.values(), strict=True):
            np.testing.assert_array_equal(array, wanted)
        np.testing.assert_array_equal(six.run({"x": X}, seed=-3)["free"].ravel(), uniform(words(12, -3, 1)))
        np.testing.assert_array_equal(six.run({"x": X})["free"].ravel(), uniform(words(12, 6, 1)))
        np.testing.assert_array_equal(five.run({"x": X})["free"].ravel(), uniform(words(12, 5, 2)))


def test_an_inference_with_a_seed_draws_as_a_run_with_it(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=X)
    with Model(artifact, seed=8) as model:
        wanted = model.run({"x": X})
    for seed, is_same in ((8, True), (9, False)):
        infer(artifact, tmp_path / "inputs.npz", tmp_path / "outputs.npz", seed=seed)
        with np.load(tmp_path / "outputs.npz") as found:
            assert np.array_equal(found["free"], wanted["free"]) is is_same


def test_without_a_seed_each_loading_draws_other_numbers(artifact: Path) -> None:
    found = []
    for _ in range(2):
        with Model(artifact) as model:
            out = [np.zeros(spec.shape, spec.numpy) for spec in model.outputs]
            run = model.bind([X], out)
            for _ in range(2):
                run()
                found.append(out[0].copy())
            assert model.bench(0.05)["runs"] >= 10
    assert len({array.tobytes() for array in found}) == 4


def test_a_program_in_c_gives_the_state_itself(artifact: Path) -> None:
    with Model(artifact, coded=True) as coded, Model(artifact, seed=-3) as model:
        assert [str(spec) for spec in coded.inputs] == ["float32[3, 4]", "int64[2]"]
        state = np.array([-3, 1], np.int64)
        own, given = model.run({"x": X}), coded.run({"x": X, "random:state": state})
        for name, array in own.items():
            np.testing.assert_array_equal(given[name], array)


@needs_nvrtc
@needs_double
@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_draws_the_same_bits(artifact: Path, tmp_path: Path) -> None:
    script = "model._program.state[0][:] = (9, 0); outputs.update(model.run(inputs))"
    outcome = on_double(compiled(tmp_path, "cuda:sm_90"), "checked").run({"x": X}, MODES[4], script=script)
    assert (outcome.error, outcome.fault, dict(outcome.left)) == ("", "", {})
    with Model(artifact, seed=9) as model:
        np.testing.assert_array_equal(outcome.outputs["free"], model.run({"x": X})["free"])
