"""Which of several artifacts to take, from a benchmark of them and what their proofs found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.benchmark import Benchmark, Comparison, Timed


@dataclass(frozen=True)
class Choice:
    """What is recommended, and why.

    artifact  None where nothing reaches what was asked for; then `nearest` is the one that misses by least
    because   one sentence for each reason
    evidence  the benchmark, and by artifact its median and tail in seconds and its largest relative error
    """

    artifact: str | None
    nearest: str
    because: tuple[str, ...]
    evidence: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "recommended": self.artifact,
            "nearest": self.nearest,
            "because": [*self.because],
            "evidence": dict(self.evidence),
        }


def largest_error(receipt: Mapping[str, Any]) -> float:
    """The largest relative error of an output, by a receipt (`Client.receipt`); infinite where nothing was proved."""
    errors = (receipt["receipt"].get("report") or {}).get("errors") or ()
    return max((float(one["max_relative"]) for one in errors), default=math.inf)


def recommend(
    found: Benchmark,
    errors: Mapping[str, float],
    latency_s: float | None = None,
    error: float | None = None,
) -> Choice:
    """The artifact to take of those that were timed against each other.

    latency_s  what 99 of 100 runs must stay below: of those that do the one with the smallest error is taken. Without
               it the fastest is, or a more exact one from which it cannot be told apart
    error      the largest relative error that is accepted; `errors` has that of each artifact

    Raises ValueError without an artifact.
    """
    if not found.artifacts:
        raise ValueError("a benchmark of no artifacts")
    timed = {one.artifact: one for one in found.artifacts}
    evidence = {
        "benchmark": found.id,
        "artifacts": {
            name: {"median_s": one.median_s, "p99_s": one.p99_s, "max_relative": _finite(errors[name])}
            for name, one in timed.items()
        },
        "verdicts": [one.verdict for one in found.comparisons],
    }
    exact = [one for name, one in timed.items() if error is None or errors[name] <= error]
    if not exact:
        nearest = min(timed, key=lambda name: errors[name])
        said = f"none has an error of at most {error:g}: the smallest is {errors[nearest]:.2g}"
        return Choice(None, nearest, (said,), evidence)
    choice = _chosen(exact, found.comparisons, errors, latency_s, evidence)
    estimates = tuple(
        f"the time of {one.target} is {one.said['estimated']}, not measured" for one in exact if "estimated" in one.said
    )
    return replace(choice, because=(*choice.because, *estimates))


def _chosen(
    exact: list[Timed],
    comparisons: tuple[Comparison, ...],
    errors: Mapping[str, float],
    latency_s: float | None,
    evidence: Mapping[str, Any],
) -> Choice:
    if latency_s is None:
        return _fastest(exact, comparisons, errors, evidence)
    quick = [one for one in exact if one.p99_s <= latency_s]
    if not quick:
        best = min(exact, key=lambda one: one.p99_s)
        said = f"none stays below {1e3 * latency_s:g} ms in 99 of 100 runs: the best takes {1e3 * best.p99_s:.3g} ms"
        return Choice(None, best.artifact, (said,), evidence)
    taken = min(quick, key=lambda one: (errors[one.artifact], one.median_s))
    reasons = (
        f"99 of 100 runs take at most {1e3 * taken.p99_s:.3g} ms, of {1e3 * latency_s:g} ms asked for",
        f"of {len(quick)} that do it has the smallest error, {errors[taken.artifact]:.2g}",
    )
    return Choice(taken.artifact, taken.artifact, reasons, evidence)


def _fastest(
    exact: list[Timed], comparisons: tuple[Comparison, ...], errors: Mapping[str, float], evidence: Mapping[str, Any]
) -> Choice:
    first = min(exact, key=lambda one: one.median_s)
    alike = {first.artifact}
    for one in comparisons:
        if one.faster is None and first.artifact in (one.a, one.b):
            alike |= {one.a, one.b}
    rivals = [one for one in exact if one.artifact in alike]
    taken = min(rivals, key=lambda one: (errors[one.artifact], one.median_s))
    reasons = [f"it has the smallest median, {1e3 * first.median_s:.3g} ms"]
    if taken is not first:
        reasons = [
            f"its {1e3 * taken.median_s:.3g} ms cannot be told from the smallest median, {1e3 * first.median_s:.3g} ms",
            f"its error is smaller, {errors[taken.artifact]:.2g} and not {errors[first.artifact]:.2g}",
        ]
    return Choice(taken.artifact, taken.artifact, tuple(reasons), evidence)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None
