"""Kernels one after another, each split over as many lanes as pay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from compiler.ir.tile import Menu, Variant
from compiler.schedule.problem import Placed


def choose_lanes(menu: Menu, lanes: int, handover_s: float) -> tuple[Variant, int, float]:
    """The variant and lane count with the least time, and that time in seconds.

    A variant measured on several lanes counts as it is; one measured alone counts as its time divided, plus a
    hand-off.
    """
    options = [
        (variant, count, shared_seconds(variant, count) + handover_s if variant.lanes < count else variant.cost.seconds)
        for count in range(1, lanes + 1)
        for variant in variants_on(menu, count)
    ]
    return min(options, key=lambda option: option[2])


def variants_on(menu: Menu, lanes: int) -> list[Variant]:
    """Variants with tiles for so many lanes: those measured on as many if there are any.

    Else those measured on one lane, whose tiles are distributed.
    """
    able = [variant for variant in menu.variants if max(variant.tiles, 1) >= lanes]
    measured = [variant for variant in able if variant.lanes == lanes]
    return measured or [variant for variant in able if variant.lanes == 1]


def shared_seconds(variant: Variant, lanes: int) -> float:
    """Time of the lane with most tiles, when a number of lanes share a kernel."""
    return variant.cost.seconds * -(-variant.tiles // lanes) / max(variant.tiles, 1)


def sequential(choices: Sequence[tuple[Variant, int, float]]) -> tuple[Placed, ...]:
    """Each call after the one before it, on the first lanes.

    A choice is the variant, on how many lanes it runs, and the seconds that it takes there.
    """
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
