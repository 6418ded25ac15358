"""Kernels one after another, each split over as many lanes as pay."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.plan import Task, Wait
from compiler.ir.tile import Menu, Variant


def choose_lanes(menu: Menu, lanes: int, handover_s: float) -> tuple[Variant, int, float]:
    """The variant and lane count with the least time, and that time in seconds.

    A variant measured on several lanes counts as it is; one measured alone counts as its time divided, plus a hand-over.
    """
    best: tuple[Variant, int, float] | None = None
    for variant in menu.variants:
        if variant.lanes > lanes:
            continue
        options = [(variant.lanes, variant.cost.seconds)]
        if variant.lanes == 1:
            options += [(n, shared_seconds(variant, n) + handover_s) for n in range(2, lanes + 1)]
        for count, seconds in options:
            if min(count, max(variant.tiles, 1)) == count and (best is None or seconds < best[2]):
                best = (variant, count, seconds)
    assert best is not None, "a menu has a variant for one lane"
    return best


def shared_seconds(variant: Variant, lanes: int) -> float:
    """Time of the lane with most tiles, when a number of lanes share a kernel."""
    return variant.cost.seconds * -(-variant.tiles // lanes) / max(variant.tiles, 1)


def sequential(choices: Sequence[tuple[Variant, int]], lanes: int) -> tuple[Task, ...]:
    """Tasks in call order; each waits for every task of the call before it, on other lanes explicitly and on its own by order."""
    tasks: list[Task] = []
    done = [0] * lanes
    before: dict[int, int] = {}
    for call, (variant, count) in enumerate(choices):
        if not variant.tiles:
            continue
        now: dict[int, int] = {}
        for lane in range(count):
            first, last = variant.tiles * lane // count, variant.tiles * (lane + 1) // count
            waits = tuple(Wait(other, reached) for other, reached in sorted(before.items()) if other != lane)
            tasks.append(Task(call, lane, first, last, waits))
            now[lane] = done[lane] + 1
        for lane in now:
            done[lane] += 1
        before = now
    return tuple(tasks)
