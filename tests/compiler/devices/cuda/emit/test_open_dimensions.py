"""A program for all sizes in a range, on the double of CUDA."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.pipeline import compile_binding
from compiler.request import Host, Request
from compiler.session import Session
from tests.compiler.devices.cuda.artifact_on_double import Twin, on_double
from tests.compiler.devices.cuda.on_double import needs_double

DIMS = {"batch": {"min": 1, "opt": 2, "max": 3}, "length": {"min": 1, "opt": 4, "max": 6}}
WIDTH = 8
W = np.random.default_rng(2).standard_normal((WIDTH, WIDTH)).astype(np.float32)
RUNS = """
for at in range(3):
    found = model.run({"x": inputs[str(at)]})
    outputs.update({f"{name}{at}": array for name, array in found.items()})
"""
RESIDENT = """
staged = model.staged([inputs["0"]])
inside, results = model.resident()
out = [np.zeros(spec.shape, spec.numpy) for spec in model.binding.program_outputs]
model.bind(staged, results)()
model.bind(inside, out)()
outputs.update({str(at): array for at, array in enumerate(out)})
outputs["runs"] = model.bench(0.01, {"x": inputs["0"]})["runs"]
"""


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    """A product, and its softmax and sum along the open length."""
    folder = tmp_path_factory.mktemp("open")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Softmax", ["a"], ["y"], axis=1),
            helper.make_node("ReduceSum", ["a", "axis"], ["total"], keepdims=0),
        ],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "total")],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.array([1]), "axis")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "open.onnx")
    options = CompileOptions.from_json({"target": "cuda:sm_90", "tuning_budget_s": 0, "dims": DIMS})
    with pytest.MonkeyPatch.context() as patch:
        # No GPU is here, whatever this machine has and whatever double another test left loaded.
        patch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
        session = Session.of(options, Host(measure=False), place=folder)
        compile_binding(session, Request(folder / "open.onnx", folder / "open.tw", options))
    return on_double(folder / "open.tw")


def given(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(batch + length).standard_normal((batch, length, WIDTH)).astype(np.float32)


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    product = x.astype(np.float64) @ W
    exponents = np.exp(product - product.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True), product.sum(axis=1)


@needs_double
def test_every_size_is_right_whatever_ran_before(twin: Twin) -> None:
    arrays = [given(3, 6), given(1, 1), given(2, 5)]
    outcome = twin.run({str(at): array for at, array in enumerate(arrays)}, script=RUNS)
    assert (outcome.error, outcome.fault) == ("", "")
    for at, array in enumerate(arrays):
        y, total = expected(array)
        np.testing.assert_allclose(outcome.outputs[f"y{at}"], y, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outcome.outputs[f"total{at}"], total, rtol=1e-4, atol=1e-4)


@needs_double
def test_what_is_staged_may_stay_on_the_device(twin: Twin) -> None:
    outcome = twin.run({"0": given(2, 5)}, script=RESIDENT)
    assert (outcome.error, outcome.fault) == ("", "")
    y, total = expected(given(2, 5))
    np.testing.assert_allclose(outcome.outputs["0"][:2, :5], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outcome.outputs["1"][:2], total, rtol=1e-4, atol=1e-4)
    assert [int(outcome.outputs[number]) for number in "23"] == [2, 5]
    assert int(outcome.outputs["runs"]) >= 10
