"""The precision of each kernel: one for all, or (`precision` auto) fp32 or a short one within a budget of error.

The short one is that of the kind of device: bf16 on CPUs, fp16 on GPUs.

What kernels take is from the model of costs. The error of the outputs is evaluated with one kernel rounded at a time
(`compiler.prove.rounding`). A knapsack over both gives the fastest choice, with squares of errors added as of
independent changes; then the whole choice is evaluated, and where the sum was too low it is held lower until the whole
fits. What edges between kernels of both kinds cost shows in the seconds of the whole, by which choices are compared
with each other and with one precision for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.contract import LayerPrecision, kinds
from compiler.contract.kinds import AUTO
from compiler.fuse.storage import ELEMENTS
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.pack.explanation import Entry
from compiler.prove.effort import reference_effort
from compiler.prove.rounding import MULTIPLIES, Case, cases, largest_error, rounded
from compiler.session import Session
from compiler.steps.costs.precisions import FP32, PrecisionCosts, stored_short
from compiler.tuning.knapsack import Frontier, Option

SHARE = 0.8
"""The part of the tolerance that rounding to it may spend: its error is evaluated, not estimated. The rest is for
algorithms of fp32 that are not exact, whose errors are independent of it."""
MOST_GROUPS = 48
"""Runs of kernels that are judged alone: each kernel by itself in a model of no more."""
EVALUATIONS_S = 12.0
"""Estimated seconds of judging them: there are as many as that allows, and at least FEWEST_GROUPS."""
FEWEST_GROUPS = 8
CASES_S = 3.0
"""Estimated seconds of evaluating one choice: samples and edge cases are left out beyond it."""
CASES_BYTES = 2 << 30
ROUNDS = 5
"""Choices from the frontier that are evaluated at most."""
POINTS = 12
"""Of the frontier, of which the one that is the fastest as a whole is evaluated."""
MARGIN = 0.9
"""Of the sum at which the whole should fit, by the ratio that was found."""
FASTER = "faster in 16 bits, or kernels beside it are"
NO_FASTER = "no faster in 16 bits"
NOTHING = "16 bits change nothing: no algorithm multiplies in them, and the result stays in fp32"
TOO_MUCH = "its error does not fit beside that of kernels that gain more for theirs"
UNKNOWN = "what rounding it does to the outputs cannot be evaluated"


@dataclass(frozen=True)
class Precisions:
    """The kernels of a model with the elements that they have in memory.

    precision  whose algorithms may be chosen
    exact      positions of calls that have those of fp32 alone
    layers     for the report; empty unless kernels have precisions of their own
    summary    the same in a sentence; empty likewise
    short      the precision that kernels have instead of fp32 where they have their own
    """

    kernels: KernelGraph
    precision: str
    exact: frozenset[int] = frozenset()
    layers: tuple[LayerPrecision, ...] = ()
    summary: str = ""
    short: str = ""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Kernels by precision and reason, with what they take in both."""
        groups: dict[tuple[str, str], list[LayerPrecision]] = {}
        for layer in self.layers:
            groups.setdefault((layer.precision, layer.reason), []).append(layer)
        found = []
        for (precision, reason), members in sorted(groups.items()):
            plain, short = (
                math.fsum(each) for each in zip(*((one.fp32_us, one.short_us) for one in members), strict=True)
            )
            where = ", ".join(members[0].nodes) or members[0].kernel
            note = f"{plain:.1f} us in fp32, {short:.1f} us in {self.short}, by the model"
            found.append(Entry(precision, reason, len(members), where, note))
        return tuple(found)

    def __str__(self) -> str:
        """A line for each kernel."""
        lines = [self.summary]
        for one in self.layers:
            error = "" if one.error is None else f", error {one.error:.1e}"
            seconds = f"{one.fp32_us:.1f} us in fp32, {one.short_us:.1f} us in {self.short}"
            lines.append(f"{one.precision} {one.kernel} at {', '.join(one.nodes)}: {seconds}{error}; {one.reason}")
        return "\n".join(lines)


def one_precision(session: Session, kernels: KernelGraph, precision: str) -> Precisions:
    """The same for all kernels."""
    return Precisions(session.backend.stored(kernels, precision), precision)


