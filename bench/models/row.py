"""One line of the table: a model, a number of threads, and what each engine needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cache import Compiled, Expected
from bench.engines.catalogue import OURS
from bench.race.outputs import largest_difference
from bench.race.race import Race
from bench.race.spread import Ratio, geometric_mean


@dataclass(frozen=True)
class Row:
    """A race that was run.

    gflop  of the model, 2 per multiply-accumulate as its nodes state them; None where that cannot be counted
    """

    model: str
    precision: str
    gflop: float | None
    compiled: Compiled
    race: Race
    peers: tuple[str, ...]
    expected: Expected

    @property
    def best(self) -> str | None:
        """The peer with the least median; None without peers."""
        return min(self.peers, key=lambda peer: self.race.ms(peer).median, default=None)

    @property
    def ratio(self) -> Ratio | None:
        """Ours over the best peer's."""
        return self.race.ratio(OURS, self.best) if self.best else None

    @property
    def of_peak(self) -> float | None:
        """The model's fp32 operations per second over what the race's cores reach at nothing but multiply-adds.

        An algorithm that needs fewer operations than the model states, such as Winograd's, may take this above 1.
        """
        return self.gflop * 1e12 / self.race.ms(OURS).median / self.race.peak if self.gflop is not None else None

    def error(self, engine: str) -> float:
        """Largest error of an engine's outputs against the float64 reference, relative to the largest value of the output."""
        return largest_difference(self.race.outputs[engine], self.expected.outputs)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; an error without limit is null."""
        engines = (OURS, *self.peers)
        errors = {engine: _finite(self.error(engine)) for engine in engines}
        ratio, report = self.ratio, self.compiled.report
        return {
            "model": self.model,
            "threads": self.race.threads,
            "precision": self.precision,
            "gflop": self.gflop,
            "ours_ms": self.race.ms(OURS).median,
            "peers": {peer: self.race.ms(peer).median for peer in self.peers},
            "ratio_to_best": ratio.value if ratio else None,
            "max_rel_error": errors[OURS],
            "best": self.best,
            "ratio_interval": [ratio.low, ratio.high] if ratio else None,
            "spread_ms": {engine: [self.race.ms(engine).p10, self.race.ms(engine).p90] for engine in engines},
            "errors": errors,
            "peak_gflops": 1e-9 * self.race.peak,
            "of_peak": self.of_peak,
            "state": self.race.state,
            "handover_ns": self.race.handover_ns,
            "rounds": len(self.race.medians(OURS)),
            "discarded": self.race.discarded,
            "calm": self.race.calm,
            "compile_s": self.compiled.seconds,
            "records_measured": report["records_measured"],
            "kernels": report["kernels"],
        }


def means(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Geometric mean of the ratios to the best peer, by number of threads."""
    ratios: dict[int, list[float]] = {}
    for row in rows:
        if row.get("ratio_to_best") is not None:
            ratios.setdefault(row["threads"], []).append(row["ratio_to_best"])
    return {threads: geometric_mean(found) for threads, found in sorted(ratios.items())}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
