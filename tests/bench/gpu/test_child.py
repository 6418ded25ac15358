from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bench.gpu import child

pytestmark = pytest.mark.processes


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(child, "ROOT", tmp_path)
    return tmp_path / "work.py"


def test_a_child_tells_its_status_and_what_it_said(module: Path) -> None:
    module.write_text("import sys\nprint(sys.argv[1])\nprint('why', file=sys.stderr)\nsys.exit(3)\n")
    ended = child.run("work", ["said"], 30.0)
    assert (ended.status, ended.output) == (3, "said\n")
    assert ended.said == "said\nwhy\n"


def test_a_child_whose_time_is_over_is_ended_with_all_that_it_started(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time begins when it has started what it starts, however long that takes."""
    module.write_text(
        "import subprocess, sys, time\n"
        "from pathlib import Path\n"
        "sleeper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(sleeper.pid, flush=True)\nPath('started').touch()\ntime.sleep(600)\n"
    )
    communicate = subprocess.Popen.communicate

    def once_started(process: subprocess.Popen[str], timeout: float) -> tuple[str, str]:
        while not (tmp_path / "started").exists():
            assert process.poll() is None, "it died"
            time.sleep(0.01)
        return communicate(process, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_started)
    ended = child.run("work", [], 0.1)
    assert ended.status is None
    assert is_over(int(ended.output))


def test_a_process_that_does_not_end_even_when_killed_holds_up_nothing(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose kernel the driver cannot end: nothing is delivered to it, and nobody waits for it."""
    module.write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setattr(child, "GRACE_S", 0.1)
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda process, number: sent.append((process, number)))
    ended = child.run("work", [], 0.1)
    assert (ended.status, ended.said) == (None, "the process does not end, even when killed")
    assert [number for _, number in sent] == [signal.SIGTERM, signal.SIGKILL]
    monkeypatch.undo()
    left = child.LEFT.pop()
    os.killpg(left.pid, signal.SIGKILL)
    assert left.wait() == -signal.SIGKILL


def is_over(process: int) -> bool:
    """Whether a process ends within some seconds; whoever adopted it may not have noticed yet."""
    for _ in range(600):
        try:
            if Path(f"/proc/{process}/stat").read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False
