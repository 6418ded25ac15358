"""What each step of the service costs, as `python -m tests.scale` measured it."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MEASURED = Path(__file__).with_name("times.json")


@dataclass(frozen=True)
class Times:
    """Processor seconds of PostgreSQL for each step, and the bytes that a job leaves.

    commit_s  how long a commit takes, during which what it wrote is locked
    at_depth  of steps whose cost depends on how many jobs wait: by that number, ascending
    stored    bytes that a job leaves in the database, with its log of events and its tuning records
    log       bytes of the log of writes that it makes
    """

    seconds: Mapping[str, float]
    at_depth: Mapping[str, tuple[tuple[int, float], ...]]
    commit_s: float
    stored: float
    log: float

    @classmethod
    def load(cls, path: Path = MEASURED) -> Times:
        """From the file that `python -m tests.scale` printed. Raises OSError, ValueError, KeyError."""
        found = json.loads(path.read_text())
        plain: dict[str, float] = {}
        deep: dict[str, list[tuple[int, float]]] = {}
        for name, one in found["seconds"].items():
            step, at, depth = name.partition(" at ")
            if at:
                deep.setdefault(step, []).append((int(depth), one["database_s"]))
            else:
                plain[step] = one["database_s"]
        left = found["bytes_per_job"]
        for step, points in deep.items():
            if step in plain:
                points.append((0, plain[step]))
        at_depth = {step: tuple(sorted(points)) for step, points in deep.items()}
        return cls(plain, at_depth, found["commit_s"], left["stored"], left["log"])

    def of(self, step: str, waiting: int = 0) -> float:
        """Seconds of one step while so many jobs wait: on the line through the two nearest measurements."""
        points = self.at_depth.get(step)
        if points is None:
            return self.seconds[step]
        at = bisect_left(points, (waiting, 0.0))
        if at == 0:
            return points[0][1]
        (left, low), (right, high) = points[max(0, min(at, len(points) - 1) - 1)], points[min(at, len(points) - 1)]
        return low + (high - low) * (waiting - left) / (right - left)
