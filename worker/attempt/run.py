"""Run one claimed job: a child does the work, this process keeps the lease and writes down the outcome."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from compiler.contract import Event, job_kinds, kinds
from compiler.contract.devices import held
from compiler.errors import TilewrightError
from service.blobs.store import AGAIN
from service.errors import BlobDamaged, BlobLost, NotFound, StorageUnavailable
from service.jobs.lifecycle.printed import Printed
from service.jobs.scheduling import lease
from service.jobs.scheduling.lease import Claim
from worker import problems
from worker.attempt import outcome
from worker.attempt.child import Spec
from worker.attempt.context import WorkerContext
from worker.attempt.fan_out import Answers
from worker.attempt.helper import may_help
from worker.attempt.layout import ARRAYS, Laid, lay_out, lay_out_samples
from worker.attempt.measurements import Intake
from worker.attempt.spans import Spans
from worker.attempt.supervise import MEASUREMENTS, Ending, supervise
from worker.devices import device, holder
from worker.lease.heartbeat import Heartbeat
from worker.lease.wakeup import Wakeup
from worker.limits import Limits
from worker.processes.group import Group
from worker.processes.scratch import Folder, Process, folder


def run(context: WorkerContext, claim: Claim, lock: int = -1) -> str:
    """Do the job, and write the outcome under the claim's fence; every process of the job is dead at return.

    lock  descriptor of the device lock, inherited by the job, or -1

    Returns what became of the job: `succeeded`, `failed`, `cancelled`, `released` (given back, because this worker
    goes down), `retried` (given back, because this machine was at fault), or `lost` (another's: nothing written).
    """
    place = Folder.of(context.scratch, f"{claim.job_id}-{claim.fence}")
    with Spans(claim) as spans, _attended(context, claim, place) as (wakeup, heartbeat), ExitStack() as opened:
        made = None
        try:
            opened.enter_context(folder(place))
        except OSError as error:
            ending = Ending("problem", problem=problems.from_exception(error, context.limits).to_json())
        else:
            ending = _attempt(context, claim, place, lock, wakeup, heartbeat, spans)
            spans.leave()
            made, ending = outcome.store(context, claim, place.output, ending)
        became = outcome.settle(context, claim, heartbeat, ending, made)
        spans.became(became, str(ending.problem.get("code", "")))
        return became


@contextlib.contextmanager
def _attended(context: WorkerContext, claim: Claim, place: Folder) -> Iterator[tuple[Wakeup, Heartbeat]]:
    """The claim is kept alive, and whoever wants the job stopped is heard."""
    wakeup = Wakeup()

    def finish() -> None:
        place.ask_to_finish()
        wakeup.ask_to_finish()

    heartbeat = Heartbeat(context.db, claim, wakeup, finish)
    context.stop.attend(wakeup)
    context.status.busy_with(claim.job_id)
    heartbeat.start()
    try:
        yield wakeup, heartbeat
    finally:
        heartbeat.stop(outcome.STOP_PATIENCE_S)
        context.status.busy_with(None)
        context.stop.attend(None)
        wakeup.close()


def _observer(heartbeat: Heartbeat, intake: Intake, spans: Spans) -> Callable[[Event], None]:
    def observe(event: Event) -> None:
        spans.enter(event.phase)
        if event.kind in MEASUREMENTS:
            heartbeat.keep(intake.take(event))
        else:
            heartbeat.tell(event)

    return observe


def _attempt(
    context: WorkerContext,
    claim: Claim,
    place: Folder,
    lock: int,
    wakeup: Wakeup,
    heartbeat: Heartbeat,
    spans: Spans,
) -> Ending:
    """The child from start to end."""
    limits = _limits(context, claim)
    if claim.finish:
        place.ask_to_finish()
        wakeup.ask_to_finish()
    try:
        laid = lay_out(claim, context.blobs, place.inputs)
        samples = lay_out_samples(claim, context.blobs, place.inputs)
        spec = _spec(context, claim, place, laid, samples, limits)
        measured = device.measured_as(_target(claim), context.hardware)
        seen = holder.environment(context.device)
        group = Group.start(spec.to_json(), place.work, command=context.command, lock=lock, environment=seen)
        with contextlib.suppress(OSError):
            # Dead already, or no space to say whose it is: `supervise` ends it all the same.
            place.sign(Process.of(os.getpid()), Process.of(group.launcher.pid))
        asked = Answers(context, claim, measured, spec.answers).answer if measured and spec.answers else None
        return supervise(
            group,
            limits,
            wakeup,
            _observer(heartbeat, Intake(claim), spans),
            claim.kind,
            answer=asked,
            first=lambda report: outcome.store_first(context, claim, spec.first, report),
            printed=lambda text: heartbeat.tell(Printed(text)),
        )
    except (NotFound, BlobLost, BlobDamaged) as error:
        missing = problems.InputsMissing(
            f"an input of the job cannot be used: {error.message}", fix=AGAIN, details=error.details
        )
        return Ending("problem", problem=missing.to_json())
    except StorageUnavailable as error:
        return Ending("problem", problem=outcome.storage_problem(error).to_json())
    except (TilewrightError, OSError) as error:
        return Ending("problem", problem=problems.from_exception(error, context.limits).to_json())


def _limits(context: WorkerContext, claim: Claim) -> Limits:
    """This machine's, or less time if the owner says so; reading a model has its own time."""
    limits = context.limits
    if claim.max_run_s is not None:
        limits = replace(limits, wall_s=min(limits.wall_s, claim.max_run_s))
    return limits if job_kinds.of(claim.kind).reads else replace(limits, load_s=limits.wall_s)


def _spec(context: WorkerContext, claim: Claim, place: Folder, laid: Laid, samples: Laid, limits: Limits) -> Spec:
    """The orders of the child. Raises `NotFound` when an artifact of a run is gone with its row."""
    artifacts = sum(name != ARRAYS for name, _ in laid)
    if not job_kinds.of(claim.kind).reads and artifacts == 0:
        raise NotFound("there is no artifact left", fix="compile the model again")
    compiled_for = kinds.find(_target(claim)) if claim.kind == job_kinds.COMPILE.name else None
    return Spec(
        kind=claim.kind,
        inputs=laid,
        output=place.output,
        scratch=place.work,
        finish=place.finish,
        options=_options(context, claim),
        records=tuple(_records(context, claim)),
        limits=limits,
        measures=device.measures(_target(claim), context.device)
        if job_kinds.of(claim.kind).times
        else context.measures,
        gpu=kinds.CUDA.index_of(context.device) is not None,
        samples=samples,
        walls=context.walls,
        answers=place.answers if claim.kind == job_kinds.COMPILE.name and may_help(context) else None,
        kept=place.kept if compiled_for and compiled_for.browser else None,
    )


def _options(context: WorkerContext, claim: Claim) -> dict[str, Any]:
    """The claim's; a compilation that does not say with what to compare is raced with nothing where this worker so."""
    silent = claim.kind == job_kinds.COMPILE.name and claim.options.get("compare") is None and not context.compare
    return {**claim.options, "compare": []} if silent else dict(claim.options)


def _target(claim: Claim) -> str:
    return held(str(claim.options.get("target", "cpu")), claim.options.get("devices", ()))


def _records(context: WorkerContext, claim: Claim) -> list[dict[str, Any]]:
    if not job_kinds.of(claim.kind).times:
        return []
    measured = device.measured_as(_target(claim), context.hardware)
    if measured is None:
        return []
    return outcome.persist(context, lambda: lease.records_for(context.db, claim.owner, *measured)) or []
