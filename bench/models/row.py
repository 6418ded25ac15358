"""One line of the table: a model, a number of threads, and what each engine needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.cache import Compiled, Expected
from bench.engines.catalogue import OURS
from bench.race.outputs import largest_difference
from bench.race.race import Race
from bench.race.spread import Ratio, geometric_mean

STATES = ("near", "far")
"""Of the cores. Peers and plans are kept apart by them: they decide what it costs that lanes wait for each other."""
SURE_ROUNDS = 5
"""Of fewer, no interval says how sure a ratio is."""


@dataclass(frozen=True)
class Row:
    """A race that was run.

    gflop     of the model, 2 per multiply-accumulate as its nodes state them; None where that cannot be counted
    in_bytes  by engine, how many of the products that it runs it computes from bytes; empty but in int8
    """

    model: str
    precision: str
    gflop: float | None
    compiled: Compiled
    race: Race
    peers: tuple[str, ...]
    expected: Expected
    in_bytes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The fastest peer; None without peers."""
        return self.race.best(self.peers)

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

    def ratio_in(self, state: str) -> dict[str, Any]:
        """Ours over the best peer's in the rounds that began and ended in a state of the cores.

        Also which peer that was; nulls without such rounds. There is an interval from SURE_ROUNDS on.
        """
        race = self.race.during(state)
        best = race.best(self.peers) if race else None
        ratio = race.ratio(OURS, best) if race and best else None
        rounds = len(race.medians(OURS)) if race else 0
        return {
            f"ratio_{state}": ratio.value if ratio else None,
            f"ratio_{state}_interval": [ratio.low, ratio.high] if ratio and rounds >= SURE_ROUNDS else None,
            f"best_{state}": best,
            f"rounds_{state}": rounds,
        }

    def error(self, engine: str) -> float:
        """Largest error of an engine's outputs against the float64 reference.

        Relative to the largest value of the output.
        """
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
            "products_in_bytes": {engine: list(counted) for engine, counted in self.in_bytes.items()},
            "peak_gflops": 1e-9 * self.race.peak,
            "of_peak": self.of_peak,
            "state": self.race.state,
            "handover_ns": self.race.handover_ns,
            **{name: value for state in STATES for name, value in self.ratio_in(state).items()},
            "rounds": len(self.race.medians(OURS)),
            "discarded": self.race.discarded,
            "calm": self.race.calm,
            "compile_s": self.compiled.seconds,
            "records_measured": report["records_measured"],
            "kernels": report["kernels"],
        }


def means(rows: Sequence[Mapping[str, Any]], ratio: str = "ratio_to_best") -> dict[int, float]:
    """Geometric mean of the ratios to the best peer, by number of threads.

    Ratios under another name are of the rounds in one state of the cores.
    """
    ratios: dict[int, list[float]] = {}
    for row in rows:
        if row.get(ratio) is not None:
            ratios.setdefault(row["threads"], []).append(row[ratio])
    return {threads: geometric_mean(found) for threads, found in sorted(ratios.items())}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
