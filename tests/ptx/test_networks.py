"""Whole networks on the interpreter, by their launch plans, beside ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.gpu.subjects import inputs_of
from bench.schedule.found import find
from bench.subject import Subject
from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import resolve
from compiler.ir.plans.plan import Plan
from compiler.schedule import PERSISTENT
from tests.ptx.families import ARCHITECTURES
from tests.ptx.fault import Fault
from tests.ptx.network import Emitted
from tests.ptx.whole import pairs

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC emits what is run here")
ROUNDED = {"fp32": 2.0**-24 * 8, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Relative error of an operand that is rounded to nearest: half the last of 10, 10 and 7 bits of mantissa. In fp32
operands stay, and a sum in another order differs by the root of some dozens of roundings."""
ENLARGED = 4.0
"""By how much layers enlarge what came in, at most: differences of sums that are nearly equal."""


def granted(precision: str, calls: int) -> float:
    """Relative norm of an output's error after so many calls, one after another.

    Each call rounds two operands, or an operand and its result: errors of random signs, of which a third of the square
    counts on average, so that each adds as much as one rounding; independent ones grow as the root of their number.
    In tf32 that is 1.0e-2 after the 26 calls of SqueezeNet.
    """
    return ENLARGED * ROUNDED[precision] * math.sqrt(calls)


def run(
    folder: Path, name: str, target: str, precision: str, scheduler: str = "", times: int = 1, size: int | None = None
) -> tuple[str, list[float]]:
    """The scheduler of the plan that was run, and how far each output is from ONNX Runtime's, over what is granted."""
    file, plan, emitted = emitted_of(folder, name, target, precision, scheduler, size)
    inputs = inputs_of(onnx.load(file), 3)
    computed = emitted.run(inputs, times)
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    errors = [
        float(np.linalg.norm(one - other) / np.linalg.norm(other)) for one, other in zip(computed, wanted, strict=True)
    ]
    allowed = granted(precision, len(emitted.kernels.calls))
    return plan.scheduler, [error / allowed for error in errors]


def emitted_of(
    folder: Path, name: str, target: str, precision: str, scheduler: str = "", size: int | None = None
) -> tuple[Path, Plan, Emitted]:
    """A network of the zoo as a file, under a plan, as it is launched."""
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
    return file, plan, emitted


def test_a_network_computes_what_onnx_runtime_does(tmp_path: Path) -> None:
    _, errors = run(tmp_path, "tiny_cnn", "cuda:sm_90", "fp16")
    assert errors
    assert max(errors) <= 1


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_persistent_kernel_computes_the_same_in_one_inference_after_another(precision: str, tmp_path: Path) -> None:
    """Its blocks take tickets, counters are never cleared, and no access to memory that blocks share is unordered."""
    scheduler, errors = run(tmp_path, "tiny_lstm_cells", "cuda:sm_90", precision, PERSISTENT, times=3)
    assert scheduler == PERSISTENT
    assert max(errors) <= 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("red.release.gpu", "red.relaxed.gpu"),
        ("ld.acquire.gpu", "ld.relaxed.gpu"),
        ("ld.acquire.gpu", "ld.acquire.cta"),
    ],
)
def test_a_persistent_kernel_that_does_not_order_its_blocks_races(before: str, after: str, tmp_path: Path) -> None:
    """By its results nobody would see it here, where memory is sequentially consistent."""
    file, _, emitted = emitted_of(tmp_path, "tiny_lstm_cells", "cuda:sm_90", "fp16", PERSISTENT)

    def changed(text: str) -> str:
        assert before in text
        return text.replace(before, after)

    with pytest.raises(Fault, match="race: thread"):
        emitted.run(inputs_of(onnx.load(file), 3), changed=changed)


@pytest.mark.parametrize("scheduler", ["shared launches", "streams"])
def test_plans_that_launch_calls_together_or_side_by_side(scheduler: str, tmp_path: Path) -> None:
    ran, errors = run(tmp_path, "tiny_inception", "cuda:sm_80", "fp16", scheduler)
    assert ran == scheduler
    assert max(errors) <= 1


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
    pairs([f"cuda:{one}" for one in ARCHITECTURES], [*ROUNDED], [("cuda:sm_90", "fp16")]),
)
def test_eight_networks_compute_what_onnx_runtime_does(target: str, precision: str, tmp_path: Path) -> None:
    errors = {name: run(tmp_path, name, target, precision, size=size)[1] for name, size in NETWORKS.items()}
    assert all(errors.values())
    assert {name: max(each) for name, each in errors.items() if not max(each) <= 1} == {}
