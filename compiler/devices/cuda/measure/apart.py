"""A bench in a process of its own, which may fault, hang and be killed without its caller.

After an illegal access the driver's manual gives the process up ("the process must be terminated and relaunched"), and
a kernel that does not end cannot be stopped by the process that launched it. So kernels that nobody has run before are
run there, and it is ended when it is lost or silent.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np

from compiler.devices.cuda.measure.bench import Refused, Subject
from compiler.devices.cuda.measure.nvml import Clock
from compiler.trace import StopRequest, never_stops

START_S = 60.0
"""For the process to come up: the driver may have to wake the device."""
SILENCE_S = 10.0
"""After which a kernel is taken to hang: a graph lasts a millisecond or so, and placing one a tenth of a second."""
END_S = 5.0
POLL_S = 0.2
"""Between two looks at a stop request."""
COMMAND = (sys.executable, "-P", "-m", "compiler.devices.cuda.measure")
LENGTH = struct.Struct("<Q")
"""Of a message, which stands before it."""


class Lost(Exception):
    """The process ended, failed or hung; the next question starts another."""


class Stopped(Exception):
    """A stop request came while an answer was waited for."""


class Child:
    """A process that answers questions: started when it is first asked, ended when it is lost or silent.

    `command` gives the words that start it, `greeting` what it is told first.
    """

    def __init__(self, command: Callable[[], Sequence[str]], greeting: object) -> None:
        self._command, self._greeting = command, greeting
        self.process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def ask(self, message: object, patience_s: float, stop_requested: StopRequest = never_stops) -> Any:
        """The answer to a question. Raises Refused; Lost where there is none within `patience_s`; Stopped."""
        if self.process is None:
            self.process = subprocess.Popen(self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._finalizer = weakref.finalize(self, _end, self.process, END_S)
            self._exchange(self._greeting, START_S, stop_requested)
        return self._exchange(message, patience_s, stop_requested)

    def close(self, patience_s: float = END_S) -> None:
        """End the process, at once or after it has given back what it holds."""
        if self._finalizer is not None and self.process is not None:
            self._finalizer.detach()
            _end(self.process, patience_s)
            self.process = self._finalizer = None

    def _exchange(self, message: object, patience_s: float, stop_requested: StopRequest) -> Any:
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        end = time.monotonic() + patience_s
        try:
            write_message(process.stdin.fileno(), message)
            while stop_requested is not never_stops and not select.select([process.stdout], [], [], POLL_S)[0]:
                if stop_requested():
                    self.close(patience_s=0.0)
                    raise Stopped
                if time.monotonic() > end:
                    raise TimeoutError
            kind, what = read_message(process.stdout.fileno(), end)
        except TimeoutError as error:
            self.close(patience_s=0.0)
            raise Lost(f"a kernel did not end within {patience_s:g} s") from error
        except (OSError, EOFError) as error:
            self.close()
            raise Lost(f"the measuring process ended with status {process.returncode}") from error
        if kind == "lost":
            self.close()
            raise Lost(what)
        if kind == "refused":
            raise Refused(what)
        return what


class BenchApart:
    """`bench.Bench` in a process that is started when it is first needed."""

    def __init__(self, index: int = 0, seed: int = 0, silence_s: float = SILENCE_S) -> None:
        self._child, self._silence_s = Child(lambda: COMMAND, (index, seed)), silence_s

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process while there is one."""
        return self._child.process

    def reserve(self, subjects: Sequence[Subject]) -> None:
        """As `Bench.reserve`. Raises Refused and Lost."""
        self._ask("reserve", list(subjects))

    def place(self, at: int, subject: Subject) -> None:
        """As `Bench.place`. Raises Refused and Lost."""
        self._ask("place", at, subject)

    def compute(self, subject: Subject, operands: Sequence[tuple[np.ndarray, int]]) -> Sequence[np.ndarray]:
        """As `Bench.compute`. Raises Refused and Lost."""
        computed: Sequence[np.ndarray] = self._ask("compute", subject, list(operands))
        return computed

    def alternate(self, image: bytes, name: str, shared_bytes: Sequence[int], split: int | None) -> Sequence[float]:
        """As `Bench.alternate`. Raises Refused and Lost."""
        taken: Sequence[float] = self._ask("alternate", image, name, list(shared_bytes), split)
        return taken

    def forks(self, image: bytes, name: str, width: int) -> Sequence[float]:
        """As `Bench.forks`. Raises Refused and Lost."""
        taken: Sequence[float] = self._ask("forks", image, name, width)
        return taken

    def sample(self, at: int) -> float:
        """As `Bench.sample`. Raises Lost."""
        return float(self._ask("sample", at))

    def clock(self) -> Clock | None:
        """As `Bench.clock`. Raises Lost."""
        clock: Clock | None = self._ask("clock")
        return clock

    def close(self, patience_s: float = END_S) -> None:
        """End the process, at once or after it has given back what it holds."""
        self._child.close(patience_s)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._child.ask((method, arguments), self._silence_s)


def write_message(descriptor: int, message: object) -> None:
    """Send one message; both ends are this program, so it is pickled."""
    whole = pickle.dumps(message)
    rest = memoryview(LENGTH.pack(len(whole)) + whole)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def serve(begin: Callable[..., AbstractContextManager[object]], lost: tuple[type[Exception], ...]) -> None:
    """Answer, as the process of a `Child`, on standard output what comes over standard input.

    The first message is what `begin` is given; the others are `(method, arguments)` of what it makes. An answer is `ok`
    and a result; `refused` and why; or `lost` and why, after which nothing more can be done in this process: one of
    `lost` leaves a device of which nothing more can be had.
    """
    requests, answers = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not get between the answers
    try:
        with begin(*read_message(requests)) as does:
            write_message(answers, ("ok", None))
            while True:
                try:
                    method, arguments = read_message(requests)
                except EOFError:
                    return
                try:
                    write_message(answers, ("ok", getattr(does, method)(*arguments)))
                except Refused as reason:
                    write_message(answers, ("refused", str(reason)))
                except lost as error:
                    write_message(answers, ("lost", str(error)))
                    os._exit(0)  # nothing can be given back to a context that is lost
    except Exception as error:
        write_message(answers, ("lost", f"{type(error).__name__}: {error}"))


def read_message(descriptor: int, end: float | None = None) -> Any:
    """The next message. Raises EOFError, and TimeoutError at the moment `end` of the monotonic clock."""
    (size,) = LENGTH.unpack(_read(descriptor, LENGTH.size, end))
    return pickle.loads(_read(descriptor, size, end))


def _read(descriptor: int, size: int, end: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError
        part = os.read(descriptor, size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