def chosen_precisions(
    session: Session,
    graph: Graph,
    kernels: KernelGraph,
    tolerance: float,
    budget: float,
    inputs: Iterable[Mapping[int, np.ndarray]],
) -> Precisions:
    """For each kernel fp32 or the short precision, as fast as the model of costs has it within a budget of error.

    graph      what the kernels compute; buffers have the ids of its values
    tolerance  of which algorithms of fp32 that are not exact may spend a part
    budget     the error that rounding to it may add
    inputs     by value id, on which errors are evaluated, those that matter most first
    """
    short = kinds.of(session.options.target).short
    costs = PrecisionCosts(session.backend, session.lanes, kernels, tolerance, short)
    choosing = _Choosing(graph, costs, budget, inputs)
    layers = choosing.layers()
    chosen = choosing.chosen
    if not chosen:
        reasons = Counter(one.reason for one in layers)
        common = TOO_MUCH if TOO_MUCH in reasons else next(iter(reasons.most_common(1)), (NOTHING,))[0]
        said = f"precision auto: all kernels stay in fp32: {common}"
        return Precisions(kernels, FP32, layers=layers, summary=said, short=short)
    ms = [1e3 * choosing.whole(one) for one in (chosen, frozenset(), choosing.changed)]
    summary = (
        f"precision auto: {len(chosen)} of {len(kernels.calls)} kernels in {short}, by the model {ms[0]:.3g} ms on one "
        f"lane instead of {ms[1]:.3g} (all in {short}: {ms[2]:.3g}), expected error {choosing.error(chosen):.1e}"
    )
    return Precisions(costs.stored(chosen), AUTO, costs.calls - chosen, layers, summary, short)


