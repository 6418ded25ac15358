"""The steps for several devices: the kernels of one device's artifact in parts, a program each, proved together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat, takewhile
from pathlib import Path

import numpy as np

from compiler.contract import CompileOptions, CompileReport, DevicesReport, PartReport
from compiler.contract.devices import NamedDevice
from compiler.devices.kinds import profiles, resolve
from compiler.errors import Disagreement, InternalError, TargetUnavailable, UnsupportedModel
from compiler.ir.border import PLAIN
from compiler.ir.buffers import KernelGraph
from compiler.ir.lanes import NOTHING
from compiler.ir.machine import Record
from compiler.ir.program import Program
from compiler.ir.region import Region
from compiler.ir.tile import Menu
from compiler.measure.latency import model_latency
from compiler.ops import OPERATORS
from compiler.pack.devices_section import Streamed
from compiler.pack.divided import Divided, folder_of, pack_divided
from compiler.pack.join import Part
from compiler.pack.loader import Model
from compiler.prove.agree import agree
from compiler.schedule import schedule
from compiler.schedule.parts.dividing import alone as alone_on
from compiler.schedule.parts.dividing import division_of, pipeline
from compiler.schedule.parts.portions import portion
from compiler.schedule.solvers.ideals import Division
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.steps.lane_costs import lane_costs
from compiler.steps.proving import AGREE_SECONDS, Case, in_declared_types
from compiler.steps.tiling import TiledKernels, tile_kernels

FRAMES = 24
"""Streamed to see that frames keep apart, each with inputs of its own."""
STREAM_SECONDS = 0.5
"""For which throughput is measured."""


@dataclass(frozen=True)
class Came:
    """What running the parts showed.

    worst      the largest relative error of an output
    period_s   from one end of a frame to the next, with as many in flight as may be
    latency_s  of a frame by itself
    busy       of each part the share of the time that it was at work
    """

    worst: float
    period_s: float
    latency_s: float
    busy: tuple[float, ...]


@dataclass(frozen=True)
class Devices:
    """The devices of a job, as it was asked for; `options` compile for each target alone, the most able first."""

    asked: CompileOptions
    named: tuple[NamedDevice, ...]
    options: tuple[CompileOptions, ...]

    def option_of(self, device: NamedDevice) -> int:
        """Which of the options a device's programs are made by."""
        wanted = resolve(device.target).name
        return next(at for at, one in enumerate(self.options) if resolve(one.target).name == wanted)


def devices_of(options: CompileOptions) -> Devices:
    """The devices that a job names. Raises TargetUnavailable for one that this machine has not."""
    named = options.named_devices
    here = resolve("cpu")
    order = [profile.name for profile in profiles()]
    targets: dict[str, str] = {}
    for device, name in zip(named, options.devices, strict=True):
        target = resolve(device.target)
        if device.core >= here.lanes:
            raise TargetUnavailable(
                f"device {name} is core {device.core}, and this machine has {here.lanes}",
                fix=f"name cores from cpu:0 to cpu:{here.lanes - 1}, or use a worker with more",
            )
        if not target.is_here:
            raise TargetUnavailable(
                f"device {name} is to have the instructions of {target.name}, which this machine has not",
                fix="several devices are measured where they are: name profiles that this machine runs",
            )
        targets.setdefault(target.name, device.target)
    share = options.tuning_budget_s / len(targets)
    each = tuple(
        replace(options, devices=(), objective="latency", target=targets[name], threads=1, tuning_budget_s=share)
        for name in sorted(targets, key=order.index)
    )
    return Devices(options, named, each)


def demand_divisible(front: Front) -> None:
    """Raises UnsupportedModel for what no plan for several devices can hold yet."""
    calls = front.fused.kernels.calls
    shapes, border = front.loaded.open_shapes, front.loaded.border
    what = (
        "leaves the size of an axis open" if shapes is not None else "",
        "takes or gives strings, or draws random numbers" if border != PLAIN else "",
        "holds a loop or a branch that is decided while running"
        if any(isinstance(c.kernel, Region) for c in calls)
        else "",
        "holds no kernel to divide" if not calls else "",
    )
    if said := next(filter(None, what), ""):
        raise UnsupportedModel(
            f"the model {said}, and a plan for several devices cannot yet",
            fix="bind every dimension by the option dims, or compile for one device: leave devices and objective out",
        )


