"""How much one job may take. The kernel holds a process to its part; `worker.processes.group` watches the sum."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

GIB = 1 << 30
LOAD_PATIENCE = 5
"""Wall seconds for each second of CPU that reading a model may take."""
BEHIND_OTHERS = 10
"""How nice a process is that reads models, to compile them or for a preflight: where an API shares its cores, answers
go first, and owners who ask differently get equal shares. What is timed for a user is not nice."""
LAST_WORDS_S = 5
"""CPU seconds between SIGXCPU and SIGKILL. Were there none, the kernel would send SIGKILL alone."""


@dataclass(frozen=True)
class Limits:
    """Limits of one job; all are positive.

    wall_s        seconds from start to end
    load_s        seconds of CPU until the model is read and checked: a model that hangs a parser must not take an hour,
                  and what else runs on the machine must not count against it
    finish_s      seconds until the end once its owner wants the best found so far, or once the model is read if later
    memory_bytes  resident, of all its processes together
    file_bytes    of any one file it writes
    disk_bytes    of all files in its folder together
    processes     alive at once
    """

    wall_s: float = 3600.0
    load_s: float = 60.0
    finish_s: float = 300.0
    memory_bytes: int = 16 * GIB
    file_bytes: int = 16 * GIB
    disk_bytes: int = 32 * GIB
    processes: int = 256

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Limits:
        """Limits from their `to_json`; fields that are missing keep their defaults. Raises `TypeError` for others."""
        return cls(**plain)

    @property
    def load_wall_s(self) -> float:
        """Wall seconds until the model is read, on a busy machine too: for what waits for ever and uses no CPU."""
        return min(LOAD_PATIENCE * self.load_s, self.wall_s)

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
    lower(resource.RLIMIT_CPU, limits.cpu_s, hard=limits.cpu_s + LAST_WORDS_S)
    lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    if not gpu:
        lower(resource.RLIMIT_AS, 2 * limits.memory_bytes + 16 * GIB)
    lower(resource.RLIMIT_NOFILE, 4096)
    # The kernel counts every thread of the user, so the job's share lies on top of what runs now.
    lower(resource.RLIMIT_NPROC, _threads_now() + 8 * limits.processes)


def lower(kind: int, wanted: int, *, hard: int | None = None) -> None:
    """Set one `RLIMIT_...` of this process as far down as `wanted`, and what it may be raised to (`wanted` too)."""
    _, present = resource.getrlimit(kind)
    wanted, most = (
        limit if present == resource.RLIM_INFINITY else min(limit, present)
        for limit in (wanted, wanted if hard is None else hard)
    )
    resource.setrlimit(kind, (wanted, most))


def _threads_now() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 4096
