from __future__ import annotations

import fcntl
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.processes import launch
from worker.processes.group import Group

FAMILY = """
here()
# A grandchild in the group, one that left it by a session of its own, and one orphaned by a double fork.
nap = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
pids = [os.getpid(), subprocess.Popen(nap).pid, subprocess.Popen(nap, start_new_session=True).pid]
between = os.fork()
if between == 0:
    orphan = subprocess.Popen(nap, start_new_session=True)
    open("orphan", "w").write(str(orphan.pid))
    os._exit(0)
os.waitpid(between, 0)
pids.append(int(open("orphan").read()))
open("family.tmp", "w").write(" ".join(map(str, pids)))
os.rename("family.tmp", "family")
"""

PARENT = """
import sys, time
from pathlib import Path
from worker.processes.group import Group
command, scratch, lock = sys.argv[1:4], Path(sys.argv[4]), int(sys.argv[5])
group = Group.start({"kind": "spec"}, scratch, command=command, lock=lock)
time.sleep(600)
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "job" / "work"
    folder.mkdir(parents=True)
    return folder


def family(scratch: Path, eventually: Callable[..., Any]) -> list[int]:
    eventually(lambda: (scratch / "family").exists())
    return [int(pid) for pid in (scratch / "family").read_text().split()]


def test_killing_the_parent_kills_every_descendant_and_only_then_frees_the_device_lock(
    scratch: Path,
    script: Callable[[str], tuple[str, ...]],
    eventually: Callable[..., Any],
    running: Callable[[int], bool],
) -> None:
    lock = os.open(scratch / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    command = script(FAMILY + "time.sleep(600)")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *command, str(scratch), str(lock)], pass_fds=[lock])
    os.close(lock)
    pids = family(scratch, eventually)
    assert all(map(running, pids))
    with (scratch / "lock").open("r+") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    with (scratch / "lock").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not any(map(running, pids))


def test_what_a_finished_job_leaves_behind_is_killed(
    scratch: Path,
    script: Callable[[str], tuple[str, ...]],
    eventually: Callable[..., Any],
    running: Callable[[int], bool],
) -> None:
    group = Group.start({"kind": "spec"}, scratch, command=script(FAMILY))
    pids = family(scratch, eventually)
    eventually(lambda: group.ended)
    assert group.end() == 0
    assert not any(map(running, pids))


def test_every_process_dies_although_the_launcher_was_killed(
    scratch: Path,
    script: Callable[[str], tuple[str, ...]],
    eventually: Callable[..., Any],
    running: Callable[[int], bool],
) -> None:
    group = Group.start({"kind": "spec"}, scratch, command=script(FAMILY + "time.sleep(600)"))
    pids = family(scratch, eventually)
    os.kill(group.launcher.pid, signal.SIGKILL)
    eventually(lambda: group.ended)
    assert group.end() == -signal.SIGKILL
    assert not any(map(running, pids)), "those that left the group are found as well"


@pytest.mark.parametrize(
    ("last_act", "code"),
    [("os._exit(7)", 7), ("os.kill(os.getpid(), signal.SIGSEGV)", -11), ("os.abort()", -6)],
)
def test_the_launcher_ends_like_its_command(
    scratch: Path, script: Callable[[str], tuple[str, ...]], eventually: Callable[..., Any], last_act: str, code: int
) -> None:
    group = Group.start({"kind": "spec"}, scratch, command=script(last_act))
    eventually(lambda: group.ended)
    assert group.end() == code


def test_the_job_sees_none_of_the_services_settings(
    scratch: Path,
    script: Callable[[str], tuple[str, ...]],
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DATABASE_URL", "postgresql://secret")
    group = Group.start({"kind": "spec"}, scratch, command=script("print(sorted(os.environ))"))
    eventually(lambda: group.ended)
    group.end()
    printed = group.log_tail()
    assert "PATH" in printed
    assert "TILEWRIGHT" not in printed


HALF_DEAD = """
import ctypes, os, platform, subprocess, sys, threading, time
def work():
    nap = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
    print(nap.pid, flush=True)
    time.sleep(600)
threading.Thread(target=work).start()
time.sleep(0.2)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit: of the first thread alone
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the number of `exit` is known for two")
def test_children_are_found_through_a_process_whose_first_thread_has_ended(eventually: Callable[..., Any]) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", HALF_DEAD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        nap = int(process.stdout.readline())
        try:
            stat = Path(f"/proc/{process.pid}/stat")
            eventually(lambda: stat.read_bytes().rpartition(b")")[2].split()[0] == b"Z")
            assert nap in launch.descendants(os.getpid())
            assert process.pid not in launch.descendants(os.getpid())
        finally:
            os.kill(nap, signal.SIGKILL)
            process.kill()
