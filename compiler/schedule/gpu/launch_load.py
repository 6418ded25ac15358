"""What a launch asks of a GPU: how long it takes alone, and how much of the device it takes up meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    gap_s: float
    start_s: float
    work_s: float
    slots: float
    share: float
    cross_s: float = 0.0
    fan_in_s: float = 0.0

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
