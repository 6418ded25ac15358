"""Working folders of jobs: `jobs/<job>-<fence>/` with `work/` (the job's own), `model`, `log` and `owner`.

`owner` names the worker and the group by process id and start time, so that `worker.reap` can tell what a
dead worker left behind from what a living one uses, although ids are used again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
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

    @property
    def work(self) -> Path:
        """Working and temporary folder of the job."""
        return self.path / "work"

    @property
    def artifact(self) -> Path:
        """Where the job is told to write its artifact."""
        return self.work / "artifact.tw"

    def show(self, model: Path) -> Path:
        """A link to the model: external data that it names is looked for here, not among the models of others."""
        link = self.path / "model"
        link.symlink_to(model.absolute())
        return link

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
        shutil.rmtree(self.path, ignore_errors=True)


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
def folder(root: Path, name: str) -> Iterator[Folder]:
    """A fresh folder below `root`'s `jobs`, removed afterwards."""
    made = Folder(prepare(root) / name)
    made.remove()
    made.path.mkdir(mode=0o700)
    made.work.mkdir(mode=0o700)
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
