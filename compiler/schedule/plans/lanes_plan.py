"""An order of calls on lanes as a Plan: memory, tasks with their waits, verification."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import NOTHING, LaneCosts
from compiler.ir.plans.plan import Plan, ended_before
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Tile
from compiler.schedule.memory.buffers import Arena, laid_out
from compiler.schedule.memory.by_owner import ByOwner
from compiler.schedule.plans.conflicts import Conflicts
from compiler.schedule.plans.tasks import tasks_of, tasks_with
from compiler.schedule.problem import Placed

SLACKS = (2, 1)
"""Calls by which a storage outlives its last reader, so that who takes its memory then hardly ever waits for it; the
first is best.
"""
MOST_GROWTH = 1.15
"""Of the arena, for slack: it should stay in the cache."""


def plan_of(
    kernels: KernelGraph,
    placed: Sequence[Placed],
    tiles: Sequence[tuple[Tile, int]],
    lanes: int,
    before: Sequence[Sequence[int]],
    scheduler: str,
    regions: Regions | None = None,
    *,
    costs: LaneCosts = NOTHING,
) -> Plan:
    """A verified plan of a schedule; `tiles` has for each call its tile, and the number of tile tasks.

    Memory is shared by what would have ended if each call waited for all of the calls `before` it, and, on several
    lanes, a little later; by whom is decided by what writing memory costs lanes that do not own it, where `costs` say
    that. Waits are for bytes: for tasks that write what a task reads, and for those that used the memory that it uses.
    Raises VerifyError for what is no schedule.
    """
    counts = [count for _, count in tiles]
    in_order = tasks_of(placed, before, counts, lanes)
    ended = ended_before(in_order, lanes, len(tiles))
    arena = _with_slack(kernels, placed, ended) if lanes > 1 else laid_out(kernels, ended)
    if lanes > 1 and (costs.byte_s or costs.upgrade_s):
        arena = arena.moved(ByOwner(kernels, in_order, tiles, lanes, costs, regions))
    places = arena.places
    tasks = tasks_with(placed, counts, lanes, Conflicts(kernels, [tile for tile, _ in tiles], places, lanes, regions))
    plan = Plan(lanes, tasks, tuple(tiles), places, arena.bytes, scheduler)
    plan.verify(kernels, regions)
    return plan


def _with_slack(kernels: KernelGraph, placed: Sequence[Placed], ended: Sequence[int]) -> Arena:
    """With as much slack as the arena may grow for."""
    tight = laid_out(kernels, ended)
    for slack in SLACKS:
        roomy = laid_out(kernels, ended, _long_ended(placed, ended, slack))
        if roomy.bytes <= MOST_GROWTH * tight.bytes:
            return roomy
    return tight


def _long_ended(placed: Sequence[Placed], ended: Sequence[int], slack: int) -> list[int]:
    """`ended` without so many calls that are placed just before each call."""
    found = [*ended]
    for at, one in enumerate(placed):
        for recent in placed[max(at - slack, 0) : at]:
            found[one.call] &= ~(1 << recent.call)
    return found
