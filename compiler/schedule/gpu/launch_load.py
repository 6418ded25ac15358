"""What a launch asks of a GPU: how long it takes alone, and how much of the device it takes up meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.schedule.gpu.code import Code, cold_s


@dataclass(frozen=True)
class LaunchLoad:
    """A launch of one or more kernels, alone on the device. Seconds, and parts of the device from 0 to 1.

    gap_s    from the end of what it depends on to the start of its first block
    start_s  from there until its blocks are at work: addresses, first trips to memory
    work_s   its blocks at work; others at work at the same time make this longer
    slots    its blocks, as a part of those that the device holds at once; 1 fills it
    share    of the multiprocessors that are at work for it, on average over `work_s`
    cross_s  how much longer the gap is where it waits for a launch of another stream
    fan_in_s the same for each further launch of other streams that it waits for
    code     of its kernels
    """

    gap_s: float
    start_s: float
    work_s: float
    slots: float
    share: float
    cross_s: float = 0.0
    fan_in_s: float = 0.0
    code: tuple[Code, ...] = ()

    def gap_after(self, elsewhere: int) -> float:
        """The gap of a launch that waits for so many launches of other streams."""
        return self.gap_s + (self.cross_s + (elsewhere - 1) * self.fan_in_s if elsewhere else 0.0)

    @property
    def run_s(self) -> float:
        """While its blocks are on the device."""
        return self.start_s + self.work_s

    @property
    def seconds(self) -> float:
        """Of a launch that follows another of its stream: what it adds to a chain of launches."""
        return self.gap_s + self.run_s


GAP, START, WORK, CODE = (0.75, 1.25), (0.6, 1.6), (1.0, 1.6), (0.0, 2.0)
"""Between which parts of what is predicted the truth is thought to lie, where nothing was measured: what is published
of launches on an H100 is 1.0 to 1.6 us; kernels reach between all and 60 % of the rates that their work is counted at;
of cold code nothing is published. An estimate."""


def with_cold_code(loads: Sequence[LaunchLoad], doubt: int | None = None) -> list[LaunchLoad]:
    """Launches in turn that begin later for code that is cold.

    With a `doubt` of 0 or 1 every figure is as small, or as large, as it may be.
    """
    gap, start, work, code = (1.0 if doubt is None else ends[doubt] for ends in (GAP, START, WORK, CODE))
    late = cold_s([load.code for load in loads])
    return [
        replace(load, gap_s=gap * load.gap_s, start_s=start * load.start_s + code * cold, work_s=work * load.work_s)
        for load, cold in zip(loads, late, strict=True)
    ]
