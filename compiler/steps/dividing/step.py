"""The steps for several devices: the kernels of one device's artifact in parts, a program each, proved together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, CompileReport, DevicesReport, PartReport, PointReport, generator
from compiler.contract.devices import Within
from compiler.encodings.aside import Octets
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.plans.lanes import NOTHING
from compiler.ir.plans.parts import Parts, verify_copies
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.ir.tile import Menu
from compiler.knowledge.kinds import CALLER_BYTES, CALLER_S, CLEAR_LATENCY_S, CLEAR_S, PARTS_ALONE_S, PARTS_S, STREAM
from compiler.knowledge.making import stream_record
from compiler.measure.compare import Comparison
from compiler.measure.streaming import undisturbed_s
from compiler.pack.devices_section import Message, Streamed
from compiler.pack.divided import Divided, folders_of, pack_divided
from compiler.pack.join import Part
from compiler.pack.loader import Model
from compiler.pack.pack import PackedArtifact
from compiler.schedule import schedule
from compiler.schedule.parts.corrections import Ran, corrected
from compiler.schedule.parts.dividing import (
    frame_of,
    handed_over,
    one_device,
    overlapped,
    parts_of,
    pipeline,
    placed,
    queues_of,
    replicas,
    seconds_of,
    shared,
    stages_of,
    tradeoff,
    with_queues,
)
from compiler.schedule.parts.portions import portion
from compiler.schedule.solvers.ideals import Division, Stage
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.steps.costs.lanes import lane_costs
from compiler.steps.dividing.caller import copied_bytes
from compiler.steps.dividing.core_speeds import cores_known, program_known
from compiler.steps.dividing.costs import by_programs, costs_of, key_of
from compiler.steps.dividing.devices import Devices
from compiler.steps.dividing.proof import Came, proved_parts, raced_parts
from compiler.steps.dividing.tried import Tried, is_faster, picked_of
from compiler.steps.divisible import division_problem
from compiler.steps.states.carried import carried_positions
from compiler.steps.tiling.step import TiledKernels, tile_kernels

WORTH = 0.98
"""A division that is planned anew is built where it is predicted to take at most so much of the best one's period."""


