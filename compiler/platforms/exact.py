"""The least latency of few units: branch and bound over all timelines, and what no placement can be better than.

A node of the search is some stages that are done and one that may still grow. From there a frame takes at least the
longest way through the units that are left, each on the device and after the message that suit it best, when links are
free; and at least the mean of what devices have done and of what is left. Weights that are brought are counted at the
leaves alone: they make nothing quicker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add

from compiler.platforms.problem import HOST_INPUT, Problem
from compiler.platforms.shortest import raised
from compiler.platforms.timing import Run, Stage, Timing
from compiler.schedule.solvers.sets import bits

MOST_EXACT = 12
"""Units, beyond which a search by nodes ends far from a proof."""
MOST_NODES = 20_000
"""Seconds of search."""
ROUNDS = 60
"""Of finding factors."""
SAME = 1 - 1e-9


@dataclass
class Exact:
    """A search from a latency that is known, in seconds.

    best    the stages of a better one, if any was found, and their latency
    bound   what no placement of these units is below; `best_s` where the search came to its end
    """

    timing: Timing
    best_s: float
    best: tuple[Stage, ...] | None = None
    nodes: int = 0
    _left: float = math.inf
    _seen: set[tuple[Stage, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._ways = Ways(self.timing.problem)

    @property
    def bound(self) -> float:
        """See above."""
        return min(self.best_s, self._left)

    def run(self) -> None:
        """Searches until all is seen, or MOST_NODES are."""
        begun = Run(self.timing)
        self._grow((), None, begun, begun, 0)

    def _grow(self, done: tuple[Stage, ...], last: Stage | None, before: Run, after: Run, placed: int) -> None:
        """From stages that are `done` and a `last` one that may still grow, with runs `before` and `after` that one."""
        whole = self.timing.problem.whole
        if placed == whole:
            self._leaf((*done, last) if last else done)
            return
        nexts: list[tuple[float, int, tuple[Stage, ...], Stage, Run, Run, int]] = []
        for stages, stage in self._next(done, last, placed):
            if (key := (*stages, stage)) in self._seen:
                continue
            self._seen.add(key)
            start = before if len(stages) == len(done) else after
            run = start.copy()
            run.add(stage)
            at = placed | stage.units
            if (least := self._least(run, whole & ~at)) < self.best_s * SAME:
                nexts.append((least, len(nexts), stages, stage, start, run, at))
        for least, _, stages, stage, start, run, at in sorted(nexts, key=lambda one: one[:2]):
            if least >= self.best_s * SAME:
                continue
            if self.nodes >= MOST_NODES:
                self._left = min(self._left, least)
                continue
            self.nodes += 1
            self._grow(stages, stage, start, run, at)

    def _next(
        self, done: tuple[Stage, ...], last: Stage | None, placed: int
    ) -> Iterator[tuple[tuple[Stage, ...], Stage]]:
        """Each unit that may come next, in the last stage and in one behind it."""
        problem = self.timing.problem
        for unit, before in enumerate(problem.before):
            if placed >> unit & 1 or not all(placed >> one & 1 for one in before):
                continue
            for device in range(len(problem.devices)):
                if problem.seconds[device][unit] == math.inf:
                    continue
                if last is not None and last.devices == (device,):
                    yield done, Stage(last.devices, last.units | 1 << unit)
                yield (done if last is None else (*done, last)), Stage((device,), 1 << unit)

    def _least(self, run: Run, left: int) -> float:
        """What every way to the end takes at least from a run on, the last stage of which may grow."""
        stages = dict.fromkeys(run.home.values())
        ends = {stage: span.end for stage, span in zip(stages, run.spans, strict=True)}
        placed = {unit: (stage.devices[0], ends[stage]) for unit, stage in run.home.items()}
        work: float = sum(self._ways.quickest[unit] for unit in bits(left))
        return max(self._ways.least_s(placed, run.free), (sum(run.free) + work) / len(run.free))

    def _leaf(self, stages: tuple[Stage, ...]) -> None:
        made = self.timing.timeline(stages)
        if made is not None and made.latency_s < self.best_s * SAME:
            self.best_s, self.best = made.latency_s, stages


class Ways:
    """The longest ways through a problem's units, when devices and links are free."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        count, self.devices = len(problem.before), range(len(problem.devices))
        self.quickest = [min(each) for each in zip(*problem.seconds, strict=True)]
        self.read: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.behind = [[0.0] * len(self.devices) for _ in range(count)]
        """Of each unit and its device: seconds from its end until the host has what follows from it."""
        given = [[one.elements for one in problem.tensors if one.given and one.maker == unit] for unit in range(count)]
        for tensor in problem.tensors:
            for unit in bits(tensor.readers):
                self.read[unit].append((tensor.maker, tensor.elements))
        for unit in reversed(range(count)):
            for device in self.devices:
                for elements in given[unit]:
                    own = self.behind[unit][device]
                    self.behind[unit][device] = max(own, problem.message_s(device, problem.host, elements))
            rest = [problem.seconds[device][unit] + self.behind[unit][device] for device in self.devices]
            for maker, elements in self.read[unit]:
                for source in self.devices if maker != HOST_INPUT else ():
                    way = min(problem.message_s(source, one, elements) + rest[one] for one in self.devices)
                    self.behind[maker][source] = max(self.behind[maker][source], way)

    def least_s(self, placed: Mapping[int, tuple[int, float]], free: Sequence[float]) -> float:
        """What a frame takes at least; units that are `placed` end on a device at a time, devices are `free` since."""
        problem, found = self.problem, 0.0
        ends: list[list[float]] = []
        for unit, read in enumerate(self.read):
            if unit in placed:
                device, end = placed[unit]
                ends.append([end if one == device else math.inf for one in self.devices])
            else:
                ends.append([])
                for device in self.devices:
                    ready = free[device]
                    for maker, elements in read:
                        before = enumerate(ends[maker]) if maker != HOST_INPUT else ((problem.host, 0.0),)
                        ready = max(ready, min(end + problem.message_s(one, device, elements) for one, end in before))
                    ends[unit].append(ready + problem.seconds[device][unit])
            found = max(found, min(map(add, ends[unit], self.behind[unit])))
        return found


def least_latency_s(problem: Problem) -> float:
    """What no placement's latency is below, without a search."""
    return Ways(problem).least_s({}, [0.0] * len(problem.devices))


def least_period_s(problem: Problem) -> float:
    """What no placement's period is below: what devices have to do together, in the units that weigh most.

    With factors of devices whose mean is 1, the most that one device has to do is at least the sum over units of the
    least factor times seconds, by the number of devices: the dual of sharing out units in parts (Lenstra, Shmoys and
    Tardos 1990, section 2).
    """
    seconds, devices = problem.seconds, range(len(problem.devices))
    factors, best = [1.0] * len(devices), 0.0
    for number in range(ROUNDS):
        loads = [0.0] * len(devices)
        total = 0.0
        for unit in range(len(problem.before)):
            chosen = min(devices, key=lambda one: factors[one] * seconds[one][unit])
            loads[chosen] += seconds[chosen][unit]
            total += factors[chosen] * seconds[chosen][unit]
        best = max(best, total / len(devices))
        factors = raised(factors, loads, 1 / (1 + number / 5))
    return best
