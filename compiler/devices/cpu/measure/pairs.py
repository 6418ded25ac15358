"""Pairs of cores in rounds: those of one round share no core, so that they are measured at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compiler.ir.machine import Record
from compiler.ir.plans.lanes import Pair

SYSTEM = Path("/sys/devices/system/cpu")


def rounds_of(cores: Sequence[int], places: Mapping[int, str]) -> list[list[Pair]]:
    """Every pair of cores once, in rounds as of a tournament: one stays where it is, the others move on by one place.

    n - 1 rounds of n / 2 pairs, one round more where n is odd. Cores of one place, threads of one core, do not work at
    the same time but as a pair: rounds become more by as much as that takes. A pair has its lower core first.
    """
    ring: list[int | None] = [*sorted(cores), *([None] if len(cores) % 2 else [])]
    rounds: list[list[Pair]] = []
    for _ in ring[1:]:
        for one, other in zip(ring[: len(ring) // 2], reversed(ring), strict=False):
            if one is not None and other is not None:
                _enter(rounds, (min(one, other), max(one, other)), places)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def places_of(cores: Sequence[int], system: Path = SYSTEM) -> dict[int, str]:
    """By position among the cores of this process: its threads, as the system lists those of one core, or itself."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    found = {at: str(at) for at in cores}
    for at in cores:
        if at < len(allowed):
            listed = system / f"cpu{allowed[at]}" / "topology" / "thread_siblings_list"
            found[at] = listed.read_text().strip() if listed.exists() else str(allowed[at])
    return found


def at_once(pairs: Sequence[Pair], measured: Callable[[Pair], Record | None]) -> dict[Pair, Record]:
    """What is measured of pairs that share no core, each by a thread of its own; raises what one of them raises."""
    with ThreadPoolExecutor(max_workers=len(pairs)) as threads:
        found = [*threads.map(measured, pairs)]
    return {pair: record for pair, record in zip(pairs, found, strict=True) if record is not None}


def _enter(rounds: list[list[Pair]], pair: Pair, places: Mapping[int, str]) -> None:
    """Into the first round in which nobody is at its places."""
    own = {places[core] for core in pair}
    for other in rounds:
        if own.isdisjoint(places[core] for each in other for core in each):
            other.append(pair)
            return
    rounds.append([pair])
