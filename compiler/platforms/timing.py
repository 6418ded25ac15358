"""Stages on devices as a timeline: when one frame by itself ends, and what each device and link has to do for a frame.

A period is the most that a device or a link has to do for a frame. With enough frames in flight a schedule of that
period is there: stages of a device follow each other in any order, each for a frame of its own, as long as what is
between them is stored (modulo scheduling without a recurrence, Rau 1994). Recurrences lie within a stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.platforms.problem import HOST_INPUT, Problem
from compiler.schedule.solvers.sets import bits


@dataclass(frozen=True)
class Stage:
    """Units on a device; on several equal ones each takes a frame in turn."""

    devices: tuple[int, ...]
    units: int


@dataclass(frozen=True)
class Span:
    """A stage's run for one frame, in seconds."""

    device: int
    stage: int
    begin: float
    end: float


@dataclass(frozen=True)
class Sending:
    """A message over a link for one frame, in seconds."""

    link: str
    ends: tuple[int, int]
    elements: int
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What stages come to.

    latency_s  of one frame by itself, until the host has its outputs
    period_s   between the ends of frames, with enough of them in flight
    busy       of each device and link seconds for a frame
    streamed   of each device bytes of weights that are brought for a frame
    """

    stages: tuple[Stage, ...]
    latency_s: float
    period_s: float
    spans: tuple[Span, ...]
    sendings: tuple[Sending, ...]
    busy: tuple[tuple[str, float], ...]
    streamed: tuple[float, ...]


class Timing:
    """Timelines of one problem; what stages read is kept from one to the next."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._work: dict[tuple[int, int], float] = {}
        self._weights: dict[int, dict[int, int]] = {}
        self._reads: dict[int, list[int]] = {}

    def work_s(self, device: int, units: int) -> float:
        """What units take on a device; infinite where one cannot run there."""
        if (device, units) not in self._work:
            self._work[device, units] = sum(self.problem.seconds[device][unit] for unit in bits(units))
        return self._work[device, units]

    def timeline(self, stages: Sequence[Stage]) -> Timeline | None:
        """None where a unit cannot run where it is, or weights do not fit. O(stages · what they read)."""
        return Run(self).timeline(stages)

    def weights(self, units: int) -> dict[int, int]:
        """Elements of the constants that units read, each once."""
        if units not in self._weights:
            self._weights[units] = {id: size for unit in bits(units) for id, size in self.problem.weights[unit].items()}
        return self._weights[units]

    def reads(self, units: int) -> list[int]:
        """Tensors that units read and others, or the caller, made: their positions."""
        if units not in self._reads:
            self._reads[units] = [
                at
                for at, one in enumerate(self.problem.tensors)
                if one.readers & units and not (one.maker != HOST_INPUT and units >> one.maker & 1)
            ]
        return self._reads[units]


