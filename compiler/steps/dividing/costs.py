"""What calls take on the devices of a job, and the caller's thread beside them, as a problem of dividing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.knowledge.kinds import STREAM
from compiler.schedule.parts.dividing import division_of
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.sequential import choose_lanes
from compiler.session import Session
from compiler.steps.costs.lanes import lane_costs
from compiler.steps.dividing.caller import caller_seconds, copied_bytes, foreseen, usual_seconds
from compiler.steps.dividing.core_speeds import levelled, seconds_by
from compiler.steps.dividing.devices import Devices, has_core
from compiler.steps.dividing.pair_costs import pair_costs, pairs_known, pairs_notice
from compiler.steps.planning.choice import model_key
from compiler.steps.tiling.step import TiledKernels

LEAST_S = 1e-12
"""Of all calls together: less is nothing to scale."""


def key_of(kernels: KernelGraph, tiled: TiledKernels) -> str:
    """The key of records of all kernels together."""
    return model_key(kernels, tuple(menu.workload for menu in tiled.settled.menus))


@dataclass(frozen=True)
class Costs:
    """Calls on devices as a problem of dividing them.

    `records` are those by which it is known how fast cores are beside each other, and beside the caller's thread, and
    what they hand to each other costs.
    """

    division: Division
    records: tuple[Record, ...]


def costs_of(
    session: Session,
    devices: Devices,
    kernels: KernelGraph,
    tiled: Sequence[TiledKernels],
    lanes: Sequence[int],
    cores: Record | None,
    carried: Sequence[tuple[int, int]] = (),
) -> Costs:
    """What every call takes on every device, under its best tile, and what devices hand to each other.

    `session` is of the first target, `tiled` and `lanes` of each. `cores` says how fast each core runs the whole model
    by the first target's program: calls take longer there in this proportion, those of other targets too. `carried` are
    states, by positions of outputs and inputs.
    """
    of_target = [
        [choose_lanes(menu, count, lane_costs(each.handover).split_s)[2] for menu in each.settled.menus]
        for each, count in zip(tiled, lanes, strict=True)
    ]
    seconds = [of_target[option] for option in devices.option_of]
    slowdown: list[float] = []
    if took := seconds_by(cores, len(seconds)):
        alone_s, together_s = levelled(took.alone_s), levelled(took.together_s)
        scales = [each / max(sum(of_target[0]), LEAST_S) for each in alone_s]
        seconds = [[scale * own for own in each] for scale, each in zip(scales, seconds, strict=True)]
        slowdown = [slower / alone for slower, alone in zip(together_s, alone_s, strict=True)]
    transfers = [tiled[option].backend.transfers for option in devices.option_of]
    on_lanes = session.backend.lanes
    handover = on_lanes.handover(session.records, measure=session.may_measure) if on_lanes else None
    session.add_records([handover] if handover else [])
    pairs = pairs_known(session, devices)
    if said := pairs_notice(devices, pairs):
        session.trace.notice(said)
    for name, option, copies in zip(devices.asked.devices, devices.option_of, transfers, strict=True):
        if copies is not None:
            session.trace.notice(f"{name}: {_sources(tiled[option])}; {copies}")
    known = session.records.find(STREAM, tiled[0].backend.target)
    bytes, shares = copied_bytes(kernels), not has_core(devices)
    caller = foreseen(known, key_of(kernels, tiled[0]), bytes) if shares else None
    caller_s = (caller_seconds(caller) if caller else usual_seconds(bytes)) if shares else None
    of_lanes, of_pairs = lane_costs(handover), pair_costs(pairs)
    division = division_of(
        kernels, seconds, of_lanes, transfers, caller_s=caller_s, slowdown=slowdown, carried=carried, pairs=of_pairs
    )
    return Costs(division, tuple(filter(None, [cores, handover, *pairs.values(), caller])))


def by_programs(division: Division, programs: Mapping[int, Record], option_of: Sequence[int]) -> Division:
    """With calls as much slower, or faster, on devices as the whole model by their own program is.

    `programs` says of a device what that took; `option_of` which devices have the same.
    """
    seconds = [*division.seconds]
    for option in {option_of[device] for device in programs}:
        same = [device for device in programs if option_of[device] == option]
        took = levelled([each.alone_s[0] for device in same if (each := seconds_by(programs[device], 1))])
        for device, whole_s in zip(same, took, strict=True):
            scale = whole_s / max(sum(seconds[device]), LEAST_S)
            seconds[device] = [scale * own for own in seconds[device]]
    return replace(division, seconds=seconds)


def _sources(tiled: TiledKernels) -> str:
    """Where the costs of kernels are from."""
    best = [min(menu.variants, key=lambda one: one.cost.seconds).cost.source for menu in tiled.settled.menus]
    return ", ".join(f"{best.count(source)} kernels by {source}" for source in sorted({*best}))
