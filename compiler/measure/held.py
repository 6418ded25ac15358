"""How much memory this process holds."""

from __future__ import annotations

import resource
from pathlib import Path

STATM = Path("/proc/self/statm")
"""Linux: sizes in pages, the second of them what is resident (proc_pid_statm(5))."""


def resident_bytes(statm: Path = STATM) -> int | None:
    """Resident memory, with the pages of mapped files that were touched; None where the system does not say."""
    try:
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def grown(before: int | None, statm: Path = STATM) -> int | None:
    """What came to `before` since then, at least nothing; None where it is not known."""
    now = resident_bytes(statm)
    return None if before is None or now is None else max(now - before, 0)
