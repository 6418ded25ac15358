"""Holds one running job to its limits, and says of what it died when somebody else killed it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from compiler.contract import job_kinds
from compiler.errors import TilewrightError
from worker import problems
from worker.limits import Limits
from worker.processes import usage
from worker.processes.usage import Usage

DISK_EVERY_S = 1.0
NEARLY = 0.9
"""A job that was killed while it held this part of its memory limit has met the limit between two looks."""
LARGE = 0.5
"""A job that holds this part of its limit is to blame where the kernel ran out of memory; a smaller one is a victim."""


class Watched(Protocol):
    """What is watched: `worker.processes.group.Group`."""

    def usage(self) -> Usage:
        """What its processes take."""
        ...

    def disk_bytes(self) -> int | None:
        """What its files take; None where nobody can count them."""
        ...


@dataclass
class Watch:
    """From the start of one job on. Its phase is as it says itself."""

    group: Watched
    limits: Limits
    kind: str
    phase: str = ""
    loaded_at: float | None = None
    started: float = field(default_factory=time.monotonic)
    _most_resident: int = 0
    _oom_kills: int = field(default_factory=lambda: usage.oom_kills())
    _disk_looked: float = 0.0

    def enter(self, phase: str) -> None:
        """The job has come to this phase. Once it has left that of loading it has read its model."""
        if phase != self.phase:
            if self.phase == problems.LOAD and self.loaded_at is None:
                self.loaded_at = time.monotonic()
            self.phase = phase

    def broken_limit(self, finish_asked_at: float) -> TilewrightError | None:
        """The limit that the job is beyond, if any.

        finish_asked_at  when its owner asked for the best found so far, by the monotonic clock; infinite if never
        """
        now = time.monotonic()
        taken = self.group.usage()
        self._most_resident = max(self._most_resident, taken.resident_bytes)
        if now - self.started > self.limits.wall_s:
            return problems.out_of_time(self.limits, self.phase)
        if self._loading:
            return self._broken_while_loading(taken.cpu_s, now - self.started) or self._broken_by_size(taken, now)
        if now - max(finish_asked_at, self.loaded_at or self.started) > self.limits.finish_s:
            return problems.out_of_finish_time(self.limits, self.phase)
        return self._broken_by_size(taken, now)

    def killed(self) -> TilewrightError:
        """Of what a job died that got a SIGKILL which this worker did not send."""
        held = f"it held {self._most_resident >> 20} MiB of memory"
        ran_out = usage.oom_kills() > self._oom_kills
        blamed = NEARLY if not ran_out else LARGE
        if self._most_resident >= blamed * self.limits.memory_bytes:
            return problems.out_of_memory(self.limits, f"the job's process was killed while {held}", self.phase)
        because = ", and the machine ran out of memory" if ran_out else ""
        return problems.killed(self.phase, f"{held}{because}")

    @property
    def _loading(self) -> bool:
        return job_kinds.of(self.kind).reads and self.loaded_at is None and self.phase in ("", problems.LOAD)

    def _broken_while_loading(self, cpu_s: float, wall_s: float) -> TilewrightError | None:
        if cpu_s > self.limits.load_s:
            return problems.out_of_load_time(self.limits, f"{self.limits.load_s:g} s of CPU")
        if wall_s > self.limits.load_wall_s:
            return problems.out_of_load_time(self.limits, f"{self.limits.load_wall_s:g} s")
        return None

    def _broken_by_size(self, taken: Usage, now: float) -> TilewrightError | None:
        if taken.resident_bytes > self.limits.memory_bytes:
            held = f"the job held {taken.resident_bytes >> 20} MiB of memory"
            return problems.out_of_memory(self.limits, held, self.phase)
        if taken.processes > self.limits.processes:
            return problems.out_of_processes(self.limits, self.phase)
        if now - self._disk_looked >= DISK_EVERY_S:
            self._disk_looked = now
            written = self.group.disk_bytes()
            if written is None or written > self.limits.disk_bytes:
                return problems.out_of_disk(self.limits, written, self.phase)
        return None
