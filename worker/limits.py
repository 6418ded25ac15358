"""How much one job may take. The kernel holds a process to its part; `worker.group` watches the sum."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of one job; all are positive.

    wall_s        seconds from start to end
    load_s        seconds until the model is read and checked: a model that hangs a parser must not take an hour
    memory_bytes  resident, of all its processes together
    file_bytes    of any one file it writes
    processes     alive at once
    """

    wall_s: float = 3600.0
    load_s: float = 60.0
    memory_bytes: int = 16 * GIB
    file_bytes: int = 16 * GIB
    processes: int = 256

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Limits:
        """Limits from their `to_json`; fields that are missing keep their defaults. Raises `TypeError` for others."""
        return cls(**plain)

    @property
    def cpu_s(self) -> int:
        """CPU seconds of one process: every core for the whole time, and a little for the wall clock to win."""
        return math.ceil(self.wall_s * (os.cpu_count() or 1)) + 10


def hold_process(limits: Limits, *, gpu: bool = False) -> None:
    """Put this process, and each one it starts, under the kernel's limits.

    Address space is twice the resident limit and 16 GiB for thread stacks, arenas and mapped weights: it turns an
    absurd allocation into a `MemoryError`; the honest limit is the watch over resident memory. With a `gpu` it has no
    limit: CUDA reserves addresses for all memory of the machine and the device, and uses few of them.
    """
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_CPU, limits.cpu_s)
    lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    if not gpu:
        lower(resource.RLIMIT_AS, 2 * limits.memory_bytes + 16 * GIB)
    lower(resource.RLIMIT_NOFILE, 4096)
    # The kernel counts every thread of the user, so the job's share lies on top of what runs now.
    lower(resource.RLIMIT_NPROC, _threads_now() + 8 * limits.processes)


def lower(kind: int, wanted: int) -> None:
    """Set one `RLIMIT_...` of this process, soft and hard, as far down as `wanted`."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(kind, (wanted, wanted))


def _threads_now() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 4096