def demand_divisible(front: Front) -> None:
    """Raises UnsupportedModel for what no plan for several devices can hold yet."""
    loaded = front.opened.loaded
    if problem := division_problem(loaded.graph, loaded.open_shapes, loaded.border):
        raise problem


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

    What `come` says of that one holds for its program, which a single inference goes through unless one through the
    parts was measured to be certainly faster. Raises Disagreement where the parts do not agree with the reference,
    InternalError where frames in flight disturb each other.
    """
    session = sessions[0]
    trace = session.trace
    with trace.step("tile"):
        tiled = [built.tiles, *(_tiled(one, front, built) for one in sessions[1:])]
    with trace.step("schedule"):
        lanes = [one.lanes for one in sessions]
        cores = cores_known(session, devices, front, built, key_of(built.kernels, tiled[0]), alone)
        carried = carried_positions(front.opened.loaded.graph, devices.asked.named_states)
        costs = costs_of(session, devices, built.kernels, tiled, lanes, cores, carried)
        work = _Work(devices, tiled, lanes, costs.division, built)
    unproven = artifact.with_name(f".{artifact.name}.unproven")
    whole = Part.of(alone, {})
    tried: list[Tried] = []
    programs: dict[int, Record] = {}

    def pack(one: Divided, weights: Octets, records: Sequence[Record]) -> PackedArtifact:
        used = [
            *(record for each in tiled[1:] for record in each.records),
            *costs.records,
            *programs.values(),
            *records,
        ]
        return pack_divided(whole, one, [*map(_line, used)], weights, devices.asked, unproven)

    @contextmanager
    def opened(parts: Parts) -> Iterator[Model]:
        assert session.backend.runner is not None, "cores are here"
        pack(*work.emitted(parts, runs=False), [])
        with session.backend.runner.open(unproven, plan=1) as model:
            yield model

    try:
        if devices.asked.objective != "latency" and not carried:
            with trace.step("emit"):
                programs |= work.programs_known(session, opened)
                work = replace(work, division=by_programs(work.division, programs, devices.option_of))
        for parts, races in work.candidates(tried, may_race=session.may_measure):
            trace.show("devices", parts)
            with trace.step("emit"):
                found, weights = work.emitted(parts, runs=races)
            record = work.known(session, parts)
            if races and record and "ratio" not in record.variant:
                record = None  # of a job that did not ask how one inference compares
            with trace.step("pack"):
                pack(found, weights, [record] if record else [])
            with trace.step("agree"):
                came = proved_parts(
                    session, front, unproven, work.turns(parts), parts.round, devices.asked.named_states
                )
                if record is None and session.may_measure:
                    ratio = raced_parts(session, front, unproven) if races else None
                    record = work.record(session, parts, came, ratio)
                    session.add_records([record])
            tried.append(Tried(found, weights, came, record, wins=races and is_faster(record)))
            if races and not tried[-1].wins:
                trace.notice(f"one inference is not certainly faster in {counted(parts)}: one device runs it")
        picked = min((one for one in tried if one.wins), key=lambda one: one.ratio, default=tried[-1])
        curve: tuple[PointReport, ...] = ()
        if devices.asked.objective != "latency":
            picked, notice = picked_of(tried, devices.asked.objective)
            if notice:
                trace.notice(notice)
            curve = tuple(one.point(is_picked=one is picked) for one in tried)
        found, weights, came, record = picked.found, picked.weights, picked.came, picked.record
        streamed = replace(found.streamed, measured_s=record.seconds if record else None, curve=curve)
        known = [one.record for one in tried if one.record] if curve else [record] if record else []
        with trace.step("pack"):
            packed = pack(replace(found, streamed=streamed), weights, known)
        packed = packed.moved_to(artifact)
    finally:
        unproven.unlink(missing_ok=True)
    return replace(
        come,
        artifact_digest=packed.digest,
        artifact_bytes=packed.bytes,
        weight_bytes=len(weights),
        latency_s=came.latency_s if found.runs else come.latency_s,
        phase_seconds=trace.seconds,
        notices=tuple(trace.notices),
        records_measured=come.records_measured + sum(len(one.tiled.measured) for one in tiled[1:]),
        devices=_report(devices.asked, found, came, curve),
    )


@dataclass(frozen=True)
class _Work:
    """The kernels, tiled for each target and its lanes, and what they take on each device."""

    devices: Devices
    tiled: Sequence[TiledKernels]
    lanes: Sequence[int]
    division: Division
    built: Built

    @property
    def targets(self) -> Sequence[int]:
        """Which of the targets each device has, second queues last."""
        own = self.devices.option_of
        return [*own, *(own[device] for device in queues_of(self.division))]

    @cached_property
    def alone_s(self) -> list[float]:
        """An inference on each device alone."""
        return [self.division.part_s(at, self.division.whole) for at in range(len(self.division.seconds))]

    def turns(self, parts: Parts) -> list[int]:
        """Of a round of frames those that between them go through every program that replicas have."""
        ways = [
            tuple(self.targets[part.device] for part in parts.parts if part.turns.has(turn))
            for turn in range(parts.round)
        ]
        return sorted(ways.index(way) for way in {*ways})

    def candidates(self, tried: Sequence[Tried], *, may_race: bool) -> Iterator[tuple[Parts, bool]]:
        """Divisions to be tried in turn, and whether one inference is raced against the program of one device.

        For throughput whole inferences on devices in turn, and a pipeline, and both are tried. For latency what may be
        raced comes first: a placement that is predicted faster than that program, and the whole model on a device
        beside the CPU. Where none wins, or none is raced, the better of those for throughput as predicted. Where
        latency is bounded they are those between throughput and latency, and all are tried. `tried` is what has come
        of those before.
        """
        kernels, names = self.built.kernels, self.devices.asked.devices
        if isinstance(self.devices.asked.objective, Within):
            yield from ((one, False) for one in tradeoff(kernels, names, self.division))
        elif self.devices.asked.objective == "throughput":
            yield from ((one, False) for one in self._often(tried))
        else:
            if may_race:
                early = placed(kernels, names, self.division)
                if early.predicted_s < self.alone_s[self.targets.index(0)] + (self.division.caller_s or 0.0):
                    yield early, True
                single = one_device(kernels, names, self.division)
                if single.parts[0].device in single.apart and not single.is_like(early):
                    yield single, True
            if not any(one.wins for one in tried):
                found = [way(kernels, names, self.division) for way in (replicas, pipeline)]
                yield min(found, key=lambda parts: parts.period_s), False

    def _often(self, tried: Sequence[Tried]) -> Iterator[Parts]:
        """For throughput, each planned with what calls were measured to take when those before it ran.

        Replicas and a pipeline, then what is to gain by what is known then: the same planned anew, and a pipeline with
        stages that equal devices share; with a device beside the CPU, the whole model on one, and copies of one frame
        beside the kernels of another. Where states are carried whole inferences cannot be at work at a time: a
        pipeline and one device come first.
        """
        kernels, names = self.built.kernels, self.devices.asked.devices
        alone = (one_device, overlapped) if any(self.division.transfers) else ()
        first = (one_device, pipeline) if self.division.states else (replicas, pipeline)
        for number, way in enumerate((*first, *first, shared, *alone)):
            runs = [one.ran for one in tried if one.ran and len(one.found.parts.devices) == len(names)]
            parts = way(kernels, names, corrected(self.division, runs))
            best_s = min((one.busiest_s for one in tried), default=inf)
            if number < 2 or (
                parts.period_s < WORTH * best_s and not any(parts.is_like(one.found.parts) for one in tried)
            ):
                yield parts

    def programs_known(
        self, session: Session, opened: Callable[[Parts], AbstractContextManager[Model]]
    ) -> dict[int, Record]:
        """What the whole model takes on cores of other targets than the first, by the programs that they have then.

        How much longer a program takes than its kernels one by one differs between targets. What replicas run is
        compiled here already.
        """
        kernels, names = self.built.kernels, self.devices.asked.devices
        found = {}
        for at, (device, option) in enumerate(zip(self.devices.named, self.devices.option_of, strict=True)):
            if option == 0 or device.core is None:
                continue
            parts = parts_of(kernels, names, self.division, ((at, self.division.whole),), "one device")
            tiled = self.tiled[option]
            identity = {"plan": self._identity(session, parts)["parts"], "cores": [device.core]}
            identity |= tiled.setting.to_json()
            record = program_known(
                session,
                tiled.backend.target,
                key_of(kernels, tiled),
                identity,
                partial(opened, parts),
            )
            if record is not None:
                found[at] = record
        return found

    def _identity(self, session: Session, parts: Parts) -> dict[str, Any]:
        """What the variant of a record must say to be of these parts."""
        shown = repr((str(parts.unpredicted), [self._name(at) for at in self.targets[: len(parts.devices)]]))
        return {"parts": sha256(shown.encode()).hexdigest()[:24], **self.tiled[0].setting.to_json()}

    @cached_property
    def _model(self) -> str:
        """The key of records of all kernels together."""
        return key_of(self.built.kernels, self.tiled[0])

    def known(self, session: Session, parts: Parts) -> Record | None:
        """The last record of these parts by this compiler: another one may make other code of them."""
        identity = self._identity(session, parts)
        found = session.records.find(STREAM, self.tiled[0].backend.target, workload=self._model)
        mine = [one for one in found if one.compiler == generator()]
        return next((one for one in reversed(mine) if identity.items() <= one.variant.items()), None)

    def record(self, session: Session, parts: Parts, came: Came, ratio: Comparison | None) -> Record:
        """Of these parts, with how one inference through them compares with one on a single device."""
        about = f"{parts.scheduler}: {len(parts.parts)} parts on {', '.join(parts.devices)}; the whole model"
        compared = {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high} if ratio else {}
        seconds = [busy * came.period_s / part.turns.share for part, busy in zip(parts.parts, came.busy, strict=True)]
        shared = self.division.caller_s is not None
        caller = {CALLER_S: came.caller_s, CALLER_BYTES: copied_bytes(self.built.kernels)} if shared else {}
        ran = Ran(parts, seconds, came.caller_s if shared else None)
        clear_s = undisturbed_s(came.period_s, ran.loads, ran.busiest_s, came.delays_s, ran.caller_s or 0.0)
        clear = {CLEAR_S: clear_s, CLEAR_LATENCY_S: came.latency_s if came.clear_s is None else came.clear_s}
        identity, took = self._identity(session, parts), {"latency_s": came.latency_s, PARTS_S: seconds}
        took |= {PARTS_ALONE_S: [*came.alone_s]} if came.alone_s else {}
        reached = {**identity, **compared, **took, **clear, **caller}
        target = self.tiled[0].backend.target
        return stream_record(self._model, about, target, reached, came.period_s, len(parts.devices))

    def _name(self, target: int) -> str:
        return self.tiled[target].backend.target.name

    def emitted(self, parts: Parts, *, runs: bool) -> tuple[Divided, Octets]:
        """A program for each part, and the file of weights of all."""
        kernels = self.built.kernels
        portions = [portion(kernels, parts, part) for part in parts.parts]
        names = [self._name(at) for at in self.targets]
        folders = folders_of(parts, names)
        weights, programs = self.built.weights, list[Program]()
        for part, own, folder in zip(parts.parts, portions, folders, strict=True):
            if folder in folders[: len(programs)]:
                programs.append(programs[folders.index(folder)])
                continue
            tiled = self.tiled[self.targets[part.device]]
            menus = [tiled.settled.menus[call] for call in part.calls]
            if part.device in parts.apart:
                verify_copies(kernels, part, own)
            plan = self._plan(own.kernels, menus, self.targets[part.device])
            weights = tiled.backend.weights(weights, small=self.built.weights.small)
            programs.append(tiled.backend.emit(own.kernels, plan, (), weights))
        on_lanes = self.tiled[0].backend.lanes
        assert on_lanes is not None, "the first targets are those of cores"
        count = len(parts.devices)
        cores = [*(device.core for device in self.devices.named), *(None for _ in names)][:count]
        stream = on_lanes.stream(kernels, parts, portions, cores, folders)
        stages = stages_of(parts)
        division = self.division if count == len(self.division.seconds) else with_queues(self.division)
        streamed = Streamed(self.alone_s, seconds_of(division, stages))
        if parts.apart:
            streamed = replace(streamed, spans=frame_of(division, stages), messages=self._messages(division, stages))
        return Divided(parts, programs, stream, names[:count], runs, streamed), weights.bytes()

    def _plan(self, kernels: KernelGraph, menus: Sequence[Menu], target: int) -> Plan:
        """Calls one after another, on all lanes of the target each."""
        tiled, lanes = self.tiled[target], self.lanes[target]
        on_lanes = tiled.backend.lanes if lanes > 1 else None
        costs = lane_costs(tiled.handover) if on_lanes else NOTHING
        regions = on_lanes.regions(kernels) if on_lanes else None
        joint = tiled.backend.joint_launch(kernels)
        return schedule(kernels, menus, lanes, costs, "sequential", joint_launch=joint, regions=regions)[0].plan

    def _messages(self, division: Division, stages: Sequence[Stage]) -> list[Message]:
        """What goes from stage to stage."""
        return [
            Message(earlier, at, sum(sizes))
            for at, stage in enumerate(stages)
            for earlier in range(at)
            if (sizes := handed_over(division, stages[earlier], stage))
        ]


def counted(parts: Parts) -> str:
    """How many parts, or on which one device."""
    return (
        f"{len(parts.parts)} parts" if len(parts.parts) > 1 else f"one part on {parts.devices[parts.parts[0].device]}"
    )


def _tiled(session: Session, front: Front, built: Built) -> TiledKernels:
    """The same kernels for another target: no call is joined that was not, or is taken apart."""
    session.kept = session.kept.also_without("joins")
    rounding = built.rounding
    kernels = session.backend.stored(built.kernels, rounding.precision)
    return tile_kernels(session, kernels, front.evaluated.kernels, rounding.tolerance, rounding.precision)


def _report(asked: CompileOptions, found: Divided, came: Came, curve: tuple[PointReport, ...]) -> DevicesReport:
    streamed, parts = found.streamed, found.parts
    each = zip(parts.parts, streamed.parts_s, came.busy, strict=True)
    return DevicesReport(
        str(asked.objective),
        parts.scheduler,
        tuple(streamed.alone_s),
        tuple(
            PartReport(
                parts.devices[part.device],
                found.targets[part.device],
                len(part.calls),
                seconds,
                busy,
                part.turns.share,
            )
            for part, seconds, busy in each
        ),
        parts.period_s,
        came.period_s,
        parts.predicted_s,
        came.latency_s,
        came.worst,
        curve,
        parts.carried_s,
    )


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), sort_keys=True, separators=(",", ":"))
