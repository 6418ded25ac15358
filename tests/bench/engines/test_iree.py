from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.engines import onnxruntime
from bench.engines.driver import EngineFailed, Task
from bench.engines.iree import compile_model, open_module
from bench.zoo import build

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")


def test_its_outputs_are_those_of_onnx_runtime_and_its_module_is_compiled_once(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(build("tiny_cnn").SerializeToString())
    module = compile_model(file, tmp_path, 1)
    made = module.stat().st_mtime_ns
    assert compile_model(file, tmp_path, 2) == module
    assert module.stat().st_mtime_ns == made
    inputs = {"image": np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)}
    opened, other = open_module(Task(module, inputs, 1)), onnxruntime.open_session(Task(file, inputs, 1))
    assert opened.outputs == other.outputs
    for ours, theirs in zip(opened.run(), other.run(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_model_that_it_cannot_compile_is_told_with_its_words(tmp_path: Path) -> None:
    model = build("tiny_cnn")
    model.graph.node[0].op_type = "NoSuchOperator"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EngineFailed, match=r"IREE cannot compile the model: .*NoSuchOperator"):
        compile_model(tmp_path / "m.onnx", tmp_path, 1)
    assert list(tmp_path.glob("*.vmfb")) == []
