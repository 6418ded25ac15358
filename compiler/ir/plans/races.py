"""Whether tasks that touch the same bytes are ordered: the check that a plan's waits leave no race, whoever made them.

A task's clock says how many tasks of each lane have ended for certain when it begins; two tasks are ordered if the
clock of one counts the other (vector clocks: Mattern, "Virtual Time and Global States of Distributed Systems", 1989).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, written_over

Clock = tuple[int, ...]
"""How many tasks of each lane have ended."""


def latest(one: Clock, other: Clock) -> Clock:
    """What has ended when both have come."""
    return tuple(map(max, one, other))


@dataclass(frozen=True)
class Step:
    """A task, the `number`th of its lane (from 1), with what has ended for certain when it begins, and what it touches.

    `call` is None for a copy.
    """

    call: int | None
    lane: int
    number: int
    begins: Clock
    accesses: tuple[Access, ...]

    def follows(self, other: Step) -> bool:
        """Whether the other has ended when this one begins."""
        return self.begins[other.lane] >= other.number

    def named(self, kernels: KernelGraph) -> str:
        """What it is, for messages."""
        if self.call is None:
            source, target = self.accesses
            return f"the copy of storage s{source.storage} from memory {source.memory} to {target.memory}"
        return f"call {self.call} `{kernels.calls[self.call]}`"


@dataclass(frozen=True)
class _Touch:
    """A step at bytes [begin, end) of a storage, or of the arena."""

    step: Step
    begin: int
    end: int
    writes: bool


def verify_reads(steps: Sequence[Step], kernels: KernelGraph) -> None:
    """Raises VerifyError unless reads begin after the writes that they need.

    Each task that reads bytes begins after those have ended that write them in earlier calls. Calls write each byte of
    a storage once (`KernelGraph`), so that this is all that can go wrong within one.
    """
    for storage, touches in _by_storage(steps).items():
        writers = [one for one in touches if one.writes]
        for reader in touches:
            if reader.writes:
                continue
            for writer in writers:
                if (
                    before_in_graph(writer.step, reader.step)
                    and writer.begin < reader.end
                    and reader.begin < writer.end
                    and not reader.step.follows(writer.step)
                ):
                    before, after = writer.step, reader.step
                    raise VerifyError(
                        f"{after.named(kernels)} reads what call {before.call} writes (storage s{storage}, bytes "
                        f"{max(writer.begin, reader.begin)}..{min(writer.end, reader.end)}), "
                        f"but nothing makes call {after.call} on lane "
                        f"{after.lane} wait for lane {before.lane}'s task {before.number}"
                    )


def before_in_graph(writer: Step, reader: Step) -> bool:
    """Whether what the one writes is meant for the other: its call comes before; a copy takes what all calls write."""
    return writer.call is not None and (reader.call is None or writer.call < reader.call)


def verify_memory(
    steps: Sequence[Step], kernels: KernelGraph, arena: Mapping[int, tuple[int, int]], memory: int = 0
) -> None:
    """Raises VerifyError unless tasks that touch different storages at the same bytes of an arena are ordered.

    Only tasks of which one writes need to be. `arena` has the bytes [begin, end) of each storage in the arena of one
    memory. Of two storages one comes first wherever they meet. A call may write one over another that lies at the same
    place if it reads that only at the point that it writes: then none of its tasks reads what another writes.
    """
    touched = _by_storage(steps, memory)
    placed = [storage for storage in arena if storage in touched]
    for one, other in _unsettled(placed, touched, arena):
        exempt = {
            call
            for new, old in ((one, other), (other, one))
            if arena[new][0] == arena[old][0]
            for call in {touch.step.call for touch in touched[new]}
            if call is not None and (new, old) in written_over(kernels, call)
        }
        found: set[bool] = set()
        for before, after in _conflicts(touched[one], touched[other], arena[one][0], arena[other][0]):
            if before.call == after.call and before.call in exempt:
                continue
            forward, backward = after.follows(before), before.follows(after)
            found.add(forward)
            if len(found) > 1 or forward == backward:
                raise VerifyError(
                    f"storages s{one} and s{other} overlap in the arena, and nothing makes the calls "
                    "that use the one wait for those that use the "
                    f"other: {before.named(kernels)} on lane {before.lane} "
                    f"and {after.named(kernels)} on lane {after.lane}"
                )


def _by_storage(steps: Sequence[Step], memory: int = 0) -> dict[int, list[_Touch]]:
    """What touches each storage in one memory."""
    found: dict[int, list[_Touch]] = {}
    for step in steps:
        for access in step.accesses:
            if access.memory != memory:
                continue
            touch = _Touch(step, access.begin, access.end, access.writes)
            found.setdefault(access.storage, []).append(touch)
    return found


def _unsettled(
    placed: Sequence[int], touched: Mapping[int, Sequence[_Touch]], arena: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Pairs of storages that overlap and are not ordered.

    Not all that touches the one has ended when anything begins that touches the other.
    """
    if not placed:
        return
    steps = [[touch.step for touch in touched[storage]] for storage in placed]
    lanes = range(len(steps[0][0].begins))
    ends = np.array([[max((s.number for s in own if s.lane == lane), default=0) for lane in lanes] for own in steps])
    begins = np.array([[min(s.begins[lane] for s in own) for lane in lanes] for own in steps])
    follows = (ends[:, None, :] <= begins[None, :, :]).all(axis=2)
    low, high = np.array([arena[storage] for storage in placed]).T
    overlap = (low[:, None] < high[None, :]) & (low[None, :] < high[:, None])
    for at, other in zip(*np.nonzero(np.triu(overlap & ~follows & ~follows.T, 1)), strict=True):
        yield placed[at], placed[other]


def _conflicts(
    one: Sequence[_Touch], other: Sequence[_Touch], shift: int, other_shift: int
) -> Iterable[tuple[Step, Step]]:
    """Pairs of steps that meet in the arena, at least one of them writing.

    The storages lie at `shift` and `other_shift`.
    """
    for left in one:
        begin, end = left.begin + shift - other_shift, left.end + shift - other_shift
        for right in other:
            if (left.writes or right.writes) and right.begin < end and begin < right.end:
                yield left.step, right.step
