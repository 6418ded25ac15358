"""A graph of launches as a plan: launches on streams, and memory that respects what runs when.

Calls that share a launch stand next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan, Task, Wait, ended_before
from compiler.ir.tile import Variant
from compiler.schedule.gpu.launch_load import LaunchLoad, with_cold_code
from compiler.schedule.gpu.resident import Resident
from compiler.schedule.gpu.slots import makespan
from compiler.schedule.gpu.streams import reduced, streams
from compiler.schedule.memory.buffers import place_buffers


@dataclass(frozen=True)
class LaunchGraph:
    """Calls in launches, each after those that it waits for.

    `before` are the positions of these, those that follow from others left out. `variants` say how each call of the
    kernels is carried out; one without tiles has no launch.
    """

    launches: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    variants: tuple[Variant, ...]
    loads: tuple[LaunchLoad, ...]
    resident: Resident | None = None

    @property
    def identity(self) -> tuple[frozenset[object], tuple[Variant, ...], Resident | None]:
        """Equal for graphs that differ at most in the order in which they list their launches."""
        edges = frozenset(
            (frozenset(launch), frozenset(self.launches[one] for one in earlier))
            for launch, earlier in zip(self.launches, self.before, strict=True)
        )
        return edges, self.variants, self.resident

    @cached_property
    def predicted_s(self) -> float:
        """By the loads of the launches, where those that run together share the device; or on resident blocks."""
        if self.resident is not None:
            return self.resident.makespan(self.before)
        return makespan(with_cold_code(self.loads), self.before)

    @cached_property
    def between_s(self) -> tuple[float, float] | None:
        """Between what the truth is thought to lie; None on resident blocks, of which nobody knows."""
        if self.resident is not None:
            return None
        low, high = (makespan(with_cold_code(self.loads, doubt), self.before) for doubt in (0, 1))
        return low, high


def in_turn(launches: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Each launch waits for the one before it."""
    return tuple((at - 1,) if at else () for at in range(len(launches)))


def as_read(
    launches: Sequence[tuple[int, ...]],
    before: Sequence[Sequence[int]],
    held: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], ...]:
    """Each launch waits for those that its calls read from, and no others; `before` are the calls' predecessors.

    `held` are calls and those whose room they wait for besides.
    """
    at = {call: number for number, launch in enumerate(launches) for call in launch}
    waits = [{at[one] for call in launch for one in before[call] if one in at} for launch in launches]
    for call, other in held:
        waits[at[call]].add(at[other])
    return reduced([sorted(earlier) for earlier in waits])


def plan_of(kernels: KernelGraph, graph: LaunchGraph, name: str) -> Plan:
    """Lanes are streams. Raises VerifyError for launches that cannot run so."""
    stream_of = streams(graph.before)
    count = max(stream_of, default=0) + 1
    begun = [0] * count
    reached: list[int] = []  # of each launch, how many tasks its stream has had when it has ended
    tasks: list[Task] = []
    for launch, stream, earlier in zip(graph.launches, stream_of, graph.before, strict=True):
        waits = tuple(
            sorted((Wait(stream_of[one], reached[one]) for one in earlier if stream_of[one] != stream), key=_lane)
        )
        tasks += [
            Task(call, stream, 0, graph.variants[call].tiles, () if at else waits, at > 0)
            for at, call in enumerate(launch)
        ]
        begun[stream] += len(launch)
        reached.append(begun[stream])
    places, arena = place_buffers(kernels, ended_before(tasks, count, len(kernels.calls)))
    tiles = tuple((variant.tile, variant.tiles) for variant in graph.variants)
    residents = graph.resident.per_multiprocessor if graph.resident else 0
    plan = Plan(count, tuple(tasks), tiles, places, arena, name, graph.predicted_s, residents=residents)
    plan.verify(kernels)
    return plan


def _lane(wait: Wait) -> int:
    return wait.lane
