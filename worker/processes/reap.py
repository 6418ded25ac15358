"""Clear away what workers that died have left on this machine: processes and working folders."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from worker.processes import leftovers, scratch

_UNSIGNED_FOR_S = 60.0


def reap(root: Path) -> int:
    """Kill groups and remove folders of dead workers; the number of folders removed.

    A launcher kills its group by itself when its worker dies; what is left here was stopped, or has lost its launcher.
    """
    removed = 0
    for path in scratch.prepare(root).iterdir():
        left = scratch.Folder(path)
        signed = left.signed()
        if signed is None:
            # Its worker is about to sign it, or died before.
            if _age(path) < _UNSIGNED_FOR_S:
                continue
        else:
            worker, group = signed
            if worker.alive:
                continue
            if group.alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group.pid, signal.SIGKILL)
            leftovers.end(path, group.pid, group.started)
        left.remove()
        removed += 1
    return removed


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
