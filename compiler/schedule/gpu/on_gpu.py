"""Plans for a GPU: one graph of launches, whose edges are those of the plan's streams.

sequential          one launch after another
shared launches     one after another, but independent calls share launches (`launches`)
streams             no call waits for any but those that it reads from
early_start ...     the same, each call under the variant that ends first where it is placed; and calls wait for room
                    where the block slots do not suffice, if that is predicted faster (`slots`)
stages              the launches of stages (`gpu_stages`), on streams
shared on streams   the launches of `shared launches`, on streams
persistent          no launches: the resident blocks of one kernel take tile tasks, in the order of `streams` or of
                    `early_start` (`resident`); where the device has them and they can carry out all calls
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product

from compiler.ir.buffers import KernelGraph
from compiler.ir.tile import Menu, Variant
from compiler.schedule.gpu.graph_plan import LaunchGraph, as_read, in_turn, plan_of
from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.launch_modes import JointLaunch, LaunchMode, launch_mode
from compiler.schedule.gpu.launches import GROWTHS, shared_launches
from compiler.schedule.gpu.resident import ResidentBlocks
from compiler.schedule.gpu.slots import NEEDS, TIES, SlotRules, early_slots
from compiler.schedule.gpu.stages import CHAINS, stage_launches
from compiler.schedule.gpu.streams import crossings, streams
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.found import Found
from compiler.schedule.rules import CRITICAL_FIRST, LINEAR_CLUSTERS, RUNS_ALONE

SEQUENTIAL, SHARED, PERSISTENT = "sequential", "shared launches", "persistent"
MARGIN = 0.9
"""Of the time of what is simpler: what is less than this by prediction is worth the risk that the prediction errs."""


def on_gpu(
    kernels: KernelGraph,
    menus: Sequence[Menu],
    joint_launch: JointLaunch,
    scheduler: str = "auto",
    resident_blocks: ResidentBlocks | None = None,
    without: frozenset[str] = frozenset(),
) -> tuple[Found, ...]:
    """Plans, the sequential one first and then by predicted time; of equal graphs one.

    One of them is `trusted` (docs/decisions). `scheduler` is as for `schedule`; what is not `auto` gives one plan: that
    of this scheduler, or the sequential one if that is predicted faster. A persistent kernel is never trusted.
    What `without` names of `compiler.schedule.rules` is not applied.
    """
    device = _Device(kernels, menus, joint_launch, resident_blocks, without)
    first, *others = _timed(device.named(scheduler))
    others.sort(key=lambda one: one.graph.predicted_s)
    if scheduler != "auto":
        return (min((first, *others), key=lambda one: one.graph.predicted_s).found(kernels),)
    distinct: dict[object, _Named] = {}
    for one in (first, *others):
        distinct.setdefault(one.graph.identity, one)
    kept = [*distinct.values()]
    trusted = _trusted(kept)
    return tuple(replace(one.found(kernels), trusted=one is trusted) for one in kept)


@dataclass(frozen=True)
class _Named:
    """A graph, who found it, and how long that took."""

    name: str
    graph: LaunchGraph
    seconds: float

    def found(self, kernels: KernelGraph) -> Found:
        begin = time.perf_counter()
        plan = plan_of(kernels, self.graph, self.name)
        return Found(plan, self.seconds + time.perf_counter() - begin, between_s=self.graph.between_s)


def _timed(graphs: Iterator[tuple[str, LaunchGraph]]) -> Iterator[_Named]:
    begin = time.perf_counter()
    for name, graph in graphs:
        yield _Named(name, graph, time.perf_counter() - begin)
        begin = time.perf_counter()


def _trusted(kept: Sequence[_Named]) -> _Named:
    """The plan to take unmeasured.

    Graphs are gone through from the fewest edges between streams to the most, the sequential one first. The last is
    taken that is predicted to be faster by MARGIN than the one taken before.
    """
    taken, *others = (one for one in kept if one.graph.resident is None)
    for one in sorted(others, key=lambda one: crossings(one.graph.before, streams(one.graph.before))):
        if one.graph.predicted_s <= MARGIN * taken.graph.predicted_s:
            taken = one
    return taken


class _Device:
    """The calls of a model on one GPU."""

    def __init__(
        self,
        kernels: KernelGraph,
        menus: Sequence[Menu],
        joint_launch: JointLaunch,
        resident_blocks: ResidentBlocks | None,
        without: frozenset[str],
    ) -> None:
        self.joint_launch, self.resident_blocks = joint_launch, resident_blocks
        self.rules, self.lengths = _slot_rules(without), CHAINS[:1] if LINEAR_CLUSTERS in without else CHAINS
        self.before = predecessors(kernels)
        self.options = [_fastest_first(menu) for menu in menus]
        self.launched = [call for call, every in enumerate(self.options) if every[0].tiles]
        self.known: dict[tuple[int, ...], LaunchMode | None] = {}

    def named(self, scheduler: str) -> Iterator[tuple[str, LaunchGraph]]:
        """The graphs of a scheduler by name, the sequential one first."""
        singles = tuple((call,) for call in self.launched)
        yield SEQUENTIAL, self._graph(singles, in_turn(singles))
        if scheduler == "auto":
            yield SHARED, min((self._graph(one, in_turn(one)) for one in self.shared), key=_predicted)
            yield "streams", self._graph(singles, as_read(singles, self.before))
            yield "shared on streams", min((self._beside(one) for one in self.shared), key=_predicted)
        if scheduler in ("auto", "early_start"):
            tried = [(f"early_start {rules.tie}", self._early(rules)) for rules in self.rules]
            yield min(tried, key=lambda one: one[1].predicted_s)
        if scheduler in ("auto", "stages"):
            yield "stages", self._beside(stage_launches(self.before, self.launched, self.load, self.lengths))
        if scheduler in ("auto", PERSISTENT) and (persistent := self._persistent()):
            yield PERSISTENT, min(persistent, key=_predicted)

    @cached_property
    def shared(self) -> list[tuple[tuple[int, ...], ...]]:
        """Launches that calls share, for each of GROWTHS.

        They are grouped by what calls take at their fastest, and by the least that they take.
        """

        def shortest(calls: Sequence[int]) -> float | None:
            load = self.load(tuple(calls))
            return None if load is None else load.seconds

        @cache
        def of_fastest(calls: tuple[int, ...]) -> float | None:
            load = self.joint_launch([(call, self.options[call][0]) for call in calls])
            return None if load is None else load.seconds

        def fastest(calls: Sequence[int]) -> float | None:
            return of_fastest(tuple(calls))

        return [
            tuple(shared_launches(self.before, self.launched, seconds, growth))
            for seconds in (fastest, shortest)
            for growth in GROWTHS
        ]

    def load(self, calls: tuple[int, ...]) -> LaunchLoad | None:
        """Of calls in one launch, under the variants that make it shortest."""
        if calls not in self.known:
            self.known[calls] = launch_mode(calls, [self.options[call] for call in calls], self.joint_launch)
        mode = self.known[calls]
        return None if mode is None else mode.load

    def _beside(self, launches: Sequence[tuple[int, ...]]) -> LaunchGraph:
        return self._graph(launches, as_read(launches, self.before))

    def _graph(self, launches: Sequence[tuple[int, ...]], before: tuple[tuple[int, ...], ...]) -> LaunchGraph:
        loads = tuple(load for launch in launches if (load := self.load(launch)) is not None)
        variants = [every[0] for every in self.options]
        for launch in launches:
            if (mode := self.known[launch]) is not None:
                for call, variant in zip(launch, mode.variants, strict=True):
                    variants[call] = variant
        return LaunchGraph(tuple(launches), before, tuple(variants), loads)

    def _early(self, rules: SlotRules) -> LaunchGraph:
        """Earliest start first on block slots, a launch for each call."""
        at = {call: number for number, call in enumerate(self.launched)}
        inner = [[at[one] for one in self.before[call] if one in at] for call in self.launched]
        options = [self.options[call] for call in self.launched]
        loads = [
            [self._alone(call, variant) for variant in every]
            for call, every in zip(self.launched, options, strict=True)
        ]
        placed = early_slots(loads, inner, rules)
        variants = [every[0] for every in self.options]
        for one in placed:
            variants[self.launched[one.call]] = options[one.call][one.option]
        launches = tuple((self.launched[one.call],) for one in placed)
        held = [(self.launched[one.call], self.launched[other]) for one in placed for other in one.held]
        return LaunchGraph(
            launches,
            as_read(launches, self.before, held),
            tuple(variants),
            tuple(loads[one.call][one.option] for one in placed),
        )

    def _persistent(self) -> list[LaunchGraph]:
        """Persistent kernels: calls in their order, or that of `early_start`; at their fastest, or their most frugal.

        None where the device has no such blocks, or they cannot carry out a call.
        """
        blocks = self.resident_blocks
        if blocks is None:
            return []
        options = [[one for one in self.options[call] if blocks.accepts(call, one)] for call in self.launched]
        if not all(options):
            return []
        at = {call: number for number, call in enumerate(self.launched)}
        orders = ([*self.launched], [launch[0] for launch in self._early(self.rules[0]).launches])
        found = []
        for end in (0, -1):
            taken = {call: every[end] for call, every in zip(self.launched, options, strict=True)}
            resident = blocks.load([*taken.items()])
            if resident is None:
                continue
            variants = tuple(taken.get(call, every[0]) for call, every in enumerate(self.options))
            for order in orders:
                launches = tuple((call,) for call in order)
                ordered = resident.ordered([at[call] for call in order])
                found.append(LaunchGraph(launches, as_read(launches, self.before), variants, (), ordered))
        return found

    def _alone(self, call: int, variant: Variant) -> LaunchLoad:
        load = self.joint_launch([(call, variant)])
        assert load is not None, "a call alone has a launch"
        return load


def _slot_rules(without: frozenset[str]) -> list[SlotRules]:
    """What waits for no room needs nothing, so that the one that needs least is the first in the graph."""
    needs = [need for need in NEEDS if need == "nothing" or RUNS_ALONE not in without]
    ties = [tie for tie in TIES if not (tie == "critical" and CRITICAL_FIRST in without)]
    return [SlotRules(*both) for both in product(needs, ties) if both != ("nothing", "smallest")]


def _fastest_first(menu: Menu) -> list[Variant]:
    return sorted((one for one in menu.variants if one.lanes == 1), key=lambda one: one.cost.seconds)


def _predicted(graph: LaunchGraph) -> float:
    return graph.predicted_s
