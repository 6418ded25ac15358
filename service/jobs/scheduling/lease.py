"""What a worker may do: claim a job, keep it, and hand in its outcome.

Every call is one transaction. Each claim raises the job's fence; a call whose claim carries an older fence, or
whose job is no longer held, writes nothing and says so. Calling an outcome again after it was written (the
answer was lost) is harmless and answers True again. All raise `DatabaseUnavailable` when the database does not
answer: nothing is known then, and the call may be repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from sqlalchemy.orm import Session

from compiler.contract import COMPILER_VERSION, Event, job_kinds
from service.blobs.store import StoredBlob
from service.db import (
    artifacts,
    attempts,
    events,
    jobs,
    needs,
    records,
    results,
    shares,
    totals,
    usage,
    workers,
    workloads,
)
from service.db.engine import Database, clock
from service.db.models import Job, JobState, PartialArtifact
from service.db.plain import storable
from service.jobs.accounts import quotas
from service.jobs.accounts.quotas import UNLIMITED, Limits
from service.jobs.lifecycle import problems, transitions
from service.jobs.lifecycle.printed import Printed
from service.jobs.storage.samples import of_row
from service.jobs.tuning.records import records_for, to_row

__all__ = [
    "Claim",
    "Input",
    "Measured",
    "cancelled",
    "claim",
    "fail",
    "first_made",
    "heartbeat",
    "is_ready",
    "keep",
    "records_for",
    "release",
    "seen",
    "succeed",
]


@dataclass(frozen=True)
class Input:
    """A file that a job works with: `name` is what the job calls it, `key` finds it in the blob store."""

    name: str
    key: str
    bytes: int | None = None
    """Its length, as its row says; None: not known."""


@dataclass(frozen=True)
class Claim:
    """The right to do a job, until `lease_s` seconds pass without a heartbeat.

    inputs   of a compilation, quantization or compression: the ONNX file, named `model`, then its external data by
             relative path; of a benchmark and an inference: the artifacts by their ids; of an inference then the
             arrays, named `inputs`
    options  as the kind's options say in `to_json`
    finish   the owner wants the best that is known already, from the start
    samples  of a compilation, quantization, compression or benchmark: its .npz archives by their names
    max_run_s what the attempt may take at most, as its owner says; None: what this machine allows
    traceparent  where in a trace its request was made (W3C Trace Context)
    """

    job_id: uuid.UUID
    kind: str
    fence: int
    owner: uuid.UUID
    model_digest: str | None
    inputs: tuple[Input, ...]
    options: dict[str, Any]
    attempt: int
    """1 for the first."""
    lease_s: float
    finish: bool
    samples: tuple[Input, ...] = ()
    max_run_s: float | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class Measured:
    """What a compilation measured since the last heartbeat.

    Tuning records, and the text of each workload by its key.
    """

    records: Sequence[Mapping[str, Any]] = ()
    workloads: Mapping[str, str] = field(default_factory=dict)


Said = Event | Printed
"""What becomes a line of a job's log."""

NOTHING = Measured()

Store = Callable[[Session, Claim, Mapping[str, Any], StoredBlob | None, Mapping[str, Any]], None]
"""Writes what a job made: of the claim the report, the file and the circumstances (`succeed`)."""

TALLY_S = 5.0
"""Device seconds that a heartbeat adds to the owner's tally, at the least; the end of the attempt adds the rest."""


def claim(
    db: Database,
    worker: str,
    queues: Sequence[str],
    lease_s: float,
    limits: Limits = UNLIMITED,
    *,
    compiler: str = COMPILER_VERSION,
) -> Claim | None:
    """Take the best queued job of `queues` (priority, fair share, age) for `lease_s` seconds.

    Jobs that ask for another version of the compiler than the worker's, `compiler`, are passed over.

    Jobs of owners that are suspended, or have what `limits` or the operator grants them, are passed over. None when
    there is no other.
    """
    while True:
        with db.write() as session:
            barred = quotas.barred(session, limits)
            # A row may be held for a moment by who names or cancels its job: it is free to be claimed after that.
            job_id = jobs.best(session, queues, barred, compiler=compiler) or jobs.best(
                session, queues, barred, compiler=compiler, wait=True
            )
            if job_id is None:
                return None
            if quotas.may_start(session, jobs.locked(session, job_id).owner_id, limits):
                return _take(session, job_id, worker, lease_s)
        # Another worker's claim came between the two questions: the owner is barred in the next round.


