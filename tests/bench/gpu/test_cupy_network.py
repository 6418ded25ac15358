"""The peer through CuPy, on arrays that refuse what CuPy has not, and a graph that is played."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bench.gpu.cupy_network import WARMING, Captured, network
from bench.gpu.subjects import inputs_of
from bench.gpu.translation import translate
from bench.zoo import build
from bench.zoo.operators import SAMPLES, model_of
from compiler.ops.error_function import erf
from tests.device_arrays.stand_in import DeviceArray, Module, uploaded

OPTIONS: dict[str, dict[str, Any]] = {
    "bert_base": {"blocks": 1, "vocabulary": 100, "seq": 16},
    "mobilenet_v2": {"size": 64},
}


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_inception", "mobilenet_v2", "tiny_transformer", "bert_base"])
def test_a_network_computes_what_onnx_runtime_does(name: str) -> None:
    model = build(name, **OPTIONS.get(name, {}))
    program, given = translate(model), inputs_of(model, 4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = network(program, "float32", Module(), erf)([uploaded(given[name]) for name in program.inputs])
    for one, other in zip(found, session.run(list(program.outputs), given), strict=True):
        assert isinstance(one, DeviceArray)
        assert np.linalg.norm(one.get() - other) <= 1e-5 * np.linalg.norm(other)


@pytest.mark.parametrize("sample", [one for one in SAMPLES if one.shape[-1] < 30], ids=lambda one: one.name)
def test_a_single_operator_computes_what_onnx_runtime_does(sample: Any) -> None:
    model = model_of(sample)
    program, given = translate(model), inputs_of(model, 4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = network(program, "float32", Module(), erf)([uploaded(given[name]) for name in program.inputs])
    (wanted,) = session.run(None, given)
    assert np.linalg.norm(found.get() - wanted) <= 1e-5 * np.linalg.norm(wanted)


class Stream:
    """Plays a stream whose capture is a graph that is launched on it."""

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking
        self.done: list[str] = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin_capture(self) -> None:
        self.done.append("capture")

    def end_capture(self) -> Any:
        self.done.append("captured")
        return SimpleNamespace(launch=lambda stream: stream.done.append("launch"))


def test_a_network_is_captured_in_memory_of_its_own_and_fed_set_by_set(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[Any] = []

    def using(allocator: Any) -> Any:
        pools.append(allocator)
        return nullcontext()

    cupy, special = Module(), ModuleType("cupyx.scipy.special")
    pool = SimpleNamespace(malloc=lambda size: size)
    cupy.cuda = SimpleNamespace(Stream=Stream, MemoryPool=lambda: pool, using_allocator=using)  # type: ignore[attr-defined]
    special.erf = erf  # type: ignore[attr-defined]
    for name, module in (("cupy", cupy), ("cupyx", ModuleType("cupyx")), ("cupyx.scipy", ModuleType("cupyx.scipy"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)
    monkeypatch.delenv("CUPY_TF32", raising=False)
    model = build("tiny_cnn")
    program = translate(model)
    inputs = [inputs_of(model, seed) for seed in range(2)]
    made = Captured(program, "tf32", inputs)
    assert pools == [pool.malloc]
    assert made.stream.done == ["capture", "captured"]
    assert WARMING >= 1
    made.submit(1)
    assert made.stream.done[-1] == "launch"
    assert np.array_equal(made.static[0].get(), inputs[1][program.inputs[0]])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(list(program.outputs), inputs[0])
    assert np.linalg.norm(made.outputs()[0] - wanted) <= 1e-5 * np.linalg.norm(wanted)
