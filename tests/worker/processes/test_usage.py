from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.processes import launch, usage
from worker.sandbox.linux import LINUX

KIB = 1 << 10


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def test_files_are_counted_at_every_depth_and_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside", 800 * KIB)
    inside = tmp_path / "inside"
    write(inside / "a", 200 * KIB)
    write(inside / "b" / "c" / "d", 300 * KIB)
    (inside / "link").symlink_to(tmp_path / "outside")
    (inside / "folder").symlink_to(tmp_path)
    found = usage.disk_bytes(inside)
    assert found is not None
    assert 500 * KIB <= found <= 600 * KIB


def test_a_hole_takes_no_room(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    found = usage.disk_bytes(tmp_path)
    assert found is not None
    assert found < 1 << 20


def test_too_many_files_cannot_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    assert usage.disk_bytes(tmp_path) is not None
    monkeypatch.setattr(usage, "MOST_ENTRIES", 19)
    assert usage.disk_bytes(tmp_path) is None


def test_folders_that_lie_too_deep_cannot_be_counted(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(usage.MOST_LEVELS + 1):
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
    assert usage.disk_bytes(tmp_path) is None


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "c", KIB)
    before = os.listdir("/proc/self/fd") if LINUX else []
    assert usage.disk_bytes(tmp_path) is not None
    assert (os.listdir("/proc/self/fd") if LINUX else []) == before


BUSY = """
import subprocess, sys, time
subprocess.run([sys.executable, "-S", "-c", "import time\\nwhile time.process_time() < 0.5: pass"])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not LINUX, reason="processes are counted by /proc")
def test_memory_is_of_living_processes_and_time_of_dead_ones_too(eventually: Callable[..., Any]) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            taken = usage.of(os.getpid(), [process.pid])
            assert taken.processes == 1
            assert 1 << 20 < taken.resident_bytes < 1 << 30
            # The kernel rounds each of user and system time down to its clock tick of 10 ms.
            assert usage.of(1 << 30, [process.pid]).cpu_s >= 0.45, "it waited for one that took half a second"
            assert process.pid in launch.descendants(os.getpid())
        finally:
            process.kill()
    assert usage.of(1 << 30, [1 << 30]) == usage.Usage()


def test_the_kernels_counter_of_kills_for_memory_is_a_number() -> None:
    assert usage.oom_kills() >= 0


HIDING = """
import ctypes, os, sys
from pathlib import Path
from worker.sandbox import enter
from worker.limits import Limits
scratch = Path(sys.argv[1])
if sys.argv[2] == "walls":
    enter.enter(Limits(wall_s=60, memory_bytes=1 << 30), scratch, [], [])
opened, mapped = (open(scratch / name, "w+b") for name in ("opened", "mapped"))
for file in (opened, mapped):
    file.write(bytes(range(256)) * 2048)
    file.flush()
    os.unlink(file.name)
again = os.dup(opened.fileno())
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
assert libc.mmap(None, ctypes.c_size_t(1 << 19), 1, 2, mapped.fileno(), ctypes.c_long(0)) != ctypes.c_void_p(-1).value
mapped.close()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not LINUX, reason="processes are looked at by /proc")
@pytest.mark.parametrize("walls", ["walls", "none"])
def test_deleted_files_are_counted_once_while_they_are_open_or_mapped(tmp_path: Path, walls: str) -> None:
    sees_mapped = os.geteuid() == 0
    if walls == "walls" and not sees_mapped:
        pytest.skip("only root looks into a process that leaves no dumps")
    command = [sys.executable, "-c", HIDING, str(tmp_path), walls]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert usage.disk_bytes(tmp_path) == 0
        held = usage.deleted_bytes([process.pid, process.pid])
        process.communicate()
    files = 2 if sees_mapped else 1
    assert files * 512 * KIB <= held < files * 600 * KIB
    assert usage.deleted_bytes([process.pid]) == 0
