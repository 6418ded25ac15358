"""What calls take on the devices of a job, and the caller's thread beside them, as a problem of dividing them."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.knowledge.kinds import STREAM
from compiler.schedule.parts.dividing import division_of
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.sequential import choose_lanes
from compiler.session import Session
from compiler.steps.caller import caller_seconds, copied_bytes, foreseen
from compiler.steps.dividing_devices import Devices, has_core
from compiler.steps.lane_costs import lane_costs
from compiler.steps.plans import model_key
from compiler.steps.tiling import TiledKernels


def key_of(kernels: KernelGraph, tiled: TiledKernels) -> str:
    """The key of records of all kernels together."""
    return model_key(kernels, tuple(menu.workload for menu in tiled.settled.menus))


def caller_record(session: Session, devices: Devices, kernels: KernelGraph, tiled: TiledKernels) -> Record | None:
    """By what the caller's thread is foreseen, where it takes some of a device."""
    if has_core(devices):
        return None
    known = session.records.find(STREAM, tiled.backend.target)
    return foreseen(known, key_of(kernels, tiled), copied_bytes(kernels))


def division_on(
    session: Session,
    kernels: KernelGraph,
    devices: Devices,
    tiled: Sequence[TiledKernels],
    lanes: Sequence[int],
    caller: Record | None,
) -> Division:
    """What every call takes on every device, under its best tile, and what devices hand to each other."""
    of_target = [
        [choose_lanes(menu, count, lane_costs(each.handover).split_s)[2] for menu in each.settled.menus]
        for each, count in zip(tiled, lanes, strict=True)
    ]
    seconds = [of_target[option] for option in devices.option_of]
    transfers = [tiled[option].backend.transfers for option in devices.option_of]
    on_lanes = session.backend.lanes
    handover = on_lanes.handover(session.records, measure=session.may_measure) if on_lanes else None
    session.add_records([handover] if handover else [])
    for name, option, copies in zip(devices.asked.devices, devices.option_of, transfers, strict=True):
        if copies is not None:
            session.trace.notice(f"{name}: {_sources(tiled[option])}; {copies}")
    caller_s = None if has_core(devices) else caller_seconds(caller) or 0.0
    return division_of(kernels, seconds, lane_costs(handover), transfers, caller_s)


def _sources(tiled: TiledKernels) -> str:
    """Where the costs of kernels are from."""
    best = [min(menu.variants, key=lambda one: one.cost.seconds).cost.source for menu in tiled.settled.menus]
    return ", ".join(f"{best.count(source)} kernels by {source}" for source in sorted({*best}))
