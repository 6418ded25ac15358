"""Settings of workers beside the service's own (`service.config`), from the same `TILEWRIGHT_` variables."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.limits import Limits

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Of the container that this process is in, for both versions of control groups."""


def _most_of_memory(cgroup_limits: Sequence[str] = _CGROUP_LIMITS) -> int:
    """Four fifths of what the machine, or the container around this process, has."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in cgroup_limits:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            present = min(present, int(Path(name).read_text()))
    return present * 4 // 5


class WorkerSettings(BaseSettings):
    """One frozen object, read once at start."""

    model_config = SettingsConfigDict(env_prefix="TILEWRIGHT_", frozen=True, extra="ignore")

    scratch_dir: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}")
    """Folder of the working folders of jobs, and of the device locks; the same for all workers of a machine."""
    look_every_s: float = Field(default=3.0, gt=0)
    """How often an idle worker looks into the database without being rung."""
    seen_every_s: float = Field(default=3.0, gt=0)
    """How often a worker reports that it is alive."""
    fan_out: bool = False
    """Whether kernels of a compilation are divided with other workers of the same device, both ways."""
    compare: bool = True
    """Whether artifacts are raced with the runtimes that are installed here, in jobs whose option `compare` is null."""
    max_attempts: int = Field(default=3, gt=0)
    """How often a job is tried that fails because of this machine's state, such as a full disk."""

    job_wall_s: float = Field(default=3600.0, gt=0)
    job_load_s: float = Field(default=60.0, gt=0)
    job_finish_s: float = Field(default=300.0, gt=0)
    job_memory_bytes: int = Field(default_factory=_most_of_memory, gt=0)
    job_file_bytes: int = Field(default=16 << 30, gt=0)
    job_disk_bytes: int = Field(default=32 << 30, gt=0)
    job_processes: int = Field(default=256, gt=0)

    @property
    def limits(self) -> Limits:
        """What one job may take."""
        return Limits(
            wall_s=self.job_wall_s,
            load_s=self.job_load_s,
            finish_s=self.job_finish_s,
            memory_bytes=self.job_memory_bytes,
            file_bytes=self.job_file_bytes,
            disk_bytes=self.job_disk_bytes,
            processes=self.job_processes,
        )
