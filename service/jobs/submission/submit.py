"""Accept compilations: at most one job per idempotency key, and none at all for what the cache can answer."""

from __future__ import annotations

import difflib
import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from compiler.contract import COMPILER_VERSION, CompileOptions, job_kinds
from compiler.contract.races import PEERS
from compiler.errors import OptionsError
from service.db import arrivals, artifacts, catalogue, events, jobs, owners, shares, totals
from service.db.engine import Database, clock
from service.db.models import Job, JobState, Owner, new_id
from service.errors import IdempotencyKeyReused, NotFound
from service.jobs.accounts import audit, quotas
from service.jobs.accounts.quotas import Limits
from service.jobs.notifications import webhooks
from service.jobs.storage import samples
from service.jobs.storage.models import demand_bytes
from service.jobs.storage.samples import SampleFile
from service.jobs.submission.job_terms import NOTHING, Beside, allows

LOWEST_PRIORITY, HIGHEST_PRIORITY = -10, 10


@dataclass(frozen=True)
class Submission:
    """What a request asks for. The model is already kept (`service.jobs.storage.models`) and has not been read."""

    owner: uuid.UUID
    model: str
    """The model's digest."""
    options: CompileOptions
    fresh: bool = False
    """Compile even if the cache holds the answer."""
    idempotency_key: str | None = None
    priority: int = 0
    cloned_from: uuid.UUID | None = None
    samples: tuple[SampleFile, ...] = ()
    beside: Beside = NOTHING
    whole: str = ""
    """Fingerprint of the request, of one that asks for several jobs."""
    batch: uuid.UUID | None = None
    """What these jobs share."""

    @property
    def body_hash(self) -> str:
        """What two requests with one idempotency key must share (SHA-256, hex): model, options, and what is beside."""
        further = [one for one in (self.digests, self.beside.said) if one]
        parts = (self.model, self.options.to_json(), self.fresh, *further)
        return fingerprint(*parts, self.whole) if self.whole else fingerprint(*parts)

    @property
    def digests(self) -> list[str]:
        """Of the samples."""
        return [sample.blob.sha256 for sample in self.samples]

    @property
    def samples_bytes(self) -> int:
        """Of all samples together."""
        return sum(sample.blob.bytes for sample in self.samples)

    @property
    def cache_key(self) -> str:
        """What artifacts that may answer it share.

        The options' key is that of this version of the compiler: where workers of another one are asked for, theirs is
        a key of its own.
        """
        key = self.options.cache_key(self.model, self.digests)
        return key if allows(self.beside.compiler, COMPILER_VERSION) else fingerprint(key, self.beside.compiler)

    @property
    def queue(self) -> str:
        """The device class that has to compile it."""
        return self.options.held


@dataclass(frozen=True)
class Submitted:
    """The job that answers a request; `replayed` when an earlier request with the same key made it."""

    job: Job
    replayed: bool


def submit(db: Database, submission: Submission, *, limits: Limits) -> Submitted:
    """Make one job's row, durably; the caller rings the doorbell afterwards if the job is QUEUED.

    Raises `NotFound` (no such model), `BlobLost` (its files are lost or damaged), `OptionsError` (no such target),
    `IdempotencyKeyReused` (key known with another body), and what `service.jobs.accounts.quotas` refuses.
    """
    return submit_all(db, [submission], limits=limits)[0]


def submit_all(db: Database, submissions: Sequence[Submission], *, limits: Limits) -> list[Submitted]:
    """Make the rows of one owner's jobs, all or none; the errors of `submit`."""
    with db.write() as session:
        owner = quotas.opened(session, submissions[0].owner)
        return [_submit(session, owner, submission, limits) for submission in submissions]


