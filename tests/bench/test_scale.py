"""The simulation of many workers: it is what it says, to the last digit, and bends where it must."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.scale.run import breaks_at, main
from bench.scale.simulate import Terms, quantile, simulate
from bench.scale.times import Times

FLAT = {"submit": 0.002, "succeed": 0.002, "news": 0.002, "heartbeat": 0.001, "read": 0.001, "seen": 0.001}
TIMES = Times(
    {**FLAT, "look": 0.001, "reconcile": 0.001}, {"claim": ((0, 0.001), (100, 0.003), (200, 0.005))}, 0.001, 1.0, 1.0
)
TERMS = Terms(workers=20, jobs_per_day=14_400, job_s=60.0, cores=2, apis=1, reads=5.0, seconds=200.0, warm_s=100.0)
"""A job every six seconds: ten workers are busy."""


def test_a_seed_gives_the_same_to_the_last_digit_and_another_something_else() -> None:
    first, second = simulate(TERMS, TIMES), simulate(TERMS, TIMES)
    assert first == second
    assert simulate(replace(TERMS, seed=1), TIMES) != first


def test_what_is_busy_is_what_the_rates_and_times_make() -> None:
    """Little's law: rates times seconds, over the cores. A tenth more or less is the draw."""
    found = simulate(replace(TERMS, seconds=2000.0), TIMES)
    beats = 10 * (0.3 * FLAT["news"] + 0.7 * FLAT["heartbeat"])
    looks, seen, mended, read = 10 / 3 * 0.001, 20 / 3 * 0.001, 0.001, 5 * 0.001
    jobs = (FLAT["submit"] + FLAT["succeed"] + 0.001) / 6
    assert found.busy * TERMS.cores == pytest.approx(beats + looks + seen + mended + read + jobs, rel=0.1)
    assert found.sums_busy == pytest.approx((10 * 0.3 + 2 / 6) * TIMES.commit_s, rel=0.15)
    assert found.ended == pytest.approx(2000 / 6, rel=0.15)
    assert found.holds
    assert quantile(found.claims_s, 0.5) < 0.01


def test_too_few_workers_let_jobs_wait_and_a_slow_database_loses_leases() -> None:
    few = simulate(replace(TERMS, workers=5), TIMES)
    assert few.waiting > 10
    assert quantile(few.claims_s, 0.99) > 10
    slow = simulate(replace(TERMS, lease_s=0.5), replace(TIMES, commit_s=2.0))
    assert slow.lost > 0
    assert not slow.holds


def test_the_cost_of_a_claim_grows_with_what_waits() -> None:
    assert [TIMES.of("claim", depth) for depth in (0, 50, 100, 150, 400)] == pytest.approx(
        [0.001, 0.002, 0.003, 0.004, 0.009]
    )
    assert TIMES.of("news", 1000) == 0.002


def test_it_breaks_where_the_first_resource_is_used_up() -> None:
    """With slow commits the sums: of ten busy workers 3.3 writes a second add to them."""
    terms = replace(TERMS, seconds=100.0)
    factor = breaks_at(terms, replace(TIMES, commit_s=0.05), steps=3)
    assert factor == pytest.approx(1 / (3.33 * 0.05), rel=0.3)


def test_the_table_that_is_kept_can_be_read_and_the_command_tells_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Times.load()
    assert {*kept.seconds, *kept.at_depth} >= {*FLAT, "look", "claim", "reconcile"}
    assert kept.of("claim", 10_000) > kept.of("claim", 0)
    given = ["--workers", "20", "--jobs-per-day", "14400", "--cores", "2", "--seconds", "20", "--reads", "5"]
    assert main([*given, "--factors", "1,2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["workers"] for row in rows] == [20, 40]
    assert main([*given, "--factors", "1"]) == 0
    assert "| 20 | 14,400 |" in capsys.readouterr().out
