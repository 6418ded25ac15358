"""All at once: states read at a fixed rate, two models compiling, and hostile callers: `bench service --proof`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.service import hostile, reads
from bench.service.reads import Reads
from bench.service.wire import Server
from tilewright import Client
from tilewright.errors import ServerUnreachable

CLAIM_WITHIN_S = 120.0
"""From submitting two compilations until both run."""
STOP_PATIENCE_S = 20.0
GOAL_MS = 50.0
"""What the 99th of 100 reads may take."""
POLL_S = 0.1


@dataclass(frozen=True)
class Proof:
    """What readers got while `compiling` jobs ran from before the first read until after the last one.

    before_mib, peak_mib  of the API's memory
    hostile               what the hostile callers did and were answered, counted
    """

    reads: Reads
    compiling: int
    before_mib: float
    peak_mib: float
    hostile: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether 99 of 100 reads took no longer than `GOAL_MS` while two models compiled."""
        return self.compiling == 2 and self.reads.p99_ms <= GOAL_MS


def prove(
    client: Client, pid: int, honest: Server, other: Server, jobs: Sequence[str], busy: Sequence[str], seconds: float
) -> Proof:
    """Read states of `jobs` while those of `busy`, which were submitted, compile and `other` is hostile.

    `pid` is the API's process. Raises `ServerUnreachable` when the jobs do not begin.
    """
    end = time.monotonic() + CLAIM_WITHIN_S
    while _running(client, busy) < len(busy):
        if time.monotonic() > end or any(client.job(job).ended for job in busy):
            raise ServerUnreachable("the compilations did not run side by side", fix="see the logs of the workers")
        time.sleep(POLL_S)
    with hostile.attacked(other, pid, seconds) as attack:
        found = reads.at_rate(honest, jobs, reads.RATE, seconds)
        compiling = _running(client, busy)
    return Proof(found, compiling, attack.before_mib, attack.peak_mib, attack.heard)


@contextlib.contextmanager
def second_worker(pid: int, data: Path) -> Iterator[None]:
    """One more worker that compiles for this machine, as a second machine would: with a device lock of its own.

    It is given the environment of the API, whose process is `pid`.
    """
    whole = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    known = dict(os.fsdecode(line).partition("=")[::2] for line in whole if line)
    environment = {**known, "TILEWRIGHT_SCRATCH_DIR": str(data / "scratch-2")}
    with (data / "worker-2.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker", "--queue", "cpu"], env=environment, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_PATIENCE_S)
            process.kill()
            process.wait()


def _running(client: Client, jobs: Sequence[str]) -> int:
    return sum(client.job(job).state == "RUNNING" for job in jobs)
