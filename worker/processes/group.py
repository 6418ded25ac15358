"""The process group of one job, seen from the worker: started, watched, killed as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.processes import frames, launch, leftovers, usage
from worker.processes.usage import Usage

CHILD = (sys.executable, "-P", "-m", "worker.attempt.child")
"""The job's command; the descriptors of the spec and of the frames are appended."""

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "CC", "CXX")
_KILL_GRACE_S = 0.3
_POLL_S = 0.005
LOG_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Group:
    """A running job.

    frames   the reading end of its pipe, non-blocking
    scratch  its working and temporary folder
    log      its standard output and error
    """

    launcher: subprocess.Popen[bytes]
    frames: int
    watch: int
    scratch: Path
    log: Path

    @classmethod
    def start(
        cls,
        spec: Mapping[str, Any],
        scratch: Path,
        *,
        command: Sequence[str] = CHILD,
        lock: int = -1,
        environment: Mapping[str, str] | None = None,
    ) -> Group:
        """Start `command` under a launcher, in a group and with an environment of its own.

        spec     what the job reads as its one frame
        scratch  its working and temporary folder; the log is written beside it
        lock     descriptor of the device lock that the job shall hold, or -1
        environment  variables beside those that every job has
        """
        whole = {**_environment(scratch), **(environment or {})}
        log = scratch.parent / "log"
        frames_read, frames_write = os.pipe()
        watch_read, watch_write = os.pipe()
        try:
            launcher = _popen(command, spec, scratch, log, whole, watch=watch_read, frames_out=frames_write, lock=lock)
        except BaseException:
            os.close(frames_read)
            os.close(watch_write)
            raise
        finally:
            os.close(frames_write)
            os.close(watch_read)
        os.set_blocking(frames_read, False)
        return cls(launcher, frames_read, watch_write, scratch, log)

    def end(self) -> int:
        """Kill whatever is left, close the descriptors; the exit status, negative for a signal."""
        os.close(self.watch)
        patience = time.monotonic() + _KILL_GRACE_S
        while not self.ended and time.monotonic() < patience:
            time.sleep(_POLL_S)
        # The launcher is not waited for yet: until then its id, the group's, cannot become another's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.launcher.pid, signal.SIGKILL)
        if not self._swept():
            leftovers.end(self.log.parent, self.launcher.pid)
        os.close(self.frames)
        return self.launcher.wait()

    @property
    def ended(self) -> bool:
        """Whether the launcher is dead; it stays a zombie until `end`."""
        return os.waitid(os.P_PID, self.launcher.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _swept(self) -> bool:
        """Whether the launcher ended by itself, which it does when nothing is left of the job."""
        end = os.waitid(os.P_PID, self.launcher.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return end is not None and end.si_code == os.CLD_EXITED

    def usage(self) -> Usage:
        """What the launcher's descendants take together."""
        return usage.of(self.launcher.pid, launch.descendants(self.launcher.pid))

    def disk_bytes(self) -> int | None:
        """Bytes of the files that the job wrote, also those deleted and still open, and of its log.

        None where nobody can count them.
        """
        found = usage.disk_bytes(self.scratch)
        if found is None:
            return None
        return found + usage.deleted_bytes(launch.descendants(self.launcher.pid)) + self.log.stat().st_size

    def log_tail(self, limit: int = LOG_TAIL_BYTES) -> str:
        """The last `limit` bytes that the job printed."""
        with self.log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode(errors="replace")


def _popen(
    command: Sequence[str],
    spec: Mapping[str, Any],
    scratch: Path,
    log: Path,
    environment: Mapping[str, str],
    *,
    watch: int,
    frames_out: int,
    lock: int,
) -> subprocess.Popen[bytes]:
    """The launcher, with `command` and the descriptors it needs. Raises `OSError`."""
    with tempfile.TemporaryFile() as orders, log.open("wb") as output:
        orders.write(frames.encode(spec))
        orders.flush()
        orders.seek(0)
        keep = [orders.fileno(), frames_out]
        arguments = [str(watch), str(lock), ",".join(map(str, keep)), "--", *command, *map(str, keep)]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.processes.launch", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env=dict(environment),
            pass_fds=[watch, *keep, *([lock] if lock >= 0 else [])],
            process_group=0,
        )


def _environment(scratch: Path) -> dict[str, str]:
    """Only what a compiler needs: nothing of the service's settings or secrets reaches the job."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**kept, "HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