class Run:
    """One frame, stage by stage."""

    def __init__(self, timing: Timing) -> None:
        self.timing, self.problem = timing, timing.problem
        count = len(self.problem.devices)
        self.free = [0.0] * count
        self.loads = [0.0] * count
        self.brought = [0.0] * count
        self.link_free: dict[str, float] = {}
        self.link_loads: dict[str, float] = {}
        self.there: dict[tuple[int, tuple[int, ...]], float] = {}  # of a tensor on a stage's devices: since when
        self.home: dict[int, Stage] = {}
        self.spans: list[Span] = []
        self.sendings: list[Sending] = []

    def copy(self) -> Run:
        """The same, to be continued in another way."""
        other = Run(self.timing)
        other.free, other.loads, other.brought = self.free.copy(), self.loads.copy(), self.brought.copy()
        other.link_free, other.link_loads = self.link_free.copy(), self.link_loads.copy()
        other.there, other.home = self.there.copy(), self.home.copy()
        other.spans, other.sendings = self.spans.copy(), self.sendings.copy()
        return other

    def add(self, stage: Stage, streamed: float = 0.0) -> float:
        """The next stage, with bytes of weights that are brought; when it ends, infinite where it cannot run."""
        problem, device = self.problem, stage.devices[0]
        one = problem.devices[device]
        seconds = self.timing.work_s(device, stage.units)
        if seconds == math.inf:
            return math.inf
        seconds += one.call_s + streamed / one.streamed
        self.home.update(dict.fromkeys(bits(stage.units), stage))
        begin = max(self._bring(self.timing.reads(stage.units), stage.devices), self.free[device])
        end = begin + seconds
        self.free[device] = end
        for copy in stage.devices:
            self.loads[copy] += seconds / len(stage.devices)
            self.brought[copy] += streamed / len(stage.devices)
        for at, tensor in enumerate(problem.tensors):
            if tensor.maker != HOST_INPUT and stage.units >> tensor.maker & 1:
                self.there[at, stage.devices] = end
        self.spans.append(Span(device, len(self.spans), begin, end))
        return end

    def ended(self) -> float:
        """When the host has its outputs, once all stages are there."""
        given = [at for at, one in enumerate(self.problem.tensors) if one.given]
        return max([self._bring(given, (self.problem.host,)), *(one.end for one in self.spans)])

    def timeline(self, stages: Sequence[Stage]) -> Timeline | None:
        """As that of `Timing`."""
        problem = self.problem
        streamed = self._streamed(stages)
        if streamed is None or any(math.isinf(self.add(*one)) for one in zip(stages, streamed, strict=True)):
            return None
        latency = self.ended()
        busy = [(one.name, load) for one, load in zip(problem.devices, self.loads, strict=True)]
        busy += sorted(self.link_loads.items())
        period = max(load for _, load in busy)
        found = tuple(self.spans), tuple(self.sendings), tuple(busy), tuple(self.brought)
        return Timeline(tuple(stages), latency, period, *found)

    def _bring(self, tensors: Sequence[int], to: tuple[int, ...]) -> float:
        """When tensors are on a stage's devices: those that come from one place are one message."""
        ready = 0.0
        messages: dict[tuple[int, ...], list[int]] = {}
        for at in tensors:
            maker = self.problem.tensors[at].maker
            source = (self.problem.host,) if maker == HOST_INPUT else self.home[maker].devices
            if maker == HOST_INPUT:
                self.there.setdefault((at, source), 0.0)
            if (at, to) in self.there:
                ready = max(ready, self.there[at, to])
            else:
                messages.setdefault(source, []).append(at)
        for source, sent in sorted(messages.items()):
            begin = max(self.there[at, source] for at in sent)
            elements = sum(self.problem.tensors[at].elements for at in sent)
            end = self._send(source, to, elements, begin)
            for at in sent:
                self.there[at, to] = end
            ready = max(ready, end)
        return ready

    def _send(self, source: tuple[int, ...], to: tuple[int, ...], elements: int, ready: float) -> float:
        """When a message is there, between the first devices of both; each pair of copies has its part of the load."""
        for one in source:
            for other in to:
                self._load(one, other, elements, 1 / (len(source) * len(to)))
        problem = self.problem
        if source[0] == to[0]:
            return ready
        hops = problem.routes[source[0], to[0]]
        if not hops:
            return ready + problem.devices[to[0]].handover_s
        size = elements * problem.element_bytes(source[0], to[0])
        for link in hops:
            begin = max(ready, self.link_free.get(link.name, 0.0))
            if link.blocks is not None:
                begin = max(begin, self.free[link.blocks])
            ready = begin + link.latency_s + size / link.bytes_s
            self.link_free[link.name] = ready
            if link.blocks is not None:
                self.free[link.blocks] = ready
            self.sendings.append(Sending(link.name, link.ends, elements, begin, ready))
        return ready

    def _load(self, source: int, to: int, elements: int, part: float) -> None:
        if source == to:
            return
        size = elements * self.problem.element_bytes(source, to)
        for link in self.problem.routes[source, to]:
            seconds = part * (link.latency_s + size / link.bytes_s)
            self.link_loads[link.name] = self.link_loads.get(link.name, 0.0) + seconds
            if link.blocks is not None:
                self.loads[link.blocks] += seconds

    def _streamed(self, stages: Sequence[Stage]) -> list[float] | None:
        """Of each stage the bytes of weights that are brought; None where they do not fit into a memory at all.

        On the chip stay the weights that most stages read, the smaller ones first.
        """
        problem = self.problem
        found = [0.0] * len(stages)
        spaces: dict[str, dict[int, float]] = {}
        for device, one in enumerate(problem.devices):
            own = [at for at, stage in enumerate(stages) if device in stage.devices]
            weights = [self.timing.weights(stages[at].units) for at in own]
            sizes = {id: size * one.element_bytes for each in weights for id, size in each.items()}
            if one.space is not None:
                spaces.setdefault(one.space, {}).update(sizes)
                if sum(spaces[one.space].values()) > one.bytes:
                    return None
            if sum(sizes.values()) <= one.memory:
                continue
            uses = {id: sum(id in each for each in weights) for id in sizes}
            left = one.memory
            kept = set()
            for id in sorted(sizes, key=lambda id: (-uses[id], sizes[id], id)):
                if sizes[id] <= left:
                    left -= sizes[id]
                    kept.add(id)
            for at, each in zip(own, weights, strict=True):
                if device == stages[at].devices[0]:
                    found[at] = float(sum(sizes[id] for id in each if id not in kept))
        return found