def fingerprint(*parts: object) -> str:
    """SHA-256 (hex) over plain JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def earlier(session: Session, owner: uuid.UUID, key: str | None, body_hash: str) -> Job | None:
    """The job that an earlier request with this idempotency key made. Raises `IdempotencyKeyReused`."""
    if key is None:
        return None
    job = jobs.by_idempotency_key(session, owner, key)
    if job is not None and job.body_hash != body_hash:
        raise IdempotencyKeyReused(
            f"idempotency key {key!r} was used with another request",
            fix="use a new key for a new request",
            details={"job": str(job.id)},
        )
    return job


def enqueue(session: Session, job: Job, limits: Limits) -> None:
    """Insert a QUEUED job in its owner's turn, for which the caller rings after the commit unless it is blocked.

    Raises `QueueFull`, `DeviceTimeUsed` and `QuotaExceeded`.
    """
    owner = owners.by_id(session, job.owner_id)
    assert owner is not None, "it is locked"
    quotas.demand_turn(session, owner, limits)
    if job.kind == job_kinds.COMPILE.name:
        quotas.demand_room(session, owner, 0, limits)
    shares.arrive(session, job.queue, job.owner_id)
    job.published_at = None if job.blocked_by else clock()
    begin(session, job)
    if not job.blocked_by:
        arrivals.tell(session, job.queue)


def begin(session: Session, job: Job, *, notice: str = "") -> None:
    """Insert a job with the first lines of its log: a notice, if there is one, and its state."""
    job.traceparent = audit.traceparent()
    jobs.add(session, job)
    traced = {"traceparent": job.traceparent} if job.traceparent else {}
    before = [("notice", {"message": notice})] if notice else []
    events.append(session, job.id, [*before, ("state", {"state": str(job.state), "cached": job.cached, **traced})])
    totals.count(session, "jobs_accepted", kind=str(job.kind), queue=job.queue)
    audit.note(session, "create", f"/jobs/{job.id}")
    session.refresh(job)


def _submit(session: Session, opened: Owner, submission: Submission, limits: Limits) -> Submitted:
    owner, digest = submission.owner, submission.model
    if (known := earlier(session, owner, submission.idempotency_key, submission.body_hash)) is not None:
        return Submitted(known, replayed=True)
    model = artifacts.model(session, owner, digest)
    if model is None:
        raise NotFound(f"there is no model {digest}", fix="upload it with POST /models")
    job = Job(
        id=new_id(),
        owner_id=owner,
        kind=job_kinds.COMPILE.name,
        artifact_id=new_id(),
        model_digest=digest,
        options=submission.options.to_json(),
        samples=[sample.to_json() for sample in submission.samples] or None,
        samples_bytes=submission.samples_bytes,
        cache_key=submission.cache_key,
        idempotency_key=submission.idempotency_key,
        body_hash=submission.body_hash,
        cloned_from=submission.cloned_from,
        batch_id=submission.batch,
        queue=submission.queue,
        priority=submission.priority,
        state=JobState.QUEUED,
        **submission.beside.columns,
    )
    _demand_known(session, submission.options.held)
    if submission.samples:
        quotas.demand_room(session, opened, submission.samples_bytes, limits)
    if submission.cloned_from is None:
        samples.name(session, submission.samples)
    source = None if submission.fresh else jobs.cached(session, owner, submission.cache_key)
    artifacts.use_model(session, owner, digest)
    if source is None:
        demand_bytes(session, model)
        samples.demand_bytes(session, submission.samples)
        enqueue(session, job, limits)
    else:
        _answer_from(job, source)
        begin(session, job, notice=_not_raced(submission.options, source))
        webhooks.tell(session, owner, job.id)
        totals.count(session, "cache_hits")
    return Submitted(job, replayed=False)


def _demand_known(session: Session, target: str) -> None:
    """A job for a target that no compiler knows would wait for ever. Raises `OptionsError`.

    Before any worker has published its targets, every target is taken; a worker is what can know.
    """
    published = catalogue.newest(session, "targets")
    names = [str(entry["name"]) for entry in published.entries] if published else [target]
    if target not in names:
        near = difflib.get_close_matches(target, names, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise OptionsError(f"target {target!r} is unknown", fix=f"{meant}Known: {', '.join(names)}")


def _not_raced(options: CompileOptions, source: Job) -> str:
    """What is said where a comparison was asked for by name, and the cache answers; else empty."""
    kept = (source.report or {}).get("compared")
    known = {one.get("peer") for one in kept if isinstance(one, dict)} if isinstance(kept, list) else set()
    missing = [PEERS[peer] for peer in options.compare or () if peer not in known]
    if missing:
        return (
            f"the artifact is from the cache, without a race with {' and '.join(missing)}: `fresh` compiles and races"
        )
    if options.compare:
        return "the artifact is from the cache, and the comparison is of its own compilation: `fresh` races anew"
    return ""


def _answer_from(job: Job, source: Job) -> None:
    """Make the new job a success that names the artifact of `source`."""
    job.state = JobState.SUCCEEDED
    job.cached = True
    job.artifact_id = source.artifact_id
    job.report = source.report
    job.phase, job.fraction = source.phase, 1.0
    job.started_at = job.finished_at = clock()
