"""A pipeline: the calls in stages, each on devices of its own, so that the device with most to do has least.

With frames following each other, one ends as often as the slowest stage takes: 1 / throughput. Dynamic programming
over ideals (NeurIPS 2020, as in `ideals`) and over how many devices of each kind are used: the least load of the first
stages that together are an ideal is the larger of the last stage's and of the least load of what is before it. A stage
may have several equal devices, to which frames are dealt in turn (Narayanan et al., "PipeDream", SOSP 2019, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import or_

import numpy as np

from compiler.ir.transfers import Transfers
from compiler.schedule.solvers.ideals import Division, Stage, ideals

MOST_IDEALS = 700
"""Pairs of them are looked at: a tenth of a second for two devices, half a second for eight of two kinds."""


def least_load(
    division: Division, most_ideals: int = MOST_IDEALS, *, replicated: bool = False
) -> tuple[tuple[Stage, ...], float]:
    """The stages, first to last, and the seconds of the busiest device; devices that would slow it down have none.

    Each stage has one device, or `replicated` several equal ones: then neighbours of the result with the same calls are
    one stage, which several make no faster where a call of it reads a state that it makes. Exact where there are at
    most `most_ideals` ideals. Of equal loads the one with the fewest devices is
    taken. O(ideals² · states · kinds), a vector of ideals at a time; a state is how many of each kind are used.
    """
    sets = ideals(division.before, most_ideals)
    kinds = equal_devices(division)
    states = [*product(*(range(len(kind) + 1) for kind in kinds))]
    steps = [*_steps(kinds, states, replicated=replicated)]
    work = np.array([[division.work_s(kind[0], one) for one in sets] for kind in kinds])
    paid = np.array([division.taking_over_s(one) for one in sets])
    copies = [
        _Copies.of(division, transfers, sets) if (transfers := division.transfers_of(kind[0])) else None
        for kind in kinds
    ]
    held = reduce(or_, (one.readers & one.writers for one in division.states), 0)
    carrying = np.array([(one & held).bit_count() for one in sets])
    load = np.full((len(states), len(sets)), np.inf)
    load[0, 0] = 0.0
    last: dict[tuple[int, int], tuple[_Step, int]] = {}  # of a state and an ideal: the step to it, and from which ideal
    for at, ideal in enumerate(sets[1:], 1):
        begins = np.array([begin for begin in range(at) if not sets[begin] & ~ideal])
        copied = [one.seconds(begins, at) if one else 0.0 for one in copies]
        for step in steps:
            own = work[step.kind, at] - work[step.kind, begins] + paid[begins] + copied[step.kind]
            own = np.where(carrying[at] > carrying[begins], own, own / step.count)
            reached = np.maximum(load[step.state, begins], own)
            best = int(reached.argmin())
            if reached[best] < load[step.to, at]:
                load[step.to, at] = reached[best]
                last[step.to, at] = step, int(begins[best])
    ends = load[:, -1]
    state = min((sum(states[one]), int(one)) for one in np.flatnonzero(ends == ends.min()))[1]
    found: list[Stage] = []
    at = len(sets) - 1
    while (state, at) in last:
        step, begin = last[state, at]
        first = states[step.state][step.kind]
        devices = kinds[step.kind][first : first + step.count]
        found = [*((device, sets[at] & ~sets[begin]) for device in devices), *found]
        state, at = step.state, begin
    return tuple(found), float(ends.min())


@dataclass(frozen=True)
class _Copies:
    """What stages between ideals copy on a device with a memory of its own.

    `written` and `read` say for each tensor and ideal how many of its writers and readers are within.
    """

    transfers: Transfers
    sizes: np.ndarray
    written: np.ndarray
    read: np.ndarray
    given: np.ndarray
    leaves: np.ndarray

    @staticmethod
    def of(division: Division, transfers: Transfers, sets: Sequence[int]) -> _Copies:
        tensors = division.tensors
        written, read = (
            np.array([[(users & one).bit_count() for one in sets] for users in each], np.int32).reshape(-1, len(sets))
            for each in ([one.writers for one in tensors], [one.readers for one in tensors])
        )
        given = np.array([not one.writers for one in tensors], np.bool_)[:, None]
        leaves = np.array([one.leaves for one in tensors], np.bool_)[:, None]
        return _Copies(transfers, np.array([float(one.bytes) for one in tensors]), written, read, given, leaves)

    def seconds(self, begins: np.ndarray, end: int) -> np.ndarray:
        """Of the stages from each of these ideals to that at `end`: `Division.copied_s`."""
        how, (written, read) = self.transfers, (one[:, end, None] for one in (self.written, self.read))
        is_brought = (self.given | (self.written[:, begins] > 0)) & (read > self.read[:, begins])
        is_returned = (written > self.written[:, begins]) & (self.leaves | (read < self.read[:, -1:]))
        copies = how.copy_s * (is_brought.sum(axis=0) + is_returned.sum(axis=0))
        moved = how.in_byte_s * (self.sizes @ is_brought) + how.out_byte_s * (self.sizes @ is_returned)
        return np.asarray(how.run_s + copies + moved)


def equal_devices(division: Division) -> list[list[int]]:
    """The devices by kind: those of one take the same for every call, and copy alike."""
    kinds: dict[tuple[Transfers | None, tuple[float, ...]], list[int]] = {}
    for device, seconds in enumerate(division.seconds):
        kinds.setdefault((division.transfers_of(device), tuple(seconds)), []).append(device)
    return [*kinds.values()]


@dataclass(frozen=True)
class _Step:
    """One more stage, on `count` devices of a kind: from one state, of how many of each kind are used, to another."""

    kind: int
    count: int
    state: int
    to: int


def _steps(kinds: Sequence[Sequence[int]], states: Sequence[tuple[int, ...]], *, replicated: bool) -> Iterator[_Step]:
    number = {state: at for at, state in enumerate(states)}
    for state, (kind, devices) in product(states, enumerate(kinds)):
        free = len(devices) - state[kind]
        for count in range(1, (free if replicated else min(free, 1)) + 1):
            to = tuple(one + count if at == kind else one for at, one in enumerate(state))
            yield _Step(kind, count, number[state], number[to])
