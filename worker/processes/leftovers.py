"""What is left of a job whose launcher was killed and could not sweep.

It is found by the folder in its environment, or by its group.

A job that wants to stay can shed both, in a session of its own and with an empty environment; only the launcher,
to which the kernel hands such orphans, finds those. Where there is no /proc nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_SWEEPS = 200
_SWEEP_PAUSE_S = 0.01


def end(folder: Path, group: int, started: int = 0) -> None:
    """Kill the processes of a job, until none is left or they cannot be killed; arguments as for `processes_of`."""
    for _ in range(_SWEEPS):
        left = processes_of(folder, group, started)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(_SWEEP_PAUSE_S)


def processes_of(folder: Path, group: int, started: int = 0) -> list[int]:
    """Ids of the living processes of a job, other than this process.

    folder   the job's own (`worker.processes.scratch.Folder.path`): its processes have it in their environments, unless
             they took it out
    group    id of its process group and session, which may have become another's since
    started  when its launcher was (clock ticks after boot): what is older belongs to others
    """
    mark = os.fsencode(folder.absolute()) + b"/"
    found = []
    for name in _names():
        pid = int(name)
        try:
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if pid == os.getpid() or fields[0] in (b"Z", b"X") or int(fields[19]) < started:
            continue
        environment = _environment(pid)
        if mark in environment or (group in (int(fields[2]), int(fields[3])) and not environment):
            found.append(pid)
    return found


def _names() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    """Empty where it cannot be read: the child of a job hides itself, and so do its forks."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
