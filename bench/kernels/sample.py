"""Ten kernels of well-known networks, each a model of one operator."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.engines.catalogue import OURS
from bench.kernels.groups import Plan
from bench.kernels.profile import Profile
from bench.models.row import Row
from bench.race.spread import Ratio, Spread
from bench.subject import Subject
from bench.zoo.builder import GraphBuilder, Value


@dataclass(frozen=True)
class Sample:
    """One operator on one input of a shape."""

    name: str
    shape: tuple[int, ...]
    operator: Callable[[GraphBuilder, Value], Value]


SAMPLES: tuple[Sample, ...] = (
    Sample("conv3x3_64_56", (1, 64, 56, 56), lambda g, x: g.conv(x, 64, 3)),
    Sample("conv3x3_128_28", (1, 128, 28, 28), lambda g, x: g.conv(x, 128, 3)),
    Sample("conv3x3_256_14", (1, 256, 14, 14), lambda g, x: g.conv(x, 256, 3)),
    Sample("conv3x3_512_7", (1, 512, 7, 7), lambda g, x: g.conv(x, 512, 3)),
    Sample("conv3x3s2_128_28", (1, 64, 56, 56), lambda g, x: g.conv(x, 128, 3, 2)),
    Sample("conv7x7s2_64_112", (1, 3, 224, 224), lambda g, x: g.conv(x, 64, 7, 2)),
    Sample("conv1x7_192_17", (1, 192, 17, 17), lambda g, x: g.conv(x, 192, (1, 7))),
    Sample("conv1x1_256_14", (1, 1024, 14, 14), lambda g, x: g.conv(x, 256, 1)),
    Sample("depthwise3x3_144_56", (1, 144, 56, 56), lambda g, x: g.conv(x, 144, 3, groups=144)),
    Sample("matmul_197_768_3072", (197, 768), lambda g, x: g.dense(x, 3072, bias=False)),
)
"""Of ResNet-18 and -50, Inception V3, MobileNet V2 and ViT-Base."""


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
    builder = GraphBuilder(sample.name)
    builder.output("y", sample.operator(builder, builder.input("x", sample.shape)))
    file = folder / f"{sample.name}.onnx"
    file.write_bytes(builder.finish().SerializeToString(deterministic=True))
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
