"""A pipeline: the calls in stages, each on a device of its own, so that the device with most to do has least.

With frames following each other, one ends as often as the slowest stage takes: 1 / throughput. Dynamic programming
over ideals and sets of devices (NeurIPS 2020, as in `ideals`): the least load of the first stages that together are an
ideal is the larger of the last stage's and of the least load of what is before it.
"""

from __future__ import annotations

from compiler.schedule.solvers.ideals import Division, Stage, ideals

MOST_IDEALS = 700
"""Pairs of them are looked at: some tenths of a second for two devices."""


def least_load(division: Division, most_ideals: int = MOST_IDEALS) -> tuple[tuple[Stage, ...], float]:
    """The stages, first to last, and the largest load of one in seconds; devices that would slow it down have none.

    Exact where there are at most `most_ideals` ideals. Of equal loads the one with the fewest stages is taken.
    O(ideals² · devices · 2^devices).
    """
    sets = ideals(division.before, most_ideals)
    devices = range(len(division.seconds))
    work = {device: {one: division.work_s(device, one) for one in sets} for device in devices}
    paid = {one: division.taking_over_s(one) for one in sets}
    best: dict[tuple[int, int], tuple[float, int]] = {(0, 0): (0.0, 0)}  # of an ideal on a set of devices
    last: dict[tuple[int, int], tuple[int, int]] = {}  # the ideal before its last stage, and that one's device
    for at, ideal in enumerate(sets[1:], 1):
        for begin in sets[:at]:
            if begin & ~ideal:
                continue
            for device in devices:
                load = work[device][ideal] - work[device][begin] + paid[begin]
                for used in range(1 << len(devices)):
                    if used >> device & 1 or (begin, used) not in best:
                        continue
                    reached, stages = best[begin, used]
                    found = (max(reached, load), stages + 1)
                    key = ideal, used | 1 << device
                    if key not in best or found < best[key]:
                        best[key], last[key] = found, (begin, device)
    load, key = min((best[key][0], best[key][1], key) for key in best if key[0] == division.whole)[::2]
    stages_found: list[Stage] = []
    while key in last:
        begin, device = last[key]
        stages_found.append((device, key[0] & ~begin))
        key = begin, key[1] & ~(1 << device)
    return tuple(stages_found[::-1]), load
