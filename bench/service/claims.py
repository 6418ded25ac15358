"""From a request to the claim of an idle worker: `python -m bench service --claims`."""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from tilewright import Client

IDLE_S = 0.3
"""Before each request, so that the worker has nothing to do and sleeps."""


@dataclass(frozen=True)
class Claims:
    """Milliseconds from the row of a job to its claim, by the clock of the database; `jobs` of them."""

    jobs: int
    p50_ms: float
    worst_ms: float


def claims(client: Client, model: Path, jobs: int) -> Claims:
    """Compile a small model again and again, each time when the worker is idle."""
    waited = []
    for _ in range(jobs):
        time.sleep(IDLE_S)
        ended = client.wait(client.compile(model, {"tuning_budget_s": 0}, fresh=True)).require_success()
        waited.append(1e3 * float(ended.said["queue_seconds"]))
    return Claims(jobs, statistics.median(waited), max(waited))


def up(data: Path) -> int:
    """The process of the `tilewright up` whose data folder this is."""
    return int(json.loads((data / "ready.json").read_text())["pid"])


def below(up: int, part: bytes) -> int:
    """The child of process `up` with this in its command. Raises `ProcessLookupError`."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()[1])
            command = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == up and any(part in word for word in command[:5]):
            return int(entry)
    raise ProcessLookupError(f"no {part.decode()} below process {up}")
