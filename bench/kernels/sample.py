"""What a sample kernel took."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.engines.catalogue import OURS
from bench.kernels.groups import Plan
from bench.kernels.profile import Profile
from bench.models.row import Row
from bench.race.spread import Ratio, Spread
from bench.subject import Subject
from bench.zoo.operators import Sample, model_of


@dataclass(frozen=True)
class Sampled:
    """What a sample took.

    us        of the whole run by engine: with the call, and changes of layout at the model's borders
    alone_us  of the longest layer by engine, which is the kernel
    """

    name: str
    what: str
    gflop: float
    us: Mapping[str, Spread]
    ratio: Ratio | None
    alone_us: Mapping[str, float]
    peak: float
    tile: str
    error: float

    @property
    def gflops(self) -> float:
        """Of our kernel alone."""
        return 1e6 * self.gflop / self.alone_us[OURS]

    @property
    def of_peak(self) -> float:
        """Of the core's multiply-adds."""
        return 1e9 * self.gflops / self.peak

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "gflops": self.gflops, "of_peak": self.of_peak}


def build(sample: Sample, folder: Path) -> Subject:
    """A sample as a file in `folder`."""
    file = folder / f"{sample.name}.onnx"
    file.write_bytes(model_of(sample).SerializeToString(deterministic=True))
    return Subject(sample.name, "sample", file)


def sampled(row: Row, profile: Profile, what: str, calls: Sequence[Mapping[str, Any]]) -> Sampled:
    """A race and a profile of one sample brought together. `calls` are those of our artifact's plan."""
    assert row.gflop is not None, "samples are of operators that can be counted"
    longest = {engine: statistics.median(map(_longest_s, plans)) for engine, plans in profile.plans.items()}
    ours = [layer.seconds for layer in profile.plans[OURS][0]]
    return Sampled(
        row.model,
        what,
        row.gflop,
        {engine: _in_us(row.race.ms(engine)) for engine in profile.plans},
        row.ratio,
        {engine: 1e6 * seconds for engine, seconds in longest.items()},
        profile.peak,
        calls[ours.index(max(ours))]["tile"],
        row.error(OURS),
    )


def _longest_s(plan: Plan) -> float:
    return max(layer.seconds for layer in plan)


def _in_us(ms: Spread) -> Spread:
    return Spread(1e3 * ms.median, 1e3 * ms.p10, 1e3 * ms.p90, ms.samples)
