from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import alive
from tilewright.up import process
from tilewright.up.process import Supervised

ROOT = Path(__file__).parents[3]


def eventually(condition: Callable[[], Any], within_s: float = 120.0) -> Any:
    end = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
    return answer


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[[str], Supervised]]:
    made: list[Supervised] = []

    def make(program: str) -> Supervised:
        command = [sys.executable, "-S", "-c", program]
        made.append(Supervised("it", command, dict(os.environ), tmp_path / "log"))
        return made[-1]

    yield make
    for one in made:
        one.ask_to_stop()
        one.stop(0.0)


def test_one_that_dies_is_started_again_after_a_growing_pause(
    supervised: Callable[[str], Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FIRST_PAUSE_S", 0.01)
    it = supervised("print('hello', flush=True)")
    it.start()
    eventually(lambda: it.mend() and it.deaths == 3)
    assert it.log_tail() == "hello\nhello\nhello"


@pytest.mark.parametrize(
    ("program", "status", "reason", "fix"),
    [
        (
            "print('begins'); print('worker: it is no port\\nFix: name one'); raise SystemExit(78)",
            78,
            "worker: it is no port",
            "name one",
        ),
        ("print('begins'); print('it: the disk is full\\n\\n'); raise SystemExit(1)", 1, "the disk is full", ""),
        ("raise SystemExit(3)", 3, "exit status 3", ""),
        ("print('well', flush=True); import os; os.kill(os.getpid(), 9)", -9, "signal 9", ""),
    ],
)
def test_why_one_ended_is_what_it_printed_last(
    supervised: Callable[[str], Supervised], program: str, status: int, reason: str, fix: str
) -> None:
    it = supervised(program)
    it.log.write_text("an earlier life\n")
    it.start()
    eventually(it.mend)
    assert (it.status, it.reason, it.fix) == (status, reason, fix)


def test_one_that_cannot_be_started_counts_as_ended(
    supervised: Callable[[str], Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FIRST_PAUSE_S", 0.0)
    it = supervised("")
    it.command = [str(it.log.parent / "nothing")]
    assert [it.mend(), it.mend()] == [True, True]
    assert it.deaths == 2
    assert it.status is None
    assert "No such file" in it.reason


def test_a_log_is_bounded_and_the_process_goes_on_in_it(
    supervised: Callable[[str], Supervised], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "LOG_BYTES", 100)
    it = supervised(
        "import os, time\nprint('x' * 101, flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\nprint('after', flush=True)"
    )
    older = tmp_path / "log.1"
    older.write_text("what it printed before")
    it.start()
    eventually(lambda: it.mend() or (it.log.stat().st_size == 0 and older.stat().st_size > 100))
    assert older.read_text() == "x" * 101 + "\n"
    (tmp_path / "go").touch()
    eventually(it.mend)
    assert it.log.read_text() == "after\n"
    assert it.reason == "after"


def test_a_log_that_cannot_be_kept_is_emptied_all_the_same(
    supervised: Callable[[str], Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process, "LOG_BYTES", 100)
    monkeypatch.setattr(shutil, "copyfile", full)
    it = supervised("")
    it.log.write_text("x" * 101)
    it._bound_log()
    assert it.log.stat().st_size == 0


def test_a_long_life_is_forgiven(supervised: Callable[[str], Supervised], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEADY_S", 0.0)
    monkeypatch.setattr(process, "FIRST_PAUSE_S", 0.0)
    it = supervised("")
    it.start()
    for _ in range(2):
        eventually(it.mend)
        it.mend()
    assert it.deaths == 1


def test_stopping_kills_the_whole_group_of_one_that_will_not_hear(
    supervised: Callable[[str], Supervised], tmp_path: Path
) -> None:
    it = supervised(
        "import os, signal, time, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = os.fork(); open({str(tmp_path / 'pid')!r} + str(child), 'w').close(); time.sleep(600)"
    )
    it.start()
    eventually(lambda: len(list(tmp_path.glob("pid*"))) == 2)
    assert it.process is not None
    pids = [
        it.process.pid,
        *(int(path.name.removeprefix("pid")) for path in tmp_path.glob("pid*") if path.name != "pid0"),
    ]
    it.ask_to_stop()
    it.stop(0.1)
    eventually(lambda: not any(map(alive, pids)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is of Linux")
def test_it_dies_with_its_supervisor_however_that_dies(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from pathlib import Path; from tilewright.up.process import Supervised\n"
        f"it = Supervised('it', ['/bin/sleep', '600'], os.environ, Path({str(tmp_path / 'log')!r})); it.start()\n"
        "print(it.process.pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert alive(pid)
        supervisor.send_signal(signal.SIGKILL)
    eventually(lambda: not alive(pid))
