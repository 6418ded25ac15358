from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from service import logs


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_process_that_configures_nothing_logs_to_standard_error() -> None:
    """As one that calls a function of ours and prints what it returns."""
    program = "from service import logs; logs.logger('here').warning('cannot build for aarch64'); print('result')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "result\n"
    assert "cannot build for aarch64" in done.stderr


def test_json_lines_carry_what_was_bound(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json_lines=True)
    with structlog.contextvars.bound_contextvars(request="r1"):
        try:
            raise ValueError("broken")
        except ValueError as error:
            logs.logger("here").error("it broke", job="j1", exc_info=error)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["request"], line["job"], line["module"]) == ("it broke", "r1", "j1", "here")
    assert line["level"] == "error"
    assert "ValueError: broken" in line["exception"]


def test_lines_for_people_are_plain_and_show_no_locals(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json_lines=False)
    secret = "hush"
    try:
        raise ValueError(f"broken {len(secret)}")
    except ValueError as error:
        logs.logger("here").error("it broke", exc_info=error)
    said = capsys.readouterr().err
    assert "it broke" in said
    assert "ValueError: broken 4" in said
    assert "hush" not in said.replace('secret = "hush"', "")


def test_who_writes_stands_on_every_line_of_every_thread(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json_lines=True, worker="w1")
    thread = threading.Thread(target=lambda: logs.logger("here").info("beats", job="j1"))
    thread.start()
    thread.join()
    line = json.loads(capsys.readouterr().err)
    assert (line["worker"], line["job"], line["event"]) == ("w1", "j1", "beats")


FAULTS = {
    "full": OSError(errno.ENOSPC, "No space left on device"),
    "broken pipe": OSError(errno.EPIPE, "Broken pipe"),
    "input/output": OSError(errno.EIO, "Input/output error"),
    "quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "slow reader": BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    "closed": ValueError("I/O operation on closed file"),
}
LIBRARY = logging.getLogger("a library's")
"""No server's own: whoever serves in this process decides which of those lines are written."""
WRITERS: dict[str, Callable[[str], object]] = {
    "structlog": lambda said: logs.logger("here").error(said),
    "structlog with a trace": lambda said: logs.logger("here").error(said, exc_info=ValueError(said)),
    "a library's logger": lambda said: LIBRARY.error(said),
    "print": lambda said: print(said, file=sys.stderr),
    "a trace": lambda said: traceback.print_exception(ValueError(said)),
}


class Failing(io.StringIO):
    """A stream that raises what it is told to."""

    fault: Exception | None = None

    def write(self, text: str) -> int:
        if self.fault is not None:
            raise self.fault
        return super().write(text)


@contextlib.contextmanager
def standard_error() -> Iterator[Failing]:
    """Standard error, to which one of the standard library's loggers writes from before `configure` on."""
    stream = Failing()
    handler = logging.StreamHandler(stream)
    LIBRARY.addHandler(handler)
    with contextlib.redirect_stderr(stream):
        yield stream
    LIBRARY.removeHandler(handler)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_who_writes_a_line_that_is_lost_goes_on(fault: str, writer: str) -> None:
    with standard_error() as stream:
        logs.configure(json_lines=True)
        stream.fault = FAULTS[fault]
        WRITERS[writer]("nobody reads this")
        lost = logs.lost()
        assert lost > 0
        assert stream.getvalue() == ""
        stream.fault = None
        WRITERS[writer]("it works again")
        said = stream.getvalue()
        WRITERS[writer]("and goes on")
        assert stream.getvalue().count("were lost") == 1
    assert "it works again" in said
    told = [line for line in said.splitlines() if "lines of this log were lost" in line]
    assert [json.loads(line)["lines"] for line in told] == [lost]


def test_a_line_that_was_cut_off_does_not_run_into_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    room = [5, 0]

    def write(descriptor: int, data: memoryview) -> int:
        if not room:
            return os.write(descriptor, data)
        if (left := room.pop(0)) == 0:
            raise FAULTS["full"]
        return os.write(descriptor, data[:left])

    own = types.SimpleNamespace(**{**vars(os), "write": write})
    monkeypatch.setattr(logs, "os", own)
    with (tmp_path / "log").open("w") as file:
        output = logs.Unfailing(file)
        output.write("first line\n")
        output.write("second line\n")
    assert (tmp_path / "log").read_text().splitlines()[:2] == ["first", "second line"]
    assert output.lost == 1


def test_a_process_whose_log_is_on_a_full_disk_does_its_work(tmp_path: Path) -> None:
    """Standard error is a device that takes nothing."""
    program = (
        "import logging, sys; from service import logs; logs.configure(json_lines=False);"
        "logs.logger('x').error('lost', exc_info=ValueError('v')); logging.getLogger('celery').error('lost');"
        "print('lost', file=sys.stderr); print(logs.lost())"
    )
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True)
    assert ended.returncode == 0
    assert int(ended.stdout) >= 3


def test_of_each_kind_so_many_lines_pass_and_the_others_are_counted() -> None:
    now = [0.0]
    seldom = logs.Seldom(2, 10.0, clock=lambda: now[0])
    assert [seldom.passes("a") for _ in range(5)] == [0, 0, None, None, None]
    assert seldom.passes("b") == 0
    now[0] = 11.0
    assert [seldom.passes("a") for _ in range(3)] == [3, 0, None]
    assert sum(seldom.passes(kind) is not None for kind in range(100_000)) <= seldom.MOST_KINDS + 2
