"""How fast each core of a job runs the whole model, by itself and while all run it: measured, recorded.

A division is planned by it. The sum of kernels is less than what they take one after another: each was measured with
caches as it left them itself, and the fastest of many measured tiles is a little slower than it seemed. And cores share
caches, memory and perhaps what computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any, TypeGuard

import numpy as np

from compiler.contract import generator
from compiler.ir.machine import Record
from compiler.ir.target import Target
from compiler.knowledge.kinds import ALONE_S, CORES, TOGETHER_S
from compiler.knowledge.making import cores_record
from compiler.measure.cores import CoreSeconds, core_seconds, in_place, on_cores
from compiler.pack.loader import Model
from compiler.schedule.parts.corrections import ALIKE
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.steps.dividing.devices import Devices
from compiler.steps.planning.choice import plan_digest

LONGEST_S = 1e3
"""No record is believed that says that an inference takes longer."""


def cores_known(
    session: Session, devices: Devices, front: Front, built: Built, model: str, alone: Path
) -> Record | None:
    """The record of the cores among the devices, made now where there is none and measuring is permitted.

    `alone` is the artifact for one core of the first target, which `session` and `built` are of; `model` is the key of
    its records. None where a device is no single core, or nothing is known.
    """
    cores = [device.core for device in devices.named if device.core is not None]
    runner = session.backend.runner
    if len(cores) < len(devices.named) or runner is None or runner.emulator:
        return None
    setting = built.tiles.setting
    identity: dict[str, Any] = {"plan": plan_digest(built.plans.plan), "cores": cores, **setting.to_json()}
    target = session.backend.target
    if (record := _recorded(session, target, model, identity, len(cores))) is not None:
        return record
    if not session.may_measure:
        return None
    given = front.opened.timed_inputs(session.options.seed)
    with ExitStack() as opened:
        runs = []
        for _ in cores:
            one = opened.enter_context(runner.open(alone, verify=False))
            arrays = [given[spec.name].copy() for spec in one.inputs]
            runs.append(one.bind(arrays, [np.zeros(spec.shape, spec.numpy) for spec in one.outputs]))
        took = core_seconds(on_cores(runs, cores), len(cores), session.budget.stop_requested)
    if took is None:
        return None
    about = f"the whole model on each of {len(cores)} cores"
    record = cores_record(model, about, target, identity, took)
    session.add_records([record])
    return record


def program_known(
    session: Session,
    target: Target,
    model: str,
    identity: Mapping[str, Any],
    opened: Callable[[], AbstractContextManager[Model]],
) -> Record | None:
    """The record of one core that runs the whole model by a program of its own, made now where there is none.

    `identity` says which program on which core, `model` is the key of its records, and `opened` opens an artifact of
    which that program is the one part. None where nothing is known and nothing may be measured.
    """
    if (record := _recorded(session, target, model, identity, 1)) is not None or not session.may_measure:
        return record
    with opened() as one:
        given = one.random_inputs(session.options.seed)
        block = in_place(one, [given[spec.name] for spec in one.inputs])
        took = core_seconds(block, 1, session.budget.stop_requested)
    if took is None:
        return None
    record = cores_record(model, "the whole model on one core by its own program", target, identity, took)
    session.add_records([record])
    return record


def _recorded(session: Session, target: Target, model: str, identity: Mapping[str, Any], cores: int) -> Record | None:
    """The last record of this by this compiler that can be believed."""
    for record in reversed(session.records.find(CORES, target, workload=model)):
        is_same = record.compiler == generator() and identity.items() <= record.variant.items()
        if is_same and seconds_by(record, cores) is not None:
            return record
    return None


def seconds_by(record: Record | None, cores: int) -> CoreSeconds | None:
    """What a record says of so many cores; None where it says nothing that can have been measured."""
    if record is None:
        return None
    alone_s, together_s = (record.variant.get(name) for name in (ALONE_S, TOGETHER_S))
    if not (_are_seconds(alone_s, cores) and _are_seconds(together_s, cores)):
        return None
    return CoreSeconds(tuple(alone_s), tuple(together_s))


def levelled(seconds: Sequence[float]) -> list[float]:
    """With the mean of those that differ by less than ALIKE in place of each of them."""
    order = sorted(range(len(seconds)), key=seconds.__getitem__)
    groups: list[list[int]] = []
    for at in order:
        if groups and seconds[at] < ALIKE * seconds[groups[-1][0]]:
            groups[-1].append(at)
        else:
            groups.append([at])
    means = {at: fmean(seconds[one] for one in group) for group in groups for at in group}
    return [means[at] for at in range(len(seconds))]


def _are_seconds(said: object, count: int) -> TypeGuard[list[float]]:
    return (
        isinstance(said, list)
        and len(said) == count
        and all(isinstance(one, float) and 0 < one <= LONGEST_S for one in said)
    )
