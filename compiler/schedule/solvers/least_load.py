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

from compiler.ir.plans.transfers import Transfers
from compiler.schedule.solvers.ideals import Crossing, Division, Stage, ideals

MOST_IDEALS = 700
"""Pairs of them are looked at: a tenth of a second for two devices, half a second for eight of two kinds."""
MOST_STEPS = 120_000
"""From states to states, times ideals: little more than a second. Where pairs of devices differ and there are more, a
mean of all pairs stands for each: with 700 ideals from six devices on of which none is like another."""


def least_load(
    division: Division, most_ideals: int = MOST_IDEALS, *, replicated: bool = False
) -> tuple[tuple[Stage, ...], float]:
    """The stages, first to last, and the seconds of the busiest device; devices that would slow it down have none.

    Each stage has one device, or `replicated` several equal ones: then neighbours of the result with the same calls are
    one stage, which several make no faster where a call of it reads a state that it makes. Exact where there are at
    most `most_ideals` ideals, taking a stage to read all that crosses to it from the one before. Of equal loads the one
    with the fewest devices is taken and, where pairs of devices differ in what they cost each other, with the least
    handed over. O(ideals² · states · kinds), a vector of ideals at a time; a state is how many of each kind are used
    and, where pairs differ, the kind of the last stage.
    """
    sets = ideals(division.before, most_ideals)
    kinds = _interchangeable(division)
    ordered = bool(division.pairs)
    states = _states(kinds, ordered=ordered)
    steps = [*_steps(kinds, states, replicated=replicated, ordered=ordered)]
    if ordered and len(steps) * len(sets) > MOST_STEPS:
        return least_load(division.levelled, most_ideals, replicated=replicated)
    work = np.array([[division.work_s(kind[0], one) for one in sets] for kind in kinds])
    crossing = np.array([division.crossing_bytes(one) for one in sets])
    paid = [[_taken_over(division.between(one[0], other[-1]), crossing) for other in kinds] for one in kinds]
    copies = [
        _Copies.of(division, transfers, sets) if (transfers := division.transfers_of(kind[0])) else None
        for kind in kinds
    ]
    held = reduce(or_, (one.readers & one.writers for one in division.states), 0)
    carrying = np.array([(one & held).bit_count() for one in sets])
    load = np.full((len(states), len(sets)), np.inf)
    load[0, 0] = 0.0
    handed = np.zeros_like(load)  # between all stages so far, which decides between equal loads where pairs differ
    last: dict[tuple[int, int], tuple[_Step, int]] = {}  # of a state and an ideal: the step to it, and from which ideal
    for at, ideal in enumerate(sets[1:], 1):
        begins = np.array([begin for begin in range(at) if not sets[begin] & ~ideal])
        copied = [one.seconds(begins, at) if one else 0.0 for one in copies]
        for step in steps:
            before = paid[states[step.state].last][step.kind]
            own = work[step.kind, at] - work[step.kind, begins] + before[begins] + copied[step.kind]
            own = np.where(carrying[at] > carrying[begins], own, own / step.count)
            reached = np.maximum(load[step.state, begins], own)
            best = int(reached.argmin())
            total = handed[step.state, begins] + before[begins] if ordered else handed[step.state, begins]
            if ordered:
                equal = np.flatnonzero(reached == reached[best])
                best = int(equal[total[equal].argmin()])
            if (reached[best], total[best]) < (load[step.to, at], handed[step.to, at]):
                load[step.to, at], handed[step.to, at] = reached[best], total[best]
                last[step.to, at] = step, int(begins[best])
    ends = load[:, -1]
    equal = np.flatnonzero(ends == ends.min())
    state = min((sum(states[one].used), float(handed[one, -1]), int(one)) for one in equal)[2]
    found: list[Stage] = []
    at = len(sets) - 1
    while (state, at) in last:
        step, begin = last[state, at]
        first = states[step.state].used[step.kind]
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


def _interchangeable(division: Division) -> list[list[int]]:
    """Equal devices that also cost each other the same, and every other device."""
    kinds: list[list[int]] = []
    for equal in equal_devices(division):
        own: list[list[int]] = []
        for device in equal:
            like = next((kind for kind in own if _are_twins(division, kind[0], device)), None)
            if like is None:
                own.append([device])
            else:
                like.append(device)
        kinds += own
    return kinds


def _are_twins(division: Division, one: int, other: int) -> bool:
    rest = {*range(len(division.seconds))} - {one, other}
    return all(division.between(one, device) == division.between(other, device) for device in rest)


def _taken_over(costs: Crossing, crossing: np.ndarray) -> np.ndarray:
    """Seconds to go on from each ideal, of which so many bytes cross; the first is empty, and costs nothing."""
    found: np.ndarray = costs.handover_s + costs.byte_s * crossing
    found[0] = 0.0
    return found


@dataclass(frozen=True)
class _State:
    """How many devices of each kind are used, and of which kind the last stage is; 0 where that does not matter."""

    used: tuple[int, ...]
    last: int = 0


def _states(kinds: Sequence[Sequence[int]], *, ordered: bool) -> list[_State]:
    """The first is that of no stage."""
    none, *counts = product(*(range(len(kind) + 1) for kind in kinds))
    if not ordered:
        return [_State(used) for used in (none, *counts)]
    return [_State(none), *(_State(used, last) for used in counts for last, count in enumerate(used) if count)]


@dataclass(frozen=True)
class _Step:
    """One more stage, on `count` devices of a kind: from one state, of how many of each kind are used, to another."""

    kind: int
    count: int
    state: int
    to: int


def _steps(
    kinds: Sequence[Sequence[int]], states: Sequence[_State], *, replicated: bool, ordered: bool
) -> Iterator[_Step]:
    number = {state: at for at, state in enumerate(states)}
    for state, (kind, devices) in product(states, enumerate(kinds)):
        free = len(devices) - state.used[kind]
        for count in range(1, (free if replicated else min(free, 1)) + 1):
            used = tuple(one + count if at == kind else one for at, one in enumerate(state.used))
            yield _Step(kind, count, number[state], number[_State(used, kind if ordered else 0)])
