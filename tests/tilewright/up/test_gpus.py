from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.up import gpus
from tilewright.up.run import Ready, _processes


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """What the kernel's driver tells of two GPUs."""
    for bus in ("0000:1b:00.0", "0000:43:00.0"):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
    return tmp_path / "gpus"


def test_there_is_a_queue_for_each_gpu_that_may_be_seen(driver: Path) -> None:
    assert gpus.queues(driver, {}) == ["cuda:0", "cuda:1"]
    assert gpus.queues(driver, {"CUDA_VISIBLE_DEVICES": "1"}) == ["cuda:0"]
    assert gpus.queues(driver, {"CUDA_VISIBLE_DEVICES": ""}) == []
    assert gpus.queues(driver, {"CUDA_VISIBLE_DEVICES": "0,1,2"}) == ["cuda:0", "cuda:1"]
    assert gpus.queues(driver / "missing", {}) == []


def test_up_starts_a_worker_for_each_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "queues", lambda: ["cuda:0", "cuda:1"])
    processes = {one.name: one for one in _processes(Ready("http://127.0.0.1:1", tmp_path / "key", tmp_path, 1))}
    assert list(processes) == ["service", "worker", "worker-cuda:0", "worker-cuda:1"]
    assert processes["worker-cuda:1"].command[-4:] == ["-m", "worker", "--queue", "cuda:1"]
    assert processes["worker-cuda:1"].log == tmp_path / "logs" / "worker-cuda-1.log"
    assert [name for name in processes if gpus.is_of(name.removeprefix("worker-"))] == [
        "worker-cuda:0",
        "worker-cuda:1",
    ]
