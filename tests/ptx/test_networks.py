"""Whole networks on the interpreter, by their launch plans, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from bench.gpu.subjects import inputs_of
from bench.schedule.found import find
from bench.subject import Subject
from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import resolve
from compiler.schedule import PERSISTENT
from tests.ptx.families import ARCHITECTURES
from tests.ptx.network import Emitted
from tests.ptx.whole import pairs

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC emits what is run here")
TOLERANCE = {"fp32": 1e-5, "tf32": 1e-2, "fp16": 1e-2, "bf16": 6e-2}
"""Relative norm of an output's error."""


def run(
    folder: Path, name: str, target: str, precision: str, scheduler: str = "", times: int = 1, size: int | None = None
) -> tuple[str, list[float]]:
    """The scheduler of the plan that was run, and how far each output is from ONNX Runtime's."""
    model = build(name, **({"size": size} if size else {}))
    file = folder / "model.onnx"
    file.write_bytes(model.SerializeToString())
    asked = PERSISTENT if scheduler == PERSISTENT else "auto"
    options = CompileOptions(target=target, precision=precision, tuning_budget_s=0.0, scheduler=asked)
    found = find(Subject(name, "zoo", file), options, [], 0.0)
    plans = {one.plan.scheduler: one.plan for one in found.found}
    plan = plans.get(scheduler, found.found[0].plan)
    device = resolve(target)
    emitted = Emitted.of(found.kernels, plan, device.of_resident_blocks if plan.residents else device)
    inputs = inputs_of(model, 3)
    computed = emitted.run(inputs, times)
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    errors = [
        float(np.linalg.norm(one - other) / np.linalg.norm(other)) for one, other in zip(computed, wanted, strict=True)
    ]
    return plan.scheduler, errors


def test_a_network_computes_what_onnx_runtime_does(tmp_path: Path) -> None:
    _, errors = run(tmp_path, "tiny_cnn", "cuda:sm_90", "fp16")
    assert errors
    assert max(errors) <= TOLERANCE["fp16"]


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_persistent_kernel_computes_the_same_in_one_inference_after_another(precision: str, tmp_path: Path) -> None:
    """Its blocks take tickets, and counters are never cleared."""
    scheduler, errors = run(tmp_path, "tiny_lstm_cells", "cuda:sm_90", precision, PERSISTENT, times=3)
    assert scheduler == PERSISTENT
    assert max(errors) <= TOLERANCE[precision]


@pytest.mark.parametrize("scheduler", ["shared launches", "streams"])
def test_plans_that_launch_calls_together_or_side_by_side(scheduler: str, tmp_path: Path) -> None:
    ran, errors = run(tmp_path, "tiny_inception", "cuda:sm_80", "fp16", scheduler)
    assert ran == scheduler
    assert max(errors) <= TOLERANCE["fp16"]


NETWORKS = {
    "tiny_cnn": None,
    "tiny_inception": None,
    "tiny_mobile": None,
    "tiny_transformer": None,
    "tiny_detector": None,
    "tiny_lstm": None,
    "squeezenet1_0": 48,
    "mobilenet_v2": 32,
}
"""With the sizes of their images, where these are chosen."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "precision"),
    pairs([f"cuda:{one}" for one in ARCHITECTURES], [*TOLERANCE], [("cuda:sm_90", "fp16")]),
)
def test_eight_networks_compute_what_onnx_runtime_does(target: str, precision: str, tmp_path: Path) -> None:
    errors = {name: run(tmp_path, name, target, precision, size=size)[1] for name, size in NETWORKS.items()}
    assert all(errors.values())
    assert {name: max(each) for name, each in errors.items() if not max(each) <= TOLERANCE[precision]} == {}
