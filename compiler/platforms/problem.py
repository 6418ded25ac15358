"""What is to be placed on several devices of a described platform."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.schedule.solvers.sets import bits

HOST_INPUT = -1
"""The producer of what a frame is given."""
UNSUPPORTED = math.inf
"""Seconds of what cannot run."""


@dataclass(frozen=True)
class Tensor:
    """Elements that a unit makes (HOST_INPUT: the caller) and others read; `given`: the caller gets them too."""

    elements: int
    maker: int
    readers: int
    given: bool = False


@dataclass(frozen=True)
class Device:
    """One device of a problem.

    kind           devices of one kind are equal
    call_s         seconds of each stage that begins
    memory         bytes of weights that stay on the chip; others are brought at `streamed` bytes per second
    element_bytes  of an element, as it is stored and sent
    space, bytes   a memory that it shares with the devices that name the same, and how many bytes of weights it holds
    handover_s     seconds until another device goes on in that memory
    """

    name: str
    kind: str
    call_s: float = 0.0
    memory: float = math.inf
    streamed: float = math.inf
    element_bytes: int = 4
    space: str | None = None
    bytes: float = math.inf
    handover_s: float = 0.0


@dataclass(frozen=True)
class Link:
    """From one device to another: seconds of a message, bytes per second. Both directions of a cable have its name."""

    name: str
    latency_s: float
    bytes_s: float
    ends: tuple[int, int]
    blocks: int | None = None
    """A device that computes nothing meanwhile."""


@dataclass(frozen=True)
class Problem:
    """Units, each after those that it reads from, on devices of which the one at `host` has the caller's tensors.

    names    of each unit
    before   of each unit those that it reads from
    seconds  for each device what each unit takes; UNSUPPORTED where it cannot run
    weights  of each unit the constants that it reads, as elements by an id
    fixed    units that hold a state from frame to frame: they run on one device
    """

    names: Sequence[str]
    before: Sequence[Sequence[int]]
    seconds: Sequence[Sequence[float]]
    weights: Sequence[Mapping[int, int]]
    tensors: Sequence[Tensor]
    devices: Sequence[Device]
    links: Mapping[tuple[int, int], Link]
    host: int = 0
    fixed: int = 0

    @property
    def whole(self) -> int:
        """All units."""
        return (1 << len(self.before)) - 1

    @cached_property
    def routes(self) -> Mapping[tuple[int, int], tuple[Link, ...]]:
        """The quickest way for a small message between any two devices; none within a memory that both share."""
        found: dict[tuple[int, int], tuple[Link, ...]] = {}
        devices = range(len(self.devices))
        for first in devices:
            reached: dict[int, tuple[float, tuple[Link, ...]]] = {first: (0.0, ())}
            waiting = [first]
            while waiting:
                at = waiting.pop(0)
                for other in devices:
                    cost, way = reached[at]
                    if at != other and self.shares(at, other):
                        cost += self.devices[other].handover_s
                    elif (at, other) in self.links:
                        link = self.links[at, other]
                        cost, way = cost + link.latency_s + 4096 / link.bytes_s, (*way, link)
                    else:
                        continue
                    if other not in reached or cost < reached[other][0]:
                        reached[other] = cost, way
                        waiting.append(other)
            found |= {(first, other): way for other, (_, way) in reached.items()}
        return found

    def shares(self, first: int, second: int) -> bool:
        """Whether two devices share a memory."""
        space = self.devices[first].space
        return first != second and space is not None and space == self.devices[second].space

    def element_bytes(self, first: int, second: int) -> int:
        """Of an element that goes between two devices: the narrower one's."""
        return min(self.devices[first].element_bytes, self.devices[second].element_bytes)

    def message_s(self, first: int, second: int, elements: float) -> float:
        """Seconds of a message when every link is free."""
        if first == second:
            return 0.0
        size = elements * self.element_bytes(first, second)
        hops = self.routes[first, second]
        return (0.0 if hops else self.devices[second].handover_s) + sum(
            link.latency_s + size / link.bytes_s for link in hops
        )

    def equal(self, device: int) -> tuple[int, ...]:
        """The devices of the same kind, itself among them."""
        return tuple(at for at, one in enumerate(self.devices) if one.kind == self.devices[device].kind)

    def joined(self, groups: Sequence[Sequence[int]]) -> Problem:
        """With groups of units as the units. Each group comes after those it reads from, and none is in a circle."""
        number = {unit: at for at, group in enumerate(groups) for unit in group}

        def together(units: int) -> int:
            found = 0
            for unit in bits(units):
                found |= 1 << number[unit]
            return found

        tensors = []
        for one in self.tensors:
            maker = HOST_INPUT if one.maker == HOST_INPUT else number[one.maker]
            readers = together(one.readers)
            if maker != HOST_INPUT:
                readers &= ~(1 << maker)
            if readers or one.given:
                tensors.append(replace(one, maker=maker, readers=readers))
        return replace(
            self,
            names=[self.names[group[-1]] for group in groups],
            before=[
                tuple(sorted({number[one] for unit in group for one in self.before[unit]} - {at}))
                for at, group in enumerate(groups)
            ],
            seconds=[[sum(each[unit] for unit in group) for group in groups] for each in self.seconds],
            weights=[{id: size for unit in group for id, size in self.weights[unit].items()} for group in groups],
            tensors=tensors,
            fixed=together(self.fixed),
        )
