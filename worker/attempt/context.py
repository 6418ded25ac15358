"""What one worker process works with; made once at start, handed to whatever needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.blobs.store import Blobs
from service.db.engine import Database
from service.jobs.accounts import quotas
from worker.devices import device
from worker.lease.status import StatusThread
from worker.lease.wakeup import Stop
from worker.limits import Limits
from worker.processes import group


@dataclass(frozen=True)
class WorkerContext:
    """A worker's identity, its stores, its limits, and whether it is going down."""

    name: str
    queues: tuple[str, ...]
    device: str
    """Name of the device in the lock and in the workers' table: `cpu`, `cuda:0`; a builder's is `NO_DEVICE`."""
    hardware: Mapping[str, Any]
    db: Database
    blobs: Blobs
    scratch: Path
    status: StatusThread
    limits: Limits = field(default_factory=Limits)
    lease_s: float = 30.0
    owner_limits: quotas.Limits = quotas.UNLIMITED
    """What an owner may have to whom the operator granted nothing else."""
    max_attempts: int = 3
    """Tries of a job that fails because of this machine's state."""
    walls: tuple[str, ...] = ()
    """Walls of the sandbox without which no job is done."""
    max_lost_leases: int = 3
    """Tries of a job whose process somebody else killed."""
    command: tuple[str, ...] = group.CHILD
    """What is started for each job, with the descriptors of its spec and frames appended."""
    fan_out: bool = True
    """Whether kernels are divided with other workers of the same device, both ways."""
    compare: bool = False
    """Whether artifacts are raced with the runtimes that are installed here, in jobs that do not say."""
    stop: Stop = field(default_factory=Stop)

    @property
    def measures(self) -> bool:
        """Whether it holds the device for each job; a builder measures nothing."""
        return self.device != device.NO_DEVICE
