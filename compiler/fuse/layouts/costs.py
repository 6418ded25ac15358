"""Which of the values that lie channels-last by the rule had better be plain, by what kernels cost.

Values that operators without a window tie, axis by axis, lie alike: they are one variable, with two alternatives. A
kernel that touches values of several variables costs something else under each combination: that is a table
(`compiler.fuse.layouts.pbqp`). Some read one layout and write the other at little cost, and a transpose between the
right two is a view and costs nothing; so conversions need no place of their own among the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from compiler.fuse.draft import Draft, Op, Ops
from compiler.fuse.layouts.alias import Buffers, place_concats, place_views
from compiler.fuse.layouts.channels_last import ties
from compiler.fuse.layouts.pbqp import Table, cost_of, solve
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.machine import Costs
from compiler.ir.tensor import Layout
from compiler.ir.tile import Cost

MOST_VARIABLES = 4
"""Of one kernel: if it touches more, all of them become one."""
MARGIN = {"model": 0.3, "record": 0.05}
"""By what part kernels that touch a value must become cheaper before its layout is changed: the source of costs errs by
as much."""
LEAST = 0.02
"""By what part the whole model must: less is not worth being wrong."""

RULE, PLAIN = range(2)
"""The alternatives of a variable."""

Layouts = Mapping[int, Layout]


def cheaper_layouts(draft: Draft, rule: Layouts, costs: Costs) -> Layouts:
    """The rule's layouts but for values whose kernels become cheaper by more than the margin when they are plain."""
    variables = _variables(draft, rule)
    problem = _problem(draft, rule, variables, costs)
    if problem is None:
        return rule
    count = 1 + max(variables.values())
    found = solve([2] * count, problem.tables)
    plain = {
        variable for region in _regions(found.choice, problem.tables) if problem.pays(region) for variable in region
    }
    return {value: layout for value, layout in rule.items() if variables.get(value) not in plain}


def is_cheaper(graph: Graph, other: KernelGraph, kernels: KernelGraph, costs: Costs) -> bool:
    """Whether the kernels of a graph cost less, so that it can be seen, if they are these others."""
    asked = _Asked(graph)
    places = [asked.add(one.calls, one.buffers) for one in (kernels, other)]
    found = asked.costs(costs)
    before, after = (sum(found[at].seconds for at in place) for place in places)
    return after < (1 - LEAST) * before


def _variables(draft: Draft, rule: Layouts) -> dict[int, int]:
    """The variable of each value that the rule gives a layout and some kernel touches."""
    touched = [
        [value for value in dict.fromkeys((*op.inputs, *op.outputs)) if _is_free(draft, rule, value)]
        for op in draft.ops
    ]
    leader = {value: value for value in rule}

    def find(value: int) -> int:
        while leader[value] != value:
            leader[value] = leader[leader[value]]
            value = leader[value]
        return value

    def tie(values: Iterable[int]) -> None:
        first, *others = [find(value) for value in values] or [-1]
        for other in others:
            leader[other] = first

    for tied in (*ties(draft.graph), *draft.like.items()):
        tie(value for value in tied if _is_free(draft, rule, value))
    for values in touched:
        if len({find(value) for value in values}) > MOST_VARIABLES:
            tie(values)
    numbers: dict[int, int] = {}
    return {value: numbers.setdefault(find(value), len(numbers)) for values in touched for value in values}


def _is_free(draft: Draft, rule: Layouts, value: int) -> bool:
    return value in rule and value not in draft.graph.constants


@dataclass(frozen=True)
class _Problem:
    """A table for each kernel that touches a variable; `margin` of the source of its costs."""

    tables: tuple[Table, ...]
    margin: float

    def pays(self, region: frozenset[int]) -> bool:
        """Whether the kernels that touch some variables cost less, by more than the margin, if only these are plain."""
        touching = [table for table in self.tables if region & set(table.variables)]
        count = 1 + max(variable for table in touching for variable in table.variables)
        before = cost_of(touching, [RULE] * count)
        after = cost_of(touching, [PLAIN if variable in region else RULE for variable in range(count)])
        return after < (1 - self.margin) * before


