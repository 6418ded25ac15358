from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.tilewright.fake_server import ARTIFACT, BENCHMARK, OTHER, timed
from tilewright.benchmark import Benchmark, Comparison, Timed
from tilewright.recommend import largest_error, recommend

THIRD = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a99"
ERRORS = {ARTIFACT: 1e-2, OTHER: 1e-6, THIRD: 1e-4}
MEDIANS = {ARTIFACT: 0.004, OTHER: 0.008, THIRD: 0.0041}


def benchmark(cannot_tell: bool = False) -> Benchmark:
    made = tuple(Timed.from_json(timed(name, median)) for name, median in MEDIANS.items())
    faster = None if cannot_tell else "a"
    verdict = "cannot tell" if cannot_tell else "a is faster by 1.02x ± 0.01"
    against = Comparison(ARTIFACT, THIRD, 1.02, 0.99 if cannot_tell else 1.01, 1.03, 0.95, faster, verdict, {})
    whole: Any = object.__new__(Benchmark)
    for name, value in {"id": BENCHMARK, "artifacts": made, "comparisons": (against,)}.items():
        object.__setattr__(whole, name, value)
    found: Benchmark = whole
    return found


def test_the_fastest_is_recommended_with_its_evidence() -> None:
    choice = recommend(benchmark(), ERRORS)
    assert choice.artifact == ARTIFACT
    assert choice.evidence["benchmark"] == BENCHMARK
    assert choice.evidence["artifacts"][ARTIFACT] == {
        "median_s": 0.004,
        "p99_s": pytest.approx(0.0052),
        "max_relative": 1e-2,
    }
    assert "smallest median, 4 ms" in choice.because[0]


def test_what_cannot_be_told_from_the_fastest_and_is_more_exact_is_preferred() -> None:
    choice = recommend(benchmark(cannot_tell=True), ERRORS)
    assert choice.artifact == THIRD
    assert "error is smaller, 0.0001 and not 0.01" in choice.because[1]


def test_an_error_that_is_too_large_is_no_choice() -> None:
    assert recommend(benchmark(), ERRORS, error=1e-3).artifact == THIRD
    none = recommend(benchmark(), ERRORS, error=1e-9)
    assert (none.artifact, none.nearest) == (None, OTHER)


def test_of_those_that_reach_a_latency_the_most_exact_is_taken() -> None:
    assert recommend(benchmark(), ERRORS, latency_s=0.006).artifact == THIRD
    assert recommend(benchmark(), ERRORS, latency_s=0.02).artifact == OTHER
    none = recommend(benchmark(), ERRORS, latency_s=0.001)
    assert (none.artifact, none.nearest) == (None, ARTIFACT)
    assert "the best takes 5.2 ms" in none.because[0]


def receipt(error: float) -> dict[str, Any]:
    return {"receipt": {"report": {"errors": [{"output": "y", "max_relative": error}]}}}


def test_what_was_not_proved_counts_as_wrong() -> None:
    assert largest_error(receipt(0.5)) == 0.5
    assert largest_error({"receipt": {"report": {"errors": []}}}) == float("inf")


@pytest.mark.parametrize(("limit", "status", "name"), [(5.6, 0, ARTIFACT), (100, 0, OTHER), (1, 1, None)])
def test_the_command_benchmarks_and_chooses(
    command: Callable[..., Any], server: Any, limit: float, status: int, name: str | None
) -> None:
    server.answers[f"/artifacts/{ARTIFACT}/receipt"] = receipt(1e-3)
    server.answers[f"/artifacts/{OTHER}/receipt"] = receipt(1e-6)
    done = command("recommend", ARTIFACT, OTHER, "--latency-ms", limit, "--json")
    assert done.exit_code == status, done.output
    said = json.loads(done.stdout)
    assert said["recommended"] == name
    assert said["evidence"]["benchmark"] == BENCHMARK
    assert json.loads(server.sent("/benchmarks")[0].content)["artifacts"] == [ARTIFACT, OTHER]