class _Choosing:
    """The choice for one model; `chosen` are the calls that are short, by position."""

    def __init__(
        self, graph: Graph, costs: PrecisionCosts, budget: float, inputs: Iterable[Mapping[int, np.ndarray]]
    ) -> None:
        self.graph, self.costs, self.budget = graph, costs, budget
        self.alone: dict[int, float] = {}
        """The errors of kernels, or of runs of them, that were judged alone."""
        self._wholes: dict[frozenset[int], float] = {}
        self.nodes = nodes_of(graph, costs.plain)
        self.changed = frozenset(at for at in costs.changed if self.nodes[at])
        plain, short = costs.seconds(frozenset()), costs.seconds(self.changed)
        self.seconds = list(zip(plain, short, strict=True))
        self.judged: list[Case] = []
        self.is_useful = any(self.seconds[at][1] < self.seconds[at][0] for at in self.changed)
        if self.is_useful:
            self.effort_s = max(reference_effort(graph).seconds, 1e-3)
            self.judged = cases(graph, inputs, OPERATORS, max(int(CASES_S / self.effort_s), 1), CASES_BYTES)
        self.chosen = self._chosen() if self.judged else frozenset()

    def whole(self, chosen: frozenset[int]) -> float:
        """Seconds of all kernels, one after another on one lane."""
        if chosen not in self._wholes:
            self._wholes[chosen] = math.fsum(self.costs.seconds(chosen))
        return self._wholes[chosen]

    def error(self, chosen: frozenset[int]) -> float:
        """The largest of the outputs, on all inputs up to one that is beyond the budget, under a choice."""
        return largest_error(self.judged, self._as_rounded(chosen), self.budget)

    def layers(self) -> tuple[LayerPrecision, ...]:
        """What became of each kernel."""
        found = []
        for at, call in enumerate(self.costs.plain.calls):
            plain, short = self.seconds[at]
            error = self.alone.get(at)
            found.append(
                LayerPrecision(
                    tuple(call.sources),
                    call.kernel.family,
                    self.costs.short if at in self.chosen else FP32,
                    1e6 * plain,
                    1e6 * short,
                    error if error is not None and math.isfinite(error) else None,
                    self._reason(at),
                )
            )
        return tuple(found)

    def _reason(self, at: int) -> str:
        plain, short = self.seconds[at]
        if at in self.chosen:
            return FASTER
        if at not in self.costs.changed:
            return NOTHING
        if at not in self.changed or (self.is_useful and not self.judged):
            return UNKNOWN
        return NO_FASTER if short >= plain else TOO_MUCH

    def _chosen(self) -> frozenset[int]:
        """Everything where that fits, else the fastest whole that does; nothing where all in fp32 is no slower."""
        every = self._as_rounded(self.changed)
        errors = [case.error(every) for case in self.judged]
        plain = self.whole(frozenset())
        if max(errors) <= self.budget and self.whole(self.changed) < plain:
            return self.changed
        found = self._within([self.judged[int(np.argmax(errors))]])
        return found if self.whole(found) < plain else frozenset()

    def _within(self, judges: Sequence[Case]) -> frozenset[int]:
        """Of the choices on the frontier the fastest that fits; the limit of the sum is found by bisection."""
        groups = self._judge_alone(judges)
        frontier = Frontier([[Option(0.0, 0.0), Option(-self._gain(one), self.alone[min(one)] ** 2)] for one in groups])
        best, limit = frozenset[int](), self.budget**2
        fits, misses = 0.0, math.inf
        seen: set[frozenset[int]] = set()
        for _ in range(ROUNDS):
            fitting = [one for one in (*frontier.spread(POINTS), frontier.cheapest(limit)) if one.error <= limit]
            picked = [[group for level, group in zip(one.levels, groups, strict=True) if level] for one in fitting]
            sums = {frozenset[int]().union(*one): choice.error for one, choice in zip(picked, fitting, strict=True)}
            found = min(sums, key=lambda one: (self.whole(one), len(one)))
            if found in seen:
                break
            seen.add(found)
            error = self.error(found)
            if error <= self.budget:
                best, fits = min((best, found), key=self.whole), limit
            else:
                misses = min(sums[found], limit)
            by_ratio = sums[found] * MARGIN * (self.budget / max(error, 1e-30)) ** 2
            limit = math.sqrt(fits * misses) if fits and misses < math.inf else by_ratio
            if limit <= fits:
                break
        return best

    def _gain(self, group: frozenset[int]) -> float:
        """Seconds that a run of kernels saves: the mean of what it saves alone and as the last of all."""
        alone = self.whole(frozenset()) - self.whole(group)
        last = self.whole(self.changed - group) - self.whole(self.changed)
        return (alone + last) / 2

    def _judge_alone(self, judges: Sequence[Case]) -> list[frozenset[int]]:
        """Runs of kernels that leave the outputs finite where they alone are short; `alone` has their errors."""
        most = min(max(int(EVALUATIONS_S / (self.effort_s / 2)), FEWEST_GROUPS), MOST_GROUPS)
        order = sorted(self.changed)
        size = -(-len(order) // most)
        groups = [frozenset(order[at : at + size]) for at in range(0, len(order), size)]
        every = self.costs.stored(self.changed)
        for group in groups:
            stored = {id for at in group for id in stored_short(every, at)}
            error = largest_error(judges, self._rounded(group, stored))
            self.alone |= dict.fromkeys(group, error)
        return [group for group in groups if math.isfinite(self.alone[min(group)])]

    def _as_rounded(self, chosen: frozenset[int]) -> Graph:
        """The graph as it is computed under a choice."""
        stored = self.costs.stored(chosen)
        return self._rounded(chosen, [id for id, buffer in stored.buffers.items() if buffer.element])

    def _rounded(self, chosen: Iterable[int], stored: Iterable[int]) -> Graph:
        """The graph with these calls short and these buffers, and those that share memory with them, stored so."""
        buffers, lying = self.costs.plain.buffers, self.costs.plain.lying_in
        values = {one for id in stored for one in lying[buffers[id].storage] if one in self.graph.values}
        multiplied = {
            position
            for at in chosen
            if at in self.costs.multiplying
            for position in self.nodes[at]
            if self.graph.nodes[position].op in MULTIPLIES
        }
        return rounded(self.graph, multiplied, values, ELEMENTS[self.costs.short])


def nodes_of(graph: Graph, kernels: KernelGraph) -> list[frozenset[int]]:
    """Of each call the positions of the nodes between what it reads and what it writes.

    Empty where a result is no value of the graph.
    """
    position = {id: at for at, node in enumerate(graph.nodes) for id in node.outputs}
    in_memory = {*kernels.inputs, *kernels.constants, *(id for call in kernels.calls for id in call.outputs)}
    in_memory |= {id for call in kernels.calls for id in call.inputs}
    found: list[frozenset[int]] = []
    for call in kernels.calls:
        inside: set[int] = set()
        waiting = [*call.outputs]
        while waiting:
            at = position.get(waiting.pop())
            if at is not None and at not in inside:
                inside.add(at)
                waiting += [id for id in graph.nodes[at].used if id not in in_memory]
        found.append(frozenset(inside) if all(id in position for id in call.outputs) else frozenset())
    return found
