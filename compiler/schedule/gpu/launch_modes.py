"""The variants under which calls share a launch: each its fastest, or one that leaves more of the device to the others.

Alone a launch is as long as its call at its fastest. Where several fill the device it is as long as all their work, and
a variant that takes longer but keeps fewer multiprocessors at work makes it shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.ir.tile import Variant
from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.problem import ROUNDING

JointLaunch = Callable[[Sequence[tuple[int, Variant]]], LaunchLoad | None]
"""What calls, each under its variant, ask of the device as one launch; None where they cannot share one.
One alone always has a load.
"""


@dataclass(frozen=True)
class LaunchMode:
    """Calls as one launch: what they ask of the device, and the variant of each."""

    load: LaunchLoad
    variants: tuple[Variant, ...]


def launch_mode(
    calls: Sequence[int], options: Sequence[Sequence[Variant]], joint_launch: JointLaunch
) -> LaunchMode | None:
    """The shortest that is found; None where the calls cannot share a launch.

    `options` are the variants of each call, fastest first. From all at their fastest or all at their lowest occupancy,
    whichever is shorter, the variant of one call after another is changed as long as that helps. No launch is shorter
    than the longest of its calls alone.
    """

    def mode(variants: Sequence[Variant]) -> LaunchMode | None:
        load = joint_launch([*zip(calls, variants, strict=True)])
        return None if load is None else LaunchMode(load, tuple(variants))

    fastest, low_occupancy = (mode([every[end] for every in options]) for end in (0, -1))
    begun = [one for one in (fastest, low_occupancy) if one is not None]
    if not begun:
        return None
    best = min(begun, key=_seconds)
    least = max(every[0].cost.seconds for every in options)
    improves = True
    while improves and _seconds(best) > least * (1 + ROUNDING):
        improves = False
        for at, every in enumerate(options):
            for variant in every:
                changed = mode([*best.variants[:at], variant, *best.variants[at + 1 :]])
                if changed is not None and _seconds(changed) < _seconds(best) * (1 - ROUNDING):
                    best, improves = changed, True
    return best


def _seconds(one: LaunchMode) -> float:
    return one.load.seconds
