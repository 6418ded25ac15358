"""The cheapest choice of one alternative per variable, by tables of what the choices of a few variables cost.

Tables over one and two variables are the partitioned boolean quadratic problem by which primitives and layouts of a
network are selected (Anderson & Gregg, CGO 2018; its reductions: Scholz & Eckstein, LCTES 2002). A kernel may touch
more than two tensors, so a table here may have more variables. Variables are eliminated one by one, the one with the
fewest neighbours first: all that is said of it is summed up and replaced by the least over its alternatives, a table
over its neighbours. With no or one neighbour left that is the reduction R0 or RI, with two RII, with more bucket
elimination (Dechter 1999): all exact. Where the table would grow too large, its parts are minimised separately
(mini-buckets, Dechter & Rish 2003): what comes out is then a lower bound, and the choice made on the way back may cost
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float64]

MOST_CELLS = 1 << 14
"""Of one table, before it is minimised in parts."""


@dataclass(frozen=True)
class Table:
    """What the choices of `variables` cost together.

    `costs` has an axis for each of them, in their order, as long as it has alternatives.
    """

    variables: tuple[int, ...]
    costs: Costs


@dataclass(frozen=True)
class Solution:
    """An alternative per variable, the sum of all tables there, and what no choice can be cheaper than."""

    choice: tuple[int, ...]
    cost: float
    bound: float


def solve(alternatives: Sequence[int], tables: Sequence[Table], most_cells: int = MOST_CELLS) -> Solution:
    """The choice with the least sum of tables, found exactly unless a table would have more than `most_cells`.

    If it is exact, `cost` equals `bound` but for rounding.

    `alternatives` says how many each variable has. Of equals the first alternative is taken.
    """
    sizes = tuple(alternatives)
    said: list[list[Table]] = [[] for _ in sizes]
    bound = 0.0
    eliminated: list[tuple[int, list[Table]]] = []

    def say(table: Table) -> float:
        """Notes a table with its variables; returns what it costs where it has none."""
        for variable in table.variables:
            said[variable].append(table)
        return 0.0 if table.variables else float(table.costs)

    bound += sum(map(say, tables))
    degree = {variable: len(_neighbours(variable, said[variable])) for variable in range(len(sizes))}
    waiting = [(neighbours, variable) for variable, neighbours in degree.items()]
    heapify(waiting)
    while degree:
        neighbours_then, variable = heappop(waiting)
        if degree.get(variable) != neighbours_then:
            continue
        del degree[variable]
        bucket = said[variable]
        eliminated.append((variable, bucket))
        neighbours = _neighbours(variable, bucket)
        for other in neighbours:
            said[other] = [table for table in said[other] if variable not in table.variables]
        bound += sum(say(_without(part, variable)) for part in _parts(bucket, sizes, most_cells))
        for other in neighbours:
            degree[other] = len(_neighbours(other, said[other]))
            heappush(waiting, (degree[other], other))
    choice = _traced_back(eliminated, sizes)
    return Solution(choice, cost_of(tables, choice), bound)


def cost_of(tables: Iterable[Table], choice: Sequence[int]) -> float:
    """The sum of all tables at a choice."""
    return sum(float(table.costs[tuple(choice[variable] for variable in table.variables)]) for table in tables)


def _neighbours(variable: int, tables: Sequence[Table]) -> set[int]:
    return {other for table in tables if variable in table.variables for other in table.variables} - {variable}


def _parts(bucket: Sequence[Table], sizes: Sequence[int], most_cells: int) -> list[Table]:
    """The sum of tables; of tables that are too large together, the sums of as many as have room, widest first."""
    parts: list[Table] = []
    for table in sorted(bucket, key=lambda one: -len(one.variables)):
        for at, part in enumerate(parts):
            both = {*part.variables, *table.variables}
            if np.prod([sizes[variable] for variable in both]) <= most_cells:
                parts[at] = _sum(part, table)
                break
        else:
            parts.append(table)
    return parts


def _sum(first: Table, second: Table) -> Table:
    variables = tuple(dict.fromkeys((*first.variables, *second.variables)))
    return Table(variables, _spread(first, variables) + _spread(second, variables))


def _spread(table: Table, variables: Sequence[int]) -> Costs:
    """A table's costs with an axis for each of more variables, in their order."""
    order = sorted(range(len(table.variables)), key=lambda at: variables.index(table.variables[at]))
    transposed = table.costs.transpose(order)
    extents = iter(transposed.shape)
    return transposed.reshape([next(extents) if variable in table.variables else 1 for variable in variables])


def _without(table: Table, variable: int) -> Table:
    """The least costs over the alternatives of one variable."""
    others = tuple(other for other in table.variables if other != variable)
    return Table(others, table.costs.min(axis=table.variables.index(variable)))


def _traced_back(eliminated: Sequence[tuple[int, list[Table]]], sizes: Sequence[int]) -> tuple[int, ...]:
    """From the last variable eliminated to the first: the alternative that is cheapest beside those chosen already."""
    choice = [0] * len(sizes)
    for variable, bucket in reversed(eliminated):
        costs = reduce(lambda total, table: total + _along(table, variable, choice), bucket, np.zeros(sizes[variable]))
        choice[variable] = int(costs.argmin())
    return tuple(choice)


def _along(table: Table, variable: int, choice: Sequence[int]) -> Costs:
    """A table's costs over the alternatives of one variable, all others as they were chosen."""
    place = tuple(slice(None) if other == variable else choice[other] for other in table.variables)
    return table.costs[place]
