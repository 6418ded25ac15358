"""tw_pool.h as part of real artifacts: which threads models of one process have, and when they end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from compiler.pack.loader import Model, WrongMachine, library
from compiler.pack.loader.library import thread_limit
from tests.compiler.conftest import Compiled, limit_threads

pytestmark = pytest.mark.usefixtures("new_pool")

LANES = 3
CHILD = """
import os, sys
import numpy as np
from compiler.pack.loader import Model

image = np.ones((1, 3, 33, 33), np.float32)
def bits(model): return model.run({"image": image})["logits"].tobytes()

with Model(sys.argv[1]) as parents:
    right = bits(parents)
    child = os.fork()
    if not child:
        with Model(sys.argv[1]) as one, Model(sys.argv[1]) as other:
            os._exit(0 if bits(one) == bits(other) == right else 1)
    assert bits(parents) == right
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def network(compiled: Callable[..., Compiled]) -> Compiled:
    return compiled("tiny_inception", LANES, split=True)


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((1, 3, 33, 33)).astype(np.float32)


@pytest.fixture(scope="module")
def alone(network: Compiled, image: np.ndarray) -> bytes:
    with Model(network.artifact, lanes=1) as model:
        return bits(model, image)


def bits(model: Model, image: np.ndarray) -> bytes:
    return bytes(model.run({"image": image})["logits"].tobytes())


def threads() -> int:
    """Of this process, once those that were joined have left the system's list too."""
    found = -1
    for _ in range(100):
        before, found = found, len(os.listdir("/proc/self/task"))
        if before == found:
            break
        time.sleep(0.005)
    return found


def wanted(models: int) -> int:
    """Threads beside callers' that so many models of LANES lanes share here."""
    return max(LANES - 1, min(models * (LANES - 1), len(os.sched_getaffinity(0)) - 1))


def test_models_of_a_process_share_threads_which_end_with_the_last(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()
    models = [Model(network.artifact) for _ in range(6)]
    assert all(bits(model, image) == alone for model in models)
    assert threads() == first + wanted(6)
    for model in models:
        model.close()
    assert threads() == first


def test_threads_that_end_with_one_model_are_replaced_by_the_next_run_of_another(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()
    with Model(network.artifact) as starts_them:
        other = Model(network.artifact)
        assert bits(starts_them, image) == alone
    assert threads() < first + LANES - 1
    assert bits(other, image) == alone
    assert threads() >= first + LANES - 1
    other.close()
    assert threads() == first


def test_callers_at_once_get_the_bits_of_one_alone_while_models_come_and_go(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    first = threads()

    def calls(number: int) -> int:
        right = 0
        for turn in range(6):
            with Model(network.artifact, spin_us=(0, 20, 2000)[(number + turn) % 3]) as model:
                right += sum(bits(model, image) == alone for _ in range(8))
        return right

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(calls, range(4))) == [48] * 4
    assert threads() == first


def test_a_pinned_model_has_threads_of_its_own(network: Compiled, image: np.ndarray, alone: bytes) -> None:
    first = threads()
    with Model(network.artifact), Model(network.artifact, pin=True) as pinned:
        assert threads() == first + wanted(1) + LANES - 1
        assert bits(pinned, image) == alone
    assert threads() == first


def test_a_library_takes_no_pool_of_another_version_and_none_after_it_began(
    network: Compiled, image: np.ndarray, alone: bytes
) -> None:
    with Model(network.artifact) as model:
        share = model._program.opened().calls.tw_share
        assert share(None, 0) is None, "its instance has threads already"
        opened = library._Library(model._files.library(""))
        share, other = opened.calls.tw_share, (ctypes.c_long * 512)(7)
        own = share(None, 0)
        assert own
        assert share(ctypes.addressof(other), 0) is None
        assert share(own, 2) == own
        assert not any(other[1:]), "left as it is"
        opened.close()
        assert bits(model, image) == alone


def test_the_child_of_a_fork_has_a_pool_of_its_own(network: Compiled) -> None:
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(network.artifact)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, "0\n"), said.stderr


@pytest.mark.parametrize(("limit", "expected"), [(1, 0), (2, 1), (3, 2)])
def test_a_limit_counts_the_callers_thread(
    network: Compiled, image: np.ndarray, alone: bytes, monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    limit_threads(monkeypatch, limit)
    first = threads()
    with Model(network.artifact) as one, Model(network.artifact) as other:
        assert bits(one, image) == bits(other, image) == alone
        assert threads() == first + expected


def test_the_variable_and_the_control_groups_limit_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def group(path: str, name: str, text: str) -> None:
        (tmp_path / "sys/fs/cgroup" / path).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / path / name).write_text(text)

    monkeypatch.delenv("TILEWRIGHT_THREADS", raising=False)
    assert thread_limit(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/one\n")
    group("jobs/one", "cpu.max", "max 100000\n")
    assert thread_limit(tmp_path) is None
    group("jobs", "cpu.max", "250000 100000\n")
    assert thread_limit(tmp_path) == 3, "of a group that holds the process's own"
    group("jobs/one", "cpu.max", "50000 100000\n")
    assert thread_limit(tmp_path) == 1
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/box\n3:memory:/box\n")
    group("cpu", "cpu.cfs_quota_us", "400000\n")
    group("cpu", "cpu.cfs_period_us", "100000\n")
    group("cpu/box", "cpu.cfs_quota_us", "-1\n")
    group("cpu/box", "cpu.cfs_period_us", "100000\n")
    assert thread_limit(tmp_path) == 4
    monkeypatch.setenv("TILEWRIGHT_THREADS", "2")
    assert thread_limit(tmp_path) == 2
    for wrong in ("0", "-1", "two"):
        monkeypatch.setenv("TILEWRIGHT_THREADS", wrong)
        with pytest.raises(WrongMachine, match=f"TILEWRIGHT_THREADS is '{wrong}'. Fix: set it to a number"):
            thread_limit(tmp_path)