def divided(
    devices: Devices,
    sessions: Sequence[Session],
    front: Front,
    built: Built,
    come: CompileReport,
    alone: Path,
    artifact: Path,
) -> CompileReport:
    """An artifact at `artifact` whose parts the devices run, made of one for the first session's target at `alone`.

    What `come` says of that one holds for single inferences. Raises Disagreement where the parts do not agree with the
    reference, InternalError where frames in flight disturb each other.
    """
    session, kernels = sessions[0], built.kernels
    trace = session.trace
    with trace.step("tile"):
        tiled = [built.tiles, *(_tiled(one, front, built) for one in sessions[1:])]
        menus = [one.settled.menus for one in tiled]
    of_device = [devices.option_of(device) for device in devices.named]
    with trace.step("schedule"):
        names = devices.asked.devices
        division = _division(session, kernels, [menus[at] for at in of_device])
        parts = pipeline(kernels, names, division)
        best = min(range(len(names)), key=lambda at: division.work_s(at, division.whole))
        trace.show("devices", parts)
        trace.show("best_alone", alone_on(kernels, names, division, best))
    with trace.step("emit"):
        portions = [portion(kernels, parts, part) for part in parts.parts]
        weights, programs = built.weights, list[Program]()
        for part, own in zip(parts.parts, portions, strict=True):
            at = of_device[part.device]
            backend = tiled[at].backend
            plan = schedule(own.kernels, [menus[at][call] for call in part.calls], 1, NOTHING, "sequential")[0].plan
            weights = backend.weights(weights)
            programs.append(backend.emit(own.kernels, plan, (), weights))
        on_lanes = session.backend.lanes
        assert on_lanes is not None, "cores alone take part in such plans"
        cores = [device.core for device in devices.named]
        stream = on_lanes.stream(kernels, parts, portions, cores, [folder_of(at) for at in range(len(programs))])
    targets = [sessions[at].backend.target.name for at in of_device]
    streamed = Streamed(
        [division.work_s(at, division.whole) for at in range(len(names))],
        [division.work_s(part.device, sum(1 << call for call in part.calls)) for part in parts.parts],
    )
    found = Divided(parts, programs, stream, targets, False, streamed)
    unproven = artifact.with_name(f".{artifact.name}.unproven")
    try:
        with trace.step("pack"):
            lines = [_line(record) for one in tiled[1:] for record in one.records]
            whole = weights.bytes()
            packed = pack_divided(Part.of(alone, {}), found, lines, whole, devices.asked, unproven)
        with trace.step("agree"):
            is_same = not any(of_device[part.device] for part in parts.parts)
            came = _proved(session, front, built, unproven, is_same=is_same)
            os.replace(unproven, artifact)
    finally:
        unproven.unlink(missing_ok=True)
    return replace(
        come,
        artifact_digest=packed.digest,
        artifact_bytes=packed.bytes,
        weight_bytes=len(whole),
        phase_seconds=trace.seconds,
        notices=tuple(trace.notices),
        records_measured=come.records_measured + sum(len(one.tiled.measured) for one in tiled[1:]),
        devices=_report(devices.asked, found, came),
    )


def _tiled(session: Session, front: Front, built: Built) -> TiledKernels:
    """The same kernels for another target: no call is joined that was not, or is taken apart."""
    session.kept = replace(session.kept, without_steps=session.kept.without_steps | {"joins"})
    return tile_kernels(session, built.kernels, front.weighed.kernels, built.rounding)


def _division(session: Session, kernels: KernelGraph, menus: Sequence[Sequence[Menu]]) -> Division:
    """What every call takes on every device, under its best tile, and what devices hand to each other."""
    seconds = [[min(one.cost.seconds for one in menu.variants if one.lanes == 1) for menu in each] for each in menus]
    on_lanes = session.backend.lanes
    handover = on_lanes.handover(session.records, measure=session.may_measure) if on_lanes else None
    session.learn([handover] if handover else [])
    return division_of(kernels, seconds, lane_costs(handover))


