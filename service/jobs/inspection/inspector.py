"""Ask what only reading a model can answer, without reading it here: a sealed process of its own answers each question.

The processes are started ahead of need, because importing the compiler takes longer than an answer. Each answers one
order and ends; one that is hostile, stuck or dead is killed with all it started, and costs nobody but the one who
asked. They end by themselves when this process is gone: their input closes, and the kernel bounds their CPU time.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

from service.errors import Misconfigured, NotReady
from service.logs import logger

COMMAND = (sys.executable, "-P", "-m", "worker.preflight")
"""A command line and no import: what it runs reads models, which the service never does."""
MAX_ANSWER_BYTES = 32 << 20
MEMORY_BYTES = 1 << 30
AT_ONCE = 4
"""Questions that are answered at a time; others wait their turn, PATIENCE_S seconds at most."""
PATIENCE_S = 2.0
ELAPSED = 3
"""Seconds that may pass for each of processor time: on a loaded machine a process has a share of a core."""
WALLS_S = 60.0
"""How long a process may take to start and say which walls it has."""
BEHIND_OTHERS = 10
"""How nice such a process is: answers of the API go first on cores that they share."""

FAILED, TIME_LIMIT, BUSY = "preflight_failed", "time_limit", "preflight_busy"

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH")
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PIECE = 1 << 16

Order = Mapping[str, Any] | AbstractContextManager[Mapping[str, Any]]

log = logger(__name__)


@dataclass
class Inspector:
    """Answers orders (see `worker.preflight`) by processes of which `ready` wait warm. Safe for many threads."""

    ready: int = 1
    command: Sequence[str] = COMMAND
    walls: Sequence[str] = ()
    """Those of the sandbox without which a process does nothing."""
    _warm: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))
    _closed: bool = False

    def warm(self) -> None:
        """Start as many processes as shall wait; those that died meanwhile are replaced."""
        with self._lock:
            dead = [child for child in self._warm if child.poll() is not None]
            self._warm = [child for child in self._warm if child.poll() is None]
            while not self._closed and len(self._warm) < self.ready:
                try:
                    self._warm.append(_start(self.command))
                except OSError as error:
                    log.warning("no process to preflight models with", reason=str(error))
                    break
        for child in dead:
            _end(child)

    def demand_walls(self) -> None:
        """Raises `NotReady` where one of `walls` cannot be raised on this machine."""
        if not self.walls:
            return
        answer = self.ask({"order": "walls"}, WALLS_S)
        if answer.get("missing") == []:
            return
        if isinstance(problem := answer.get("problem"), dict):
            raise NotReady(f"no wall around preflights can be raised: {problem.get('message')}", fix="see the log")
        raise Misconfigured(
            f"TILEWRIGHT_REQUIRE_WALLS demands {', '.join(map(str, answer.get('missing') or self.walls))}, "
            "which this machine cannot raise around preflights",
            fix=str(answer.get("fix")),
        )

    def ask(self, order: Order, cpu_s: float, memory_bytes: int = MEMORY_BYTES) -> dict[str, Any]:
        """The answer to an order, or `{"problem": ...}` when none came in `cpu_s` seconds of processor time.

        The problem is as `TilewrightError.to_json`.

        Blocking. `memory_bytes` is what the process may take beside what it has when it is warm. What comes from it is
        JSON and a dict; nothing more is known of it, since a model may have taken the process over. An order that is to
        be entered first, since files are laid out for it, is while one of the `AT_ONCE` turns is had, before the time
        runs. Raises what that raises.
        """
        if not self._turns.acquire(timeout=min(cpu_s, PATIENCE_S)):
            return _problem(BUSY, "machine", f"{AT_ONCE} questions are being answered", "ask again in a moment")
        try:
            limits = {"cpu_s": cpu_s, "memory_bytes": memory_bytes}
            try:
                child = self._take()
            except OSError as error:
                return _problem(FAILED, "machine", f"no process can be started: {error.strerror}", "try again later")
            try:
                with nullcontext(order) if isinstance(order, Mapping) else order as plain:
                    line = json.dumps({**plain, "limits": limits, "walls": list(self.walls)}).encode() + b"\n"
                    return _exchange(child, line, ELAPSED * cpu_s)
            finally:
                _end(child)
        finally:
            self._turns.release()
            self.warm()

    def close(self) -> None:
        """End the processes that wait; orders that are being done are answered still."""
        with self._lock:
            self._closed = True
            waiting, self._warm = self._warm, []
        for child in waiting:
            _end(child)

    def _take(self) -> subprocess.Popen[bytes]:
        """A process that waits, else one that is started now. Raises `OSError`."""
        with self._lock:
            while self._warm:
                child = self._warm.pop(0)
                if child.poll() is None:
                    return child
                _end(child)
        return _start(self.command)


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that leads a group and inherits nothing of the service's settings or secrets."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**kept, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        process_group=0,
    )
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, child.pid, BEHIND_OTHERS)
    for pipe in _pipes(child):
        os.set_blocking(pipe, False)
    return child


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the group and reap its leader, which keeps the group's id from becoming another's until then."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
    child.wait()


def _pipes(child: subprocess.Popen[bytes]) -> tuple[int, int]:
    assert child.stdin is not None
    assert child.stdout is not None
    return child.stdin.fileno(), child.stdout.fileno()


def _exchange(child: subprocess.Popen[bytes], order: bytes, wall_s: float) -> dict[str, Any]:
    """Write the order, read one line."""
    answer = bytearray()
    for piece in _talk(child, order, time.monotonic() + wall_s):
        if piece is None:
            return _problem(
                TIME_LIMIT,
                "machine",
                f"reading the model took longer than {wall_s:g} s",
                "check that the model is intact; a compilation may take longer",
            )
        answer += piece
        if b"\n" in piece or len(answer) > MAX_ANSWER_BYTES:
            break
    line, newline, _ = bytes(answer).partition(b"\n")
    try:
        found = json.loads(line, parse_constant=_refuse_constant) if newline else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else _dead(child, bool(answer))


def _talk(child: subprocess.Popen[bytes], order: bytes, deadline: float) -> Iterator[bytes | None]:
    """Pieces of the answer until the process closes its output; None when the time is up."""
    rest = memoryview(order)
    into, out = _pipes(child)
    with selectors.DefaultSelector() as selector:
        selector.register(into, selectors.EVENT_WRITE)
        selector.register(out, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fd == out:
                    piece = os.read(out, _PIECE)
                    if not piece:
                        return
                    yield piece
                    continue
                try:
                    rest = rest[os.write(into, rest) :]
                except BrokenPipeError:  # it died; its output says what it could
                    rest = rest[:0]
                if not rest:
                    selector.unregister(into)
        yield None


def _dead(child: subprocess.Popen[bytes], said: bool) -> dict[str, Any]:
    """Why there is no answer."""
    try:
        code = child.wait(timeout=1.0)
        how = f"died by {_signal_name(-code)}" if code < 0 else f"ended with status {code}"
    except subprocess.TimeoutExpired:
        how = "closed its output"
    what = "without an answer" if not said else "with an answer that is not one"
    if how == "died by SIGXCPU":
        return _problem(
            TIME_LIMIT, "machine", "reading the model took too much CPU time", "check that the model is intact"
        )
    return _problem(
        FAILED,
        "ours",
        f"the process that reads the model {how} {what}",
        "check that the model loads elsewhere; if it does, report it: no input may do that",
    )


def _problem(code: str, fault: str, message: str, fix: str) -> dict[str, Any]:
    return {"problem": {"code": code, "fault": fault, "message": message, "fix": fix, "refusals": [], "details": {}}}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
