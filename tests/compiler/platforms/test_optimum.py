"""Placements beside the optimum of CP-SAT, where that is installed (the extra `solver`)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from compiler.platforms.problem import HOST_INPUT, Problem
from compiler.platforms.search import Search, latency
from compiler.schedule.solvers.sets import bits
from tests.compiler.platforms.problems import random_problem

TICKS = 1000


def optimum(problem: Problem, limit_s: float = 8.0) -> tuple[float, bool]:
    """The latency of the best schedule with a message for each tensor and device, and whether it is proved.

    A schedule of `timing` sends several tensors at once, when the last is ready: it is no shorter where messages have
    no latency of their own.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    count, devices = len(problem.before), range(len(problem.devices))
    horizon = TICKS * 400
    on = {(unit, d): model.NewBoolVar("") for unit in range(count) for d in devices}
    begin = [model.NewIntVar(0, horizon, "") for _ in range(count)]
    end = [model.NewIntVar(0, horizon, "") for _ in range(count)]
    runs: list[list[Any]] = [[] for _ in devices]
    for unit in range(count):
        model.AddExactlyOne(on[unit, d] for d in devices)
        for d in devices:
            if problem.seconds[d][unit] == math.inf:
                model.Add(on[unit, d] == 0)
                continue
            ticks = round(TICKS * problem.seconds[d][unit])
            runs[d].append(model.NewOptionalIntervalVar(begin[unit], ticks, end[unit], on[unit, d], ""))
    messages: dict[str, list[Any]] = {}
    last = model.NewIntVar(0, horizon, "")
    for tensor in problem.tensors:
        made = 0 if tensor.maker == HOST_INPUT else end[tensor.maker]
        for d in devices:
            readers = [on[one, d] for one in bits(tensor.readers)]
            readers += [1] if tensor.given and d == problem.host else []
            if not readers:
                continue
            needed = model.NewBoolVar("")
            model.AddMaxEquality(needed, readers)
            arrived = model.NewIntVar(0, horizon, "")
            for source in devices:
                at_source = int(source == problem.host) if tensor.maker == HOST_INPUT else on[tensor.maker, source]
                if source == d:
                    model.Add(arrived >= made).OnlyEnforceIf(needed)
                    continue
                sent = model.NewBoolVar("")
                model.Add(sent >= at_source + needed - 1)
                link = problem.links[source, d]
                start = model.NewIntVar(0, horizon, "")
                ticks = round(TICKS * problem.message_s(source, d, tensor.elements))
                messages.setdefault(link.name, []).append(
                    model.NewOptionalIntervalVar(start, ticks, start + ticks, sent, "")
                )
                model.Add(start >= made).OnlyEnforceIf(sent)
                model.Add(arrived >= start + ticks).OnlyEnforceIf(sent)
            for one in bits(tensor.readers):
                model.Add(begin[one] >= arrived).OnlyEnforceIf(on[one, d])
            if tensor.given and d == problem.host:
                model.Add(last >= arrived)
    for own in (*runs, *messages.values()):
        model.AddNoOverlap(own)
    model.AddMaxEquality(last, [*end, last])
    model.Minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = limit_s
    status = solver.Solve(model)
    return solver.ObjectiveValue() / TICKS, status == cp_model.OPTIMAL


def test_latencies_are_within_five_percent_of_proved_optima() -> None:
    pytest.importorskip("ortools")
    gaps = []
    for seed in range(8):
        problem = random_problem(seed, units=8, devices=2 + seed % 2, latencies=(0.0,))
        best, proved = optimum(problem)
        search = Search(problem)
        search.run([latency])
        if proved:
            gaps.append(search.best(latency).timeline.latency_s / best)
    assert len(gaps) >= 4
    assert min(gaps) >= 1 - 1e-3
    assert max(gaps) <= 1.05, [round(gap, 3) for gap in gaps]
