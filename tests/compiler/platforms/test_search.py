"""Placements against brute force, and what a timeline may not do."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from compiler.platforms.exact import Exact, least_latency_s, least_period_s
from compiler.platforms.problem import HOST_INPUT
from compiler.platforms.search import Search, latency, throughput, within
from compiler.platforms.timing import Timeline, Timing
from compiler.schedule.solvers.sets import bits
from tests.compiler.platforms.problems import least_latency, least_period, random_problem

SEEDS = range(24)


def found(seed: int, devices: int = 2) -> Search:
    search = Search(random_problem(seed, devices=devices))
    search.run([latency, throughput])
    return search


def holds(search: Search, made: Timeline) -> bool:
    """Whether each unit runs once, where it can, after all that it reads is there; devices do one thing at a time."""
    problem = search.problem
    ends, homes = {}, {}
    for span in made.spans:
        stage = made.stages[span.stage]
        for unit in bits(stage.units):
            assert unit not in ends
            ends[unit], homes[unit] = span, stage.devices[0]
    assert ends.keys() == set(range(len(problem.before)))
    for unit, span in ends.items():
        for tensor in problem.tensors:
            if tensor.readers >> unit & 1:
                source = problem.host if tensor.maker == HOST_INPUT else homes[tensor.maker]
                made_at = 0.0 if tensor.maker == HOST_INPUT else ends[tensor.maker].end
                if tensor.maker == HOST_INPUT or ends[tensor.maker] is not span:
                    least = made_at + problem.message_s(source, homes[unit], tensor.elements)
                    assert span.begin >= least - 1e-9
    for device in range(len(problem.devices)):
        own = sorted((span.begin, span.end) for span in made.spans if span.device == device)
        assert all(one[1] <= two[0] + 1e-9 for one, two in pairwise(own))
    return True


def test_latencies_and_periods_are_within_five_percent_of_brute_force_on_small_graphs() -> None:
    gaps: list[float] = []
    for seed in SEEDS:
        search = found(seed)
        best, often = search.best(latency).timeline, search.best(throughput).timeline
        assert holds(search, best)
        assert holds(search, often)
        gaps += [best.latency_s / least_latency(search.problem), often.period_s / least_period(search.problem)]
    assert min(gaps) >= 1 - 1e-9
    assert max(gaps) <= 1.05, [round(gap, 3) for gap in gaps]


def test_what_keeps_a_latency_has_no_shorter_period_than_what_need_not() -> None:
    search = found(3)
    early, often = search.best(latency).timeline, search.best(throughput).timeline
    bounded = search.best(within(early.latency_s)).timeline
    assert bounded.latency_s == early.latency_s
    assert early.period_s >= bounded.period_s >= often.period_s


def test_branch_and_bound_ends_at_the_least_latency_and_no_bound_is_above_it() -> None:
    for seed in range(12):
        problem = random_problem(seed, units=5)
        least = least_latency(problem)
        exact = Exact(Timing(problem), math.inf)
        exact.run()
        assert exact.best is not None
        assert exact.bound == exact.best_s <= least * (1 + 1e-9)  # one stage of several units may be better
        assert least_latency_s(problem) <= exact.best_s * (1 + 1e-9)
        assert least_period_s(problem) <= least_period(problem) * (1 + 1e-9)


def test_a_search_that_is_cut_off_bounds_what_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(4, units=6)
    whole = Exact(Timing(problem), math.inf)
    whole.run()
    monkeypatch.setattr("compiler.platforms.exact.MOST_NODES", 2)
    cut = Exact(Timing(problem), whole.best_s * 1.5)
    cut.run()
    assert cut.best is None
    assert cut.bound <= whole.best_s * (1 + 1e-9)
    assert cut.bound >= least_latency_s(problem) * (1 - 1e-9)


def test_what_moves_do_not_find_is_found_where_units_are_few() -> None:
    """Seven units: a first stage on each of two devices, and work handed over behind it (seed 8 of the random ones)."""
    problem = random_problem(8, units=7)
    search = Search(problem)
    search.run([latency])
    assert search.best(latency).by == "branch and bound"
    assert search.best(latency).timeline.latency_s == search.bound_s[0]
