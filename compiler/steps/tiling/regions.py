"""Regions while kernels are tiled: the calls inside of them are tiled beside those of the graph around them.

A region itself has one tile, and is never measured by itself: how often it runs is for data to say. What it costs is
what its calls cost, as often as they may run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.region import Region, inner_calls, regions_of
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.tuning.tune import workload_key

WorkloadOf = Callable[[KernelGraph, Call], Workload]
REGION = Tile("region")
MOST_TIMES = 1000
"""Times that a call inside a loop counts when it is decided what to measure first."""


@dataclass(frozen=True)
class Inner:
    """A call inside of a region, and how often it runs, as far as that is known."""

    call: Call
    workload: Workload
    times: int


def inner_workloads(kernels: KernelGraph, workload_of: WorkloadOf) -> list[Inner]:
    """Of all regions, nested ones too."""
    return [
        Inner(body.calls[position], workload_of(body, body.calls[position]), min(times, MOST_TIMES))
        for body, position, times in inner_calls(kernels)
    ]


def outer_positions(kernels: KernelGraph) -> list[int]:
    """The calls that are no regions."""
    inside = {position for position, _ in regions_of(kernels)}
    return [position for position in range(len(kernels.calls)) if position not in inside]


@dataclass(frozen=True)
class Settled:
    """Kernels whose regions have tiles, and of each region, by position, the menu."""

    kernels: KernelGraph
    menus: Mapping[int, Menu]


def settled(kernels: KernelGraph, menus: Sequence[Menu], workload_of: WorkloadOf) -> Settled:
    """With the best tiles of the calls inside; `menus` are theirs, in the order of `inner_workloads`."""
    return _settled(kernels, iter(menus), workload_of)


def _settled(kernels: KernelGraph, menus: Iterator[Menu], workload_of: WorkloadOf) -> Settled:
    calls, found = [*kernels.calls], {}
    for position, region in regions_of(kernels):
        bodies, tiles, costs = [], [], []
        for body in region.bodies:
            own = {at: next(menus) for at in outer_positions(body)}
            inside = _settled(body, menus, workload_of)
            every = [{**own, **inside.menus}[at].best for at in range(len(body.calls))]
            bodies.append(inside.kernels)
            tiles.append(tuple(variant.tile for variant in every))
            costs.append([variant.cost for variant in every])
        tiled = replace(region, bodies=tuple(bodies), tiles=tuple(tiles), costs=tuple(map(tuple, costs)))
        calls[position] = replace(calls[position], kernel=tiled)
        key = workload_key(workload_of(kernels, calls[position]))
        found[position] = Menu(key, (Variant(REGION, 1, 1, region_cost(tiled)),))
    return Settled(replace(kernels, calls=tuple(calls)) if found else kernels, found)


def region_cost(region: Region) -> Cost:
    """Of the dearer body, as often as it may run; of slices, which all run, known where each of their calls is."""
    seconds = max(sum(cost.seconds for cost in each) for each in region.costs)
    is_known = region.slices and not any(cost.is_modelled for each in region.costs for cost in each)
    return Cost(region.times * seconds, "record" if is_known else "model")