def is_ready(
    db: Database, queues: Sequence[str], limits: Limits = UNLIMITED, *, compiler: str = COMPILER_VERSION
) -> bool:
    """Whether `claim` would find a job."""
    with db.read() as session:
        return jobs.any_ready(session, queues, quotas.barred(session, limits), compiler=compiler)


def heartbeat(
    db: Database, claim: Claim, events: Sequence[Said], measured: Measured = NOTHING, *, batch: int | None = None
) -> Literal["ok", "cancel", "finish", "lost"]:
    """Renew the lease, append `events` to the job's log in order and keep what was measured.

    `ok` go on; `cancel` the owner wants it stopped: stop and call `cancelled`; `finish` the owner wants the best found
    so far; `lost` the lease is another's or the job has ended: stop, write nothing more. The first call with events
    moves LEASED to RUNNING. Phase and fraction of the job follow the events; the fraction never falls.

    batch  numbers what one attempt sends, 1, 2, 3...: a batch that is sent again, because the answer was lost, is
           written once. None: it is not sent again
    """
    with db.write() as session:
        held = jobs.extend(session, claim.job_id, claim.fence, claim.lease_s)
        if held is None:
            return "lost"
        if (had := attempts.untallied(session, claim.job_id, claim.attempt, TALLY_S)) is not None:
            usage.tally(session, claim.owner, *had)
        if batch is not None and not attempts.takes(session, claim.job_id, claim.attempt, batch):
            events, measured = (), NOTHING
        if events:
            if held.state is JobState.LEASED:
                transitions.move(session, claim.job_id, JobState.RUNNING, fence=claim.fence)
            _append(session, claim.job_id, events)
        keep(session, claim, measured)
        if held.cancel:
            return "cancel"
        return "finish" if held.finish else "ok"


def succeed(
    db: Database,
    claim: Claim,
    report: Mapping[str, Any],
    made: StoredBlob | None = None,
    circumstances: Mapping[str, Any] = MappingProxyType({}),
    *,
    measured: Measured = NOTHING,
    log: str = "",
) -> bool:
    """What the job made, what is left of the measurements, and SUCCEEDED in one transaction.

    report         what the process that did the job says of it
    made           what it made, already in the blob store; None for a kind that writes no file
    circumstances  of the attempt: worker, hardware, walls, when it ended

    False (nothing written) when fenced out. Raises `InternalError` for a record that breaks the form in
    `service.jobs.tuning.records`.
    """
    store: Store = import_module(job_kinds.of(claim.kind).stored).store
    with db.write() as session:
        if not _end(session, claim, JobState.SUCCEEDED, measured, also={"fraction": 1.0}, log=log):
            return _ended_as(session, claim, JobState.SUCCEEDED)
        store(session, claim, report, made, circumstances)
        return True


def first_made(db: Database, claim: Claim, *, artifact: StoredBlob, report: Mapping[str, Any]) -> bool:
    """Keep what a compilation made before measuring, until it has made its artifact; False when fenced out."""
    with db.write() as session:
        if jobs.extend(session, claim.job_id, claim.fence, claim.lease_s) is None:
            return False
        artifacts.keep_partial(
            session,
            PartialArtifact(
                job_id=claim.job_id,
                sha256=artifact.sha256,
                bytes=artifact.bytes,
                blob_key=artifact.key,
                report=storable(dict(report)),
            ),
        )
        return True


def fail(
    db: Database, claim: Claim, problem: Mapping[str, Any], *, measured: Measured = NOTHING, log: str = ""
) -> bool:
    """End the job as FAILED; `problem` is `TilewrightError.to_json`. Measurements made until then are kept.

    Of a fault of ours the owner is told what `service.jobs.lifecycle.problems.for_owner` says.
    """
    with db.write() as session:
        why = {"problem": problems.for_owner(problem, claim.job_id)}
        ended = _end(session, claim, JobState.FAILED, measured, said=why, also=why, log=log)
        return ended or _ended_as(session, claim, JobState.FAILED)


def cancelled(db: Database, claim: Claim, *, measured: Measured = NOTHING, log: str = "") -> bool:
    """End the job as CANCELLED, after `heartbeat` answered `cancel` and the work has stopped."""
    with db.write() as session:
        ended = _end(session, claim, JobState.CANCELLED, measured, log=log)
        return ended or _ended_as(session, claim, JobState.CANCELLED)


