from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worker.processes import scratch
from worker.processes.reap import reap
from worker.processes.scratch import Process

NAP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def leftover() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(NAP, process_group=0)
    yield process
    process.kill()
    process.wait()


def signed(root: Path, worker: Process, group: Process) -> Path:
    path = scratch.prepare(root) / "job-1"
    path.mkdir()
    scratch.Folder(path).sign(worker, group)
    return path


def dead() -> Process:
    process = subprocess.Popen(NAP)
    ghost = Process.of(process.pid)
    process.kill()
    process.wait()
    return ghost


def test_the_group_of_a_dead_worker_is_killed_and_its_folder_removed(
    tmp_path: Path, leftover: subprocess.Popen[bytes]
) -> None:
    path = signed(tmp_path, dead(), Process.of(leftover.pid))
    assert reap(tmp_path) == 1
    assert leftover.wait() == -9
    assert not path.exists()


ORPHANS = (
    """
import os, subprocess, sys
nap = [sys.executable, "-S", "-c", "import ctypes, time; """
    """ctypes.CDLL(None).prctl(4, 0); print(flush=True); time.sleep(600)"]
# One in the launcher's group that cannot be looked into, one that left the group.
for fled in (False, True):
    orphan = subprocess.Popen(nap, start_new_session=fled, stdout=subprocess.PIPE, """
    """env={"HOME": sys.argv[1]} if fled else {})
    orphan.stdout.readline()
    print(orphan.pid, flush=True)
os.kill(os.getpid(), 9)
"""
)


def test_what_a_launcher_left_that_was_itself_killed_dies_too(
    tmp_path: Path, running: Callable[[int], bool], leftover: subprocess.Popen[bytes]
) -> None:
    """The worker is dead, the launcher is dead.

    Its orphans are known by the folder in their environment, or by their group.
    """
    work = str(scratch.prepare(tmp_path) / "job-1" / "work")
    command = [sys.executable, "-c", ORPHANS, work]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0, text=True) as launcher:
        assert launcher.stdout is not None
        signed(tmp_path, dead(), Process.of(launcher.pid))
        orphans = [int(launcher.stdout.readline()) for _ in range(2)]
    assert launcher.returncode == -9
    assert all(map(running, orphans))
    assert reap(tmp_path) == 1
    assert not any(map(running, orphans))
    assert running(leftover.pid), "a stranger"


def test_a_living_worker_keeps_its_job(tmp_path: Path, leftover: subprocess.Popen[bytes]) -> None:
    path = signed(tmp_path, Process.of(os.getpid()), Process.of(leftover.pid))
    assert reap(tmp_path) == 0
    assert leftover.poll() is None
    assert path.exists()


def test_a_process_id_that_is_used_again_is_not_killed(
    tmp_path: Path, leftover: subprocess.Popen[bytes], running: Callable[[int], bool]
) -> None:
    signed(tmp_path, dead(), Process(leftover.pid, started=1))
    assert reap(tmp_path) == 1
    assert running(leftover.pid)


def test_a_folder_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    path = scratch.prepare(tmp_path) / "job-1"
    path.mkdir()
    assert reap(tmp_path) == 0
    os.utime(path, (0, 0))
    assert reap(tmp_path) == 1


def test_a_scratch_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="TILEWRIGHT_SCRATCH_DIR"):
        scratch.prepare(tmp_path / "link")
