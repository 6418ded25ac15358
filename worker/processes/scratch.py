"""Working folders of jobs: `jobs/<job>-<fence>/` with `work/` (the job's own), `inputs/`, `answers/`, `log`, `owner`.

`owner` names the worker and the group by process id and start time, so that `worker.processes.reap` can see what a
dead worker left behind from what a living one uses, although ids are used again.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same id."""

    pid: int
    started: int
    """Clock ticks after boot; 0 where there is no /proc."""

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this id now. Raises `ProcessLookupError`."""
        return cls(pid, _started(pid))

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie counts as dead."""
        try:
            return _started(self.pid) == self.started
        except ProcessLookupError:
            return False


@dataclass(frozen=True)
class Folder:
    """The folder of one attempt at one job."""

    path: Path

    @classmethod
    def of(cls, root: Path, name: str) -> Folder:
        """The folder that an attempt of this name has below `root`."""
        return cls(root / "jobs" / name)

    @property
    def work(self) -> Path:
        """Working and temporary folder of the job."""
        return self.path / "work"

    @property
    def inputs(self) -> Path:
        """Where the job finds what it works with, and nothing of others."""
        return self.path / "inputs"

    @property
    def kept(self) -> Path:
        """What workers keep for all jobs, beside their folders; no job may write there."""
        return self.path.parent.parent / "kept"

    @property
    def answers(self) -> Path:
        """Where the worker answers what the job asks; the job may read there, and not write."""
        return self.path / "answers"

    @property
    def output(self) -> Path:
        """Where the job is to write its artifact, or its arrays."""
        return self.work / "output"

    @property
    def finish(self) -> Path:
        """Once it exists, the job is to stop measuring."""
        return self.work / "finish"

    def ask_to_finish(self) -> None:
        """Make `finish`; the job may have put anything there. A full disk is met again at the next call."""
        with contextlib.suppress(OSError):
            os.close(os.open(self.finish, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def sign(self, worker: Process, group: Process) -> None:
        """Say who uses this folder."""
        (self.path / "owner").write_text(json.dumps({"worker": vars(worker), "group": vars(group)}))

    def signed(self) -> tuple[Process, Process] | None:
        """The worker and the group that use it; None before it was signed."""
        try:
            plain: dict[str, Any] = json.loads((self.path / "owner").read_text())
            return Process(**plain["worker"]), Process(**plain["group"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Delete it with all that the job left."""
        with contextlib.suppress(OSError):
            _remove(self.path)


def _remove(root: Path) -> None:
    """Delete a folder, however deep its folders lie in each other and whatever their modes are; links are not followed.

    What lies below the first level is moved up to it, so that no depth asks for recursion or for a path too long.
    Raises `OSError`.
    """
    root.chmod(0o700)
    while entries := list(os.scandir(root)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, 0o700)
                    os.rename(inner.path, root / uuid.uuid4().hex)
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
    root.rmdir()


def prepare(root: Path) -> Path:
    """Make `root` (mode 0700) and its `jobs`; the latter. Raises `PermissionError` when `root` is another user's."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{root} is not a folder of this user; set TILEWRIGHT_SCRATCH_DIR to one")
    jobs = root / "jobs"
    jobs.mkdir(mode=0o700, exist_ok=True)
    return jobs


@contextlib.contextmanager
def folder(made: Folder) -> Iterator[Folder]:
    """The folder, fresh, removed afterwards. Raises `OSError`."""
    prepare(made.path.parent.parent)
    made.remove()
    made.path.mkdir(mode=0o700)
    made.work.mkdir(mode=0o700)
    made.inputs.mkdir(mode=0o700)
    made.answers.mkdir(mode=0o700)
    try:
        yield made
    finally:
        made.remove()


def _started(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        if not Path("/proc/self").exists():
            os.kill(pid, 0)
            return 0
        raise ProcessLookupError(pid) from None
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError(pid)
    return int(fields[19])