def release(
    db: Database,
    claim: Claim,
    *,
    reason: str = "the worker is shutting down",
    measured: Measured = NOTHING,
    log: str = "",
) -> bool:
    """Give the job back, QUEUED, for another attempt; it does not count as a lost lease.

    A job that was to be cancelled is CANCELLED instead.
    """
    with db.write() as session:
        job = session.get(Job, claim.job_id, with_for_update=True)
        to = JobState.CANCELLED if job is not None and job.cancel_requested else JobState.QUEUED
        ended = _end(session, claim, to, measured, said={"reason": reason}, log=log)
        return ended or _ended_as(session, claim, to)


def seen(
    db: Database,
    worker: str,
    queues: Sequence[str],
    hardware: Mapping[str, Any],
    compiler: str,
    busy_with: uuid.UUID | None = None,
) -> None:
    """Report that the worker process `worker` is alive, what it runs on and which job it has."""
    with db.write() as session:
        workers.report(session, worker, queues, dict(hardware), compiler, busy_with)


def _take(session: Session, job_id: uuid.UUID, worker: str, lease_s: float) -> Claim | None:
    taken = {
        "fence": Job.fence + 1,
        "attempts": Job.attempts + 1,
        "lease_owner": worker,
        "lease_until": clock() + lease_s,
        "started_at": clock(),
    }
    if not transitions.move(session, job_id, JobState.LEASED, said={"worker": worker}, also=taken):
        return None
    job = jobs.locked(session, job_id)
    attempts.begin(session, job_id, job.attempts, worker)
    shares.charge(session, job.queue, job.owner_id, shares.ADVANCE_S)
    return _claim(session, job, lease_s)


def _claim(session: Session, job: Job, lease_s: float) -> Claim:
    return Claim(
        job_id=job.id,
        kind=job.kind,
        fence=job.fence,
        owner=job.owner_id,
        model_digest=job.model_digest,
        inputs=_inputs(session, job),
        options=job.options,
        attempt=job.attempts,
        lease_s=lease_s,
        finish=job.finish_requested,
        samples=tuple(Input(sample.name, sample.blob.key, sample.blob.bytes) for sample in of_row(job.samples)),
        max_run_s=job.max_run_s,
        traceparent=job.traceparent,
    )


def _inputs(session: Session, job: Job) -> tuple[Input, ...]:
    if job.model_digest is not None:
        model = artifacts.model(session, job.owner_id, job.model_digest)
        assert model is not None, "a foreign key holds the model"
        return (
            Input("model", model.blob_key, artifacts.onnx_bytes(model)),
            *(Input(file["path"], file["key"], file["bytes"]) for file in model.files),
        )
    made = needs.artifacts(session, job.id)
    inputs = [Input(str(artifact.id), artifact.blob_key, artifact.bytes) for artifact in made]
    given = results.inference(session, job.id)
    if given is not None:
        inputs.append(Input("inputs", given.input_key, given.input_bytes))
    return tuple(inputs)


def _append(session: Session, job_id: uuid.UUID, said: Sequence[Said]) -> None:
    entries = []
    for event in said:
        plain = event.to_json()
        entries.append((plain.pop("kind"), plain))
    events.append(session, job_id, entries)
    jobs.progress(
        session,
        job_id,
        storable(next((event.phase for event in reversed(said) if event.phase), "")),
        max(event.fraction for event in said),
    )


def keep(session: Session, claim: Claim, measured: Measured) -> None:
    """Write what was measured for a claim that counts."""
    workloads.keep_all(session, claim.owner, measured.workloads)
    rows = [to_row(r, owner=claim.owner, job=claim.job_id, model_digest=claim.model_digest) for r in measured.records]
    records.add(session, rows)
    for row in rows:
        totals.count(session, "tuning_records", kind=row["kind"], target=row["target"])


def _end(session: Session, claim: Claim, to: JobState, measured: Measured = NOTHING, **how: Any) -> bool:
    """Keep what was measured, then move the job as `transitions.move` does; False, and nothing written, if fenced out.

    In this order no record is younger than its attempt, however long the process stands still in between.
    """
    if jobs.extend(session, claim.job_id, claim.fence, claim.lease_s) is None:
        return False
    keep(session, claim, measured)
    return transitions.move(session, claim.job_id, to, fence=claim.fence, **how)


def _ended_as(session: Session, claim: Claim, state: JobState) -> bool:
    """Whether this very claim has already brought the job there."""
    row = session.get(Job, claim.job_id, populate_existing=True, with_for_update=True)
    return row is not None and row.state == state and row.fence == claim.fence  # None: it was removed with its model
