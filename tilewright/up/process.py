"""One supervised process: started in a group of its own, started again when it ends, stopped as a group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 20.0
"""A process that lived this long is trusted again: its next death starts with the shortest pause."""
LOG_BYTES = 16 * 2**20
"""A log that is longer becomes the older one, of which there is one: twice this is what a process's logs take."""
LAST_WORDS_BYTES = 64 * 2**10
FIX = "Fix: "
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


@dataclass
class Supervised:
    """A command that shall run for as long as `up` does. Its output is appended to `log`.

    deaths  ends in a row, none of them after a long life
    status  of the last end: an exit status, minus a signal's number, or None where it could not be started
    reason  of the last end: the signal, or what it printed last, else the status
    fix     what it printed as the fix of that, if it did
    """

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    status: int | None = None
    reason: str = ""
    fix: str = ""
    _started: float = field(default=0.0, repr=False)
    _not_before: float = field(default=0.0, repr=False)
    _begin: int = field(default=0, repr=False)
    """Where in the log its present life begins."""

    def start(self) -> None:
        """Start it. On Linux the kernel kills it when this process dies by any means; call from the main thread.

        Raises OSError.
        """
        parent = os.getpid()
        with self.log.open("ab") as output:
            self._begin = output.tell()
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=lambda: _die_with(parent),
            )
        self._started = time.monotonic()

    def mend(self) -> bool:
        """Start it again if it ended and its pause is over, and bound its log; True when an end was noticed."""
        self._bound_log()
        if self.process is not None and self._dead():
            self._end_group()
            self._ended(self.process.returncode, *self._last_words())
            self.process = None
            return True
        if self.process is None and time.monotonic() >= self._not_before:
            try:
                self.start()
            except OSError as error:
                self._started = time.monotonic()
                self._ended(None, f"it cannot be started: {error}", "")
                return True
        return False

    @property
    def pause_s(self) -> float:
        """How long it is left alone after its last end."""
        return min(FIRST_PAUSE_S * 2.0 ** min(self.deaths - 1, 16), LONGEST_PAUSE_S)

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, patience_s: float) -> None:
        """Wait this long after `ask_to_stop`, then kill whatever is left of the group."""
        if self.process is None:
            return
        end = time.monotonic() + patience_s
        while not self._dead() and time.monotonic() < end:
            time.sleep(_POLL_S)
        self._end_group()
        self.process = None

    def log_tail(self, lines: int = 15) -> str:
        """The last lines that it printed."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _ended(self, status: int | None, reason: str, fix: str) -> None:
        now = time.monotonic()
        self.status, self.fix = status, fix
        killed = status is not None and status < 0
        self.reason = f"signal {-(status or 0)}" if killed else reason or f"exit status {status}"
        self.deaths = 1 if now - self._started > STEADY_S else self.deaths + 1
        self._not_before = now + self.pause_s

    def _last_words(self) -> tuple[str, str]:
        """The last line of its present life, and the fix that it named in one after it."""
        text = b""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._begin, log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            text = log.read()
        lines = ["", "", *filter(None, map(str.strip, text.decode(errors="replace").splitlines()))]
        fix = lines.pop().removeprefix(FIX) if lines[-1].startswith(FIX) else ""
        return lines[-1].removeprefix(f"{self.name}: "), fix

    def _bound_log(self) -> None:
        """Make a log that is too long the older one. It is emptied even where no copy can be kept: on a full disk.

        A line that is written between the two is lost. The process appends, so that it goes on at the beginning.
        """
        older = self.log.with_name(f"{self.log.name}.1")
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > LOG_BYTES:
                older.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    shutil.copyfile(self.log, older)
                os.truncate(self.log, 0)
                self._begin = 0

    def _dead(self) -> bool:
        """Whether it has ended; it stays a zombie, so that its id, the group's, cannot become another's."""
        assert self.process is not None
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # who forked this process's children too may have waited for all of them
            return True

    def _end_group(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def _die_with(parent: int) -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
