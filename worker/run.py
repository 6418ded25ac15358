"""Run one claimed job: a child does the work, this process keeps the lease and writes down the outcome."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from compiler.contract import Event, kinds
from compiler.contract.devices import held
from compiler.errors import TilewrightError
from service.blobs.store import AGAIN
from service.db.models import JobKind
from service.errors import BlobDamaged, BlobLost, NotFound, StorageUnavailable
from service.jobs import lease
from service.jobs.lease import Claim
from service.jobs.printed import Printed
from worker import device, holder, outcome, problems
from worker.bell import Bell
from worker.child import FIRST, Spec
from worker.desk import Desk
from worker.fan_out import Answers
from worker.group import Group
from worker.heartbeat import Heartbeat
from worker.helping import may_help
from worker.kind import READING
from worker.layout import ARRAYS, Laid, lay_out, lay_out_samples
from worker.limits import Limits
from worker.measured import Intake
from worker.scratch import Folder, Process, folder
from worker.supervise import MEASUREMENTS, Ending, supervise


def run(desk: Desk, claim: Claim, lock: int = -1) -> str:
    """Do the job, and write the outcome under the claim's fence; every process of the job is dead at return.

    lock  descriptor of the device lock, inherited by the job, or -1

    Returns what became of the job: `succeeded`, `failed`, `cancelled`, `released` (given back, because this worker
    goes down), `retried` (given back, because this machine was at fault), or `lost` (another's: nothing written).
    """
    place = Folder.of(desk.scratch, f"{claim.job_id}-{claim.fence}")
    with _attended(desk, claim, place) as (bell, heartbeat), ExitStack() as opened:
        try:
            opened.enter_context(folder(place))
        except OSError as error:
            ending = Ending("problem", problem=problems.from_exception(error, desk.limits).to_json())
            return outcome.settle(desk, claim, heartbeat, ending, None)
        ending = _attempt(desk, claim, place, lock, bell, heartbeat)
        made, ending = outcome.store(desk, claim, place.output, ending)
        return outcome.settle(desk, claim, heartbeat, ending, made)


@contextlib.contextmanager
def _attended(desk: Desk, claim: Claim, place: Folder) -> Iterator[tuple[Bell, Heartbeat]]:
    """The claim is kept alive, and whoever wants the job stopped is heard."""
    bell = Bell()

    def finish() -> None:
        place.ask_to_finish()
        bell.ask_to_finish()

    heartbeat = Heartbeat(desk.db, claim, bell, finish)
    desk.stop.attend(bell)
    desk.presence.busy_with(claim.job_id)
    heartbeat.start()
    try:
        yield bell, heartbeat
    finally:
        heartbeat.stop(outcome.STOP_PATIENCE_S)
        desk.presence.busy_with(None)
        desk.stop.attend(None)
        bell.close()


def _observer(heartbeat: Heartbeat, intake: Intake) -> Callable[[Event], None]:
    def observe(event: Event) -> None:
        if event.kind in MEASUREMENTS:
            heartbeat.keep(intake.take(event))
        else:
            heartbeat.tell(event)

    return observe


def _attempt(desk: Desk, claim: Claim, place: Folder, lock: int, bell: Bell, heartbeat: Heartbeat) -> Ending:
    """The child from start to end."""
    limits = _limits(desk, claim)
    if claim.finish:
        place.ask_to_finish()
        bell.ask_to_finish()
    try:
        laid = lay_out(claim, desk.blobs, place.inputs)
        samples = lay_out_samples(claim, desk.blobs, place.inputs)
        spec = _spec(desk, claim, place, laid, samples, limits)
        measured = device.measured_as(_target(claim), desk.hardware)
        seen = holder.environment(desk.device)
        group = Group.start(spec.to_json(), place.work, command=desk.command, lock=lock, environment=seen)
        with contextlib.suppress(OSError):
            # Dead already, or no space to say whose it is: `supervise` ends it all the same.
            place.sign(Process.of(os.getpid()), Process.of(group.launcher.pid))
        asked = Answers(desk, claim, measured, spec.answers).answer if measured and spec.answers else None
        return supervise(
            group,
            limits,
            bell,
            _observer(heartbeat, Intake(claim)),
            outcome.WORDS[claim.kind],
            asked,
            lambda report: outcome.store_first(desk, claim, place.output.with_name(FIRST), report),
            lambda text: heartbeat.tell(Printed(text)),
        )
    except (NotFound, BlobLost, BlobDamaged) as error:
        missing = problems.InputsMissing(
            f"an input of the job cannot be used: {error.message}", fix=AGAIN, details=error.details
        )
        return Ending("problem", problem=missing.to_json())
    except StorageUnavailable as error:
        return Ending("problem", problem=outcome.storage_problem(error).to_json())
    except (TilewrightError, OSError) as error:
        return Ending("problem", problem=problems.from_exception(error, desk.limits).to_json())


def _limits(desk: Desk, claim: Claim) -> Limits:
    """This machine's, or less time if the owner says so; reading a model has its own time."""
    limits = desk.limits
    if claim.max_run_s is not None:
        limits = replace(limits, wall_s=min(limits.wall_s, claim.max_run_s))
    return limits if outcome.WORDS[claim.kind] in READING else replace(limits, load_s=limits.wall_s)


def _spec(desk: Desk, claim: Claim, place: Folder, laid: Laid, samples: Laid, limits: Limits) -> Spec:
    """The orders of the child. Raises `NotFound` when an artifact of a run is gone with its row."""
    artifacts = sum(name != ARRAYS for name, _ in laid)
    if outcome.WORDS[claim.kind] not in READING and artifacts == 0:
        raise NotFound("there is no artifact left", fix="compile the model again")
    return Spec(
        kind=outcome.WORDS[claim.kind],
        inputs=laid,
        output=place.output,
        scratch=place.work,
        finish=place.finish,
        options=claim.options,
        records=tuple(_records(desk, claim)),
        limits=limits,
        measures=device.measures(_target(claim), desk.device) if claim.kind in TIMING else desk.measures,
        gpu=kinds.CUDA.index_of(desk.device) is not None,
        samples=samples,
        walls=desk.walls,
        answers=place.answers if claim.kind == JobKind.COMPILE and may_help(desk) else None,
    )


TIMING = (JobKind.COMPILE, JobKind.COMPRESSION)
"""Those that measure on the device of their target, with earlier records."""


def _target(claim: Claim) -> str:
    return held(str(claim.options.get("target", "cpu")), claim.options.get("devices", ()))


def _records(desk: Desk, claim: Claim) -> list[dict[str, Any]]:
    if claim.kind not in TIMING:
        return []
    measured = device.measured_as(_target(claim), desk.hardware)
    if measured is None:
        return []
    return outcome.persist(desk, lambda: lease.records_for(desk.db, claim.owner, *measured)) or []
