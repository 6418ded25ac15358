from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.engines import onnxruntime
from bench.engines.driver import Task
from bench.zoo import build


@pytest.fixture
def task(tmp_path: Path) -> Task:
    file = tmp_path / "m.onnx"
    file.write_bytes(build("tiny_inception").SerializeToString())
    return Task(file, {"image": np.random.default_rng(0).standard_normal((1, 3, 33, 33), np.float32)}, 2)


def test_operators_beside_each_other_give_what_split_operators_give(task: Task) -> None:
    one, other = onnxruntime.open_session(task), onnxruntime.open_parallel_session(task)
    assert one.outputs == other.outputs
    for split, beside in zip(one.run(), other.run(), strict=True):
        np.testing.assert_allclose(split, beside, rtol=1e-5, atol=1e-6)


def test_threads_are_shared_out_between_operators_or_within_them(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime as runtime

    asked: list[Any] = []
    session = runtime.InferenceSession

    def opened(file: str, options: Any, **more: Any) -> Any:
        asked.append((options.execution_mode, options.inter_op_num_threads, options.intra_op_num_threads))
        return session(file, options, **more)

    monkeypatch.setattr(runtime, "InferenceSession", opened)
    onnxruntime.open_session(task)
    onnxruntime.open_parallel_session(task)
    assert asked == [
        (runtime.ExecutionMode.ORT_SEQUENTIAL, 0, 2),
        (runtime.ExecutionMode.ORT_PARALLEL, 2, 1),
    ]
