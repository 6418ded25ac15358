"""Processes of this machine, as tests look at them."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether there is such a process; zombies are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
