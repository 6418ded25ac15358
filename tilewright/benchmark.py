"""What a benchmark on the server found. Times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tilewright import notebook
from tilewright.wire import Work


@dataclass(frozen=True)
class Timed:
    """One artifact of a benchmark.

    median_s p10_s p90_s p99_s  of single runs, inputs and outputs in place
    first_load_s warm_load_s    opening it for the first time, and again
    copy_in_s copy_out_s        of all inputs and outputs; no part of the runs
    samples_s                   single runs in the order taken
    kernels                     call, family, nodes, seconds, share of each, run one lane at a time; empty when not
                                profiled
    stream                      many inferences in flight on several devices: per_second, period_s,
                                predicted_period_s, devices (name, target, busy), parts (device, kernels, seconds,
                                share) and bubble; None for one device
    """

    artifact: str
    target: str
    lanes: int
    runs: int
    median_s: float
    p10_s: float
    p90_s: float
    p99_s: float
    first_load_s: float
    warm_load_s: float
    copy_in_s: float
    copy_out_s: float
    samples_s: tuple[float, ...] = field(repr=False)
    kernels: tuple[Mapping[str, Any], ...] = field(repr=False)
    stream: Mapping[str, Any] | None = field(repr=False)
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Timed:
        """Raises KeyError when the report is of another form."""
        names = (
            "artifact",
            "target",
            "lanes",
            "runs",
            "median_s",
            "p10_s",
            "p90_s",
            "p99_s",
            "copy_in_s",
            "copy_out_s",
        )
        return cls(
            **{name: said[name] for name in names},
            first_load_s=said["load"]["first_s"],
            warm_load_s=said["load"]["warm_s"],
            samples_s=tuple(said.get("samples_s") or ()),
            kernels=tuple(said.get("kernels") or ()),
            stream=said.get("stream"),
            said=said,
        )

    def cost(self, hour: float) -> float:
        """What a million inferences cost, one after the other, where an hour of the device costs `hour`."""
        return 1e6 * self.median_s / 3600.0 * hour


@dataclass(frozen=True)
class Comparison:
    """Two artifacts against each other.

    ratio           b's seconds over a's, between `low` and `high` with `confidence`
    faster          "a", "b", or None if it cannot be decided
    verdict         "a is faster by 1.23x ± 0.02" or "cannot tell"
    """

    a: str
    b: str
    ratio: float
    low: float
    high: float
    confidence: float
    faster: str | None
    verdict: str
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Comparison:
        """Raises KeyError when the report is of another form."""
        names = ("a", "b", "ratio", "low", "high", "confidence", "faster", "verdict")
        return cls(**{name: said[name] for name in names}, said=said)


@dataclass(frozen=True)
class Benchmark(Work):
    """Artifacts timed against each other on one device; everything but the state is empty until it has SUCCEEDED.

    artifacts    in the order asked for
    comparisons  of every two artifacts of equal inputs and outputs
    notices      what to know before believing the figures
    machine      target, hardware, cores, and its state before, during and after
    sample       the name of the sample on which they were timed; empty: numbers that were drawn
    """

    path: ClassVar[str] = "/benchmarks"

    artifacts: tuple[Timed, ...]
    comparisons: tuple[Comparison, ...]
    notices: tuple[str, ...]
    machine: Mapping[str, Any] = field(repr=False)
    sample: str

    @classmethod
    def _fields(cls, said: Mapping[str, Any]) -> dict[str, Any]:
        report = said.get("report") or {}
        return {
            **super()._fields(said),
            "artifacts": tuple(map(Timed.from_json, report.get("artifacts") or ())),
            "comparisons": tuple(map(Comparison.from_json, report.get("comparisons") or ())),
            "notices": tuple(report.get("notices") or ()),
            "machine": report.get("machine") or {},
            "sample": (report.get("inputs") or {}).get("name") or "",
        }

    def _repr_html_(self) -> str:
        """For notebooks."""
        if not self.artifacts:
            return notebook.facts({"benchmark": self.id, "state": self.state})
        rows = [
            (one.artifact, one.target, *map(notebook.seconds, (one.median_s, one.p10_s, one.p90_s)), one.runs)
            for one in self.artifacts
        ]
        said = [f"{one.a} against {one.b}: {one.verdict}" for one in self.comparisons]
        shown = notebook.table(("artifact", "target", "median", "p10", "p90", "runs"), rows)
        return shown + notebook.lines([*said, *(f"note: {one}" for one in self.notices)])
