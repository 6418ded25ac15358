"""Resident blocks of a GPU that take tile tasks in the order of the plan, instead of launches.

Persistent threads (Gupta, Stuart and Owens, "A study of persistent threads style GPU programming for GPGPU workloads",
InPar 2012) with a queue that is the plan: an event counter for each call says how many of its tile tasks have ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from compiler.ir.tile import Variant
from compiler.schedule.gpu.code import Code, cold_s
from compiler.schedule.gpu.streams import Before


@dataclass(frozen=True)
class ResidentCall:
    """A call on resident blocks: `tiles` tasks of `tile_s` seconds each.

    All of them would keep the whole device at work for `busy_s` seconds. `code` is that of its tasks.
    """

    tiles: int
    tile_s: float
    busy_s: float
    code: tuple[Code, ...] = ()


@dataclass(frozen=True)
class Resident:
    """Calls on resident blocks, `per_multiprocessor` of them on each, `blocks` in all. Seconds.

    start_s     until the first task begins: the one launch that there is
    handover_s  from the end of the last task of a call to the start of one that waits for it
    turn_s      of a block, between two tasks
    """

    per_multiprocessor: int
    blocks: int
    calls: tuple[ResidentCall, ...]
    start_s: float
    handover_s: float
    turn_s: float

    def ordered(self, order: Sequence[int]) -> Resident:
        """The same with its calls in another order, given by their positions."""
        return replace(self, calls=tuple(self.calls[at] for at in order))

    def makespan(self, before: Before) -> float:
        """Seconds until the last task has ended; `before` are the positions of the calls that each waits for.

        Tasks are given out in order. Who has one waits for what it reads, and takes no other meanwhile. No sooner than
        the device is through with the work of all; nor a call before its code is there. O(tasks · log blocks).
        """
        free = [self.start_s] * self.blocks
        ends: list[float] = []
        late = cold_s([call.code for call in self.calls])
        for call, earlier, cold in zip(self.calls, before, late, strict=True):
            ready = max((ends[one] + self.handover_s for one in earlier), default=self.start_s) + cold
            last = ready
            for _ in range(call.tiles):
                last = max(free[0], ready) + call.tile_s
                heapq.heapreplace(free, last + self.turn_s)
            ends.append(last)
        return max(max(ends, default=0.0), self.start_s + sum(call.busy_s for call in self.calls))


@dataclass(frozen=True)
class ResidentBlocks:
    """What a device with such blocks answers.

    accepts  whether they can carry out a call under a variant; nothing is compiled for it
    load     what they take for calls, each under a variant that they accept; None where no multiprocessor holds a block
    """

    accepts: Callable[[int, Variant], bool]
    load: Callable[[Sequence[tuple[int, Variant]]], Resident | None]