def _proved(session: Session, front: Front, built: Built, path: Path, *, is_same: bool) -> Came:
    """Runs the artifact's parts against the reference and, frame by frame, against the program of one device.

    `is_same` where all are for one target: then the results are the same bits.
    """
    runner = session.backend.runner
    if runner is None or front.effort is None:
        raise InternalError("devices that are not here take part in no plan")
    with runner.open(path, plan=1, coded=True) as model:
        case = Case(front.loaded.graph, None, front.effort, front.samples)
        options = session.options
        verdict = agree(
            in_declared_types(lambda inputs: model.submit_flat(inputs).result_flat(), case),
            case.graph,
            OPERATORS,
            options.tolerance,
            options.seed,
            precision=options.precision,
            budget_s=AGREE_SECONDS / 2,
            samples={f"sample {sample.name!r:.200}": sample.arrays for sample in case.samples},
        )
        if not verdict.passed:
            raise Disagreement(
                f"the parts of the model do not compute what it says: off by {verdict.worst:.2e} of the largest value, "
                f"where {verdict.tolerance:.2e} is granted",
                fix="compile for one device, which agreed, and report this model: it is our fault",
            )
        _demand_apart(model, verdict.tolerance, is_same=is_same)
        period_s, latency_s, work = _measured(model, session)
    return Came(verdict.worst, period_s, latency_s, work)


def _demand_apart(model: Model, tolerance: float, *, is_same: bool) -> None:
    """Raises InternalError unless each of many frames in flight gives what it gives alone."""
    given = [model.random_inputs(seed) for seed in range(FRAMES)]
    for number, (inputs, streamed) in enumerate(zip(given, model.stream(given), strict=True)):
        for name, alone in model.run(inputs).items():
            if not (_same(alone, streamed[name]) if is_same else _near(alone, streamed[name], tolerance)):
                how = "other bits" if is_same else "something else"
                raise InternalError(f"frame {number} gives {how} for output {name!r} when others are in flight")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


def _near(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    """Whether two results agree: both may be as far from the reference as was granted.

    Elements that are no numbers must be none in both. Integers may differ where a hair decides, and are not compared.
    """
    if one.dtype.kind != "f":
        return one.shape == other.shape
    largest = float(np.max(np.abs(one), initial=0.0, where=np.isfinite(one)))
    return bool(np.allclose(one, other, rtol=0.0, atol=2 * tolerance * largest, equal_nan=True))


def _measured(model: Model, session: Session) -> tuple[float, float, tuple[float, ...]]:
    """Seconds from one end of a frame to the next, and of one frame by itself, with each part's share of the time."""
    inputs = model.random_inputs(session.options.seed)

    def run_once() -> None:
        model.submit(inputs).result_flat()

    latency_s = model_latency(run_once, STREAM_SECONDS / 2).median

    def endless() -> Iterator[Mapping[str, np.ndarray]]:
        end = time.perf_counter() + STREAM_SECONDS
        yield from takewhile(lambda _: time.perf_counter() < end, repeat(inputs))

    for _ in islice(model.stream(repeat(inputs)), 8):
        pass
    _, worked = model.occupancy()
    begin = time.perf_counter()
    frames = sum(1 for _ in model.stream(endless()))
    whole = time.perf_counter() - begin
    _, work = model.occupancy()
    busy = tuple((after - start) / whole for start, after in zip(worked, work, strict=True))
    return whole / max(frames, 1), latency_s, busy


def _report(asked: CompileOptions, found: Divided, came: Came) -> DevicesReport:
    streamed, parts = found.streamed, found.parts
    each = zip(parts.parts, streamed.parts_s, came.busy, strict=True)
    return DevicesReport(
        asked.objective,
        parts.scheduler,
        tuple(streamed.alone_s),
        tuple(
            PartReport(asked.devices[part.device], found.targets[part.device], len(part.calls), seconds, busy)
            for part, seconds, busy in each
        ),
        parts.period_s,
        came.period_s,
        parts.predicted_s,
        came.latency_s,
        came.worst,
    )


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), sort_keys=True, separators=(",", ":"))
