"""What is placed as one: operators, kernels, clusters of kernels, blocks in series, the whole model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from compiler.platforms.problem import Problem
from compiler.schedule.problem import Problem as Lanes
from compiler.schedule.solvers.clusters import linear_clusters
from compiler.schedule.solvers.cut import series
from compiler.schedule.solvers.sets import bits

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "operator": "each operator",
        "kernel": "an operator and the elementwise ones behind it that alone read it",
        "cluster": "linear clusters of kernels: chains along the longest paths",
        "block": "what lies between places where one tensor is live",
        "whole": "the model",
    }
)


def groups(problem: Problem, granularity: str, joins: Sequence[bool]) -> list[tuple[int, ...]]:
    """The units of a granularity as groups of operators, each after those that it reads from.

    joins  whether each operator goes into the kernel of the one that it alone reads
    """
    units = range(len(problem.before))
    if granularity == "operator":
        return [(unit,) for unit in units]
    if granularity == "whole":
        return [tuple(units)]
    if granularity == "block":
        return series(problem.before, units)
    kernels = _kernels(problem, joins)
    if granularity == "kernel":
        return kernels
    coarse = problem.joined(kernels)
    seconds = [(_mean([each[unit] for each in coarse.seconds]),) for unit in range(len(kernels))]
    chains = linear_clusters(Lanes(tuple(map(tuple, coarse.before)), tuple(seconds), 1))
    return [tuple(sorted(unit for one in chain for unit in kernels[one])) for chain in chains]


def with_state(problem: Problem, carried: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Groups in which all units between the reading of a state and its making, of every pair, are one.

    `carried` are pairs of sets: units that read a state, units that make what it is in the next frame.
    """
    after: list[int] = [0] * len(problem.before)
    before: list[int] = [0] * len(problem.before)
    for unit, reads in enumerate(problem.before):
        for one in reads:
            before[unit] |= before[one] | 1 << one
    for unit in reversed(range(len(problem.before))):
        for one in problem.before[unit]:
            after[one] |= after[unit] | 1 << unit
    held = 0
    for readers, makers in carried:
        held |= readers | makers
    while True:  # what lies between two units that are held is held
        below = above = 0
        for unit in bits(held):
            below |= after[unit]
            above |= before[unit]
        if not below & above & ~held:
            break
        held |= below & above
    if not held:
        return [(unit,) for unit in range(len(problem.before))]
    first = [(unit,) for unit in range(len(problem.before)) if not held >> unit & 1 and not before[unit] & held]
    rest = [(unit,) for unit in range(len(problem.before)) if not held >> unit & 1 and before[unit] & held]
    return [*first, tuple(bits(held)), *rest]


def _kernels(problem: Problem, joins: Sequence[bool]) -> list[tuple[int, ...]]:
    """Chains that end where a result has several readers, or one that is not elementwise: no circle comes of them."""
    readers: list[set[int]] = [set() for _ in problem.before]
    for unit, before in enumerate(problem.before):
        for one in before:
            readers[one].add(unit)
    given = {one.maker for one in problem.tensors if one.given}
    home: dict[int, list[int]] = {}
    for unit, before in enumerate(problem.before):
        host = next(
            (
                one
                for one in reversed(before)
                if joins[unit] and readers[one] == {unit} and one not in given and home[one][-1] == one
            ),
            None,
        )
        if problem.fixed >> unit & 1:
            host = None
        home[unit] = home[host] if host is not None else []
        home[unit].append(unit)
    return sorted({id(group): tuple(group) for group in home.values()}.values(), key=lambda group: group[-1])


def _mean(seconds: Sequence[float]) -> float:
    finite = [one for one in seconds if one < math.inf]
    return sum(finite) / len(finite) if finite else 0.0
