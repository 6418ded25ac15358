"""Kernels one after another, each split over as many lanes as pay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from compiler.ir.tile import Menu, Variant
from compiler.schedule.problem import Placed


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


def sequential(choices: Sequence[tuple[Variant, int, float]]) -> tuple[Placed, ...]:
    """Each call, carried out as a variant says on so many lanes in so many seconds, after the one before it, on the first lanes."""
    ends = accumulate((seconds for _, _, seconds in choices), initial=0.0)
    return tuple(
        Placed(call, tuple(range(count)), begin, begin + seconds)
        for call, ((_, count, seconds), begin) in enumerate(zip(choices, ends, strict=False))
    )


def one_by_one(variants: Sequence[Variant]) -> list[tuple[int, ...]]:
    """For each call the one before it that has anything to do."""
    before: list[tuple[int, ...]] = []
    last: tuple[int, ...] = ()
    for call, variant in enumerate(variants):
        before.append(last)
        last = (call,) if variant.tiles else last
    return before
