"""The least weighted cost of stages in a row, beside every such row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from compiler.platforms.problem import HOST_INPUT, Problem
from compiler.platforms.shortest import Shortest
from compiler.platforms.timing import Stage
from compiler.schedule.solvers.sets import bits
from tests.compiler.platforms.problems import random_problem


def rows(problem: Problem, done: int = 0, last: int = -1) -> Iterator[list[tuple[int, int]]]:
    """Every way to run what is left in stages (device, units), no two of one device one after the other."""
    left = problem.whole & ~done
    if not left:
        yield []
    units = left
    while units:
        if all((done | units) >> one & 1 for unit in bits(units) for one in problem.before[unit]):
            for device in range(len(problem.devices)):
                if device != last and all(problem.seconds[device][unit] < math.inf for unit in bits(units)):
                    yield from ([(device, units), *rest] for rest in rows(problem, done | units, device))
        units = (units - 1) & left


def cost(problem: Problem, row: Sequence[tuple[int, int]], factors: Sequence[float]) -> float:
    """A second on a device costs its factor; what crosses is on the device before, and costs the dearer end's."""
    total, done = 0.0, 0
    for at, (device, units) in enumerate(row):
        one = problem.devices[device]
        seconds = one.call_s + sum(problem.seconds[device][unit] for unit in bits(units))
        weights = one.element_bytes * sum(sum(problem.weights[unit].values()) for unit in bits(units))
        seconds += max(0.0, weights - one.memory) / one.streamed
        read = [tensor for tensor in problem.tensors if tensor.readers & units]
        if any(tensor.maker == HOST_INPUT for tensor in read):
            of_caller = sum(tensor.elements for tensor in read if tensor.maker == HOST_INPUT)
            seconds += problem.message_s(problem.host, device, of_caller)
        total += factors[device] * seconds
        crossing = [tensor.elements for tensor in read if tensor.maker != HOST_INPUT and done >> tensor.maker & 1]
        if crossing:
            before = row[at - 1][0]
            total += max(factors[before], factors[device]) * problem.message_s(before, device, sum(crossing))
        done |= units
    given = sum(tensor.elements for tensor in problem.tensors if tensor.given)
    return total + factors[row[-1][0]] * problem.message_s(row[-1][0], problem.host, given)


@pytest.mark.parametrize("seed", range(6))
def test_no_row_of_stages_costs_less(seed: int) -> None:
    random = Random(seed)
    drawn = random_problem(seed, units=4, devices=2 + seed % 2)
    problem = replace(
        drawn,
        weights=[{unit: random.randint(1, 20)} for unit in range(4)],
        devices=[
            replace(device, call_s=random.choice((0.0, 0.5)), memory=random.choice((8.0, 100.0)), streamed=4.0)
            for device in drawn.devices
        ],
    )
    factors = [random.choice((0.5, 1.0, 2.0)) for _ in problem.devices]
    found = Shortest(problem).stages(factors)
    assert found is not None
    row = [(stage.devices[0], stage.units) for stage in found]
    every = list(rows(problem))
    assert row in every
    assert cost(problem, row, factors) == pytest.approx(min(cost(problem, one, factors) for one in every))


def test_a_unit_that_runs_nowhere_has_no_row() -> None:
    problem = random_problem(1, units=3)
    nowhere = replace(problem, seconds=[[math.inf, *each[1:]] for each in problem.seconds])
    assert Shortest(nowhere).stages((1.0, 1.0)) is None


def test_one_device_is_one_stage() -> None:
    problem = random_problem(2, units=4, devices=1)
    assert Shortest(problem).stages((1.0,)) == (Stage((0,), problem.whole),)