def _regions(choice: Sequence[int], tables: Iterable[Table]) -> list[frozenset[int]]:
    """The variables that are to be plain, apart where no kernel touches two of them."""
    regions = [frozenset({variable}) for variable, alternative in enumerate(choice) if alternative == PLAIN]
    for table in tables:
        touched = [region for region in regions if region & set(table.variables)]
        if len(touched) > 1:
            regions = [region for region in regions if region not in touched]
            regions.append(frozenset().union(*touched))
    return regions


def _problem(draft: Draft, rule: Layouts, variables: Mapping[int, int], costs: Costs) -> _Problem | None:
    """The tables of a draft; None where no layout is to be chosen."""
    asked = _Asked(draft.graph)
    places: list[tuple[tuple[int, ...], list[range]]] = []
    for op in draft.ops:
        touched = tuple(dict.fromkeys(variables[value] for value in (*op.inputs, *op.outputs) if value in variables))
        if touched:
            choices = [
                dict(zip(touched, choice, strict=True)) for choice in product((RULE, PLAIN), repeat=len(touched))
            ]
            left = [_remaining(draft, op, rule, variables, choice) for choice in choices]
            places.append((touched, [asked.add(*one) for one in left]))
    if not places:
        return None
    found = asked.costs(costs)
    tables = []
    for touched, alternatives in places:
        sums = [sum(found[at].seconds for at in place) for place in alternatives]
        tables.append(Table(touched, np.reshape(sums, [2] * len(touched))))
    return _Problem(tuple(tables), MARGIN["record" if all(cost.source == "record" for cost in found) else "model"])


def _remaining(
    draft: Draft, op: Op, rule: Layouts, variables: Mapping[int, int], choice: Mapping[int, int]
) -> tuple[list[Call], Mapping[int, Buffer]]:
    """What must be carried out of an op once copies that may be are views, under a choice for its variables."""

    def layout(value: int) -> Layout | None:
        return rule.get(value) if choice.get(variables.get(value, -1), RULE) == RULE else None

    values = dict.fromkeys((*op.inputs, *op.outputs))
    buffers = Buffers({value: Buffer.whole(value, draft.types[value], layout(value)) for value in values})
    alone = Draft(draft.graph, Ops([op]), draft.types)
    place_concats(alone, buffers)
    place_views(alone, buffers)
    return [Call(left.kernel, left.inputs, left.outputs) for left in alone.ops], buffers.of


class _Asked:
    """Calls of alternatives, whose costs are asked for together so that all come from one source."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.next = 1 + max(graph.values)
        self.buffers: dict[int, Buffer] = {}
        self.ends: list[int] = []
        """The buffers that hold inputs and outputs of the graph."""
        self.calls: list[Call] = []

    def add(self, calls: Iterable[Call], buffers: Mapping[int, Buffer]) -> range:
        """Positions among all calls of those of one more alternative; no two alternatives share activations."""
        names = {id: id if id in self.graph.constants else self.next + at for at, id in enumerate(buffers)}
        self.next += len(names)
        for id, buffer in buffers.items():
            storage = names.get(buffer.storage, buffer.storage)
            self.buffers[names[id]] = replace(buffer, id=names[id], storage=storage)
        self.ends += [names[id] for id in (*self.graph.inputs, *self.graph.outputs) if id in buffers]
        first = len(self.calls)
        for call in calls:
            inputs, outputs = (tuple(names[id] for id in ids) for ids in (call.inputs, call.outputs))
            self.calls.append(replace(call, inputs=inputs, outputs=outputs))
        return range(first, len(self.calls))

    def costs(self, costs: Costs) -> tuple[Cost, ...]:
        constants = {id: self.graph.constants[id] for id in self.buffers if id in self.graph.constants}
        kernels = KernelGraph(self.buffers, tuple(self.calls), tuple(self.ends), (), constants)
        return costs.of(kernels, kernels.calls)
