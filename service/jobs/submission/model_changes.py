"""Accept jobs that change a model: it, samples and options, from which a worker makes another model of the owner."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Protocol

from compiler.contract import kinds
from service.db import artifacts
from service.db.engine import Database
from service.db.models import Job, JobState, new_id
from service.jobs.accounts import quotas
from service.jobs.accounts.quotas import Limits
from service.jobs.storage import models, samples
from service.jobs.storage.samples import SampleFile
from service.jobs.submission.job_terms import NOTHING, Beside
from service.jobs.submission.submit import Submitted, earlier, enqueue, fingerprint


class Plain(Protocol):
    """Options of a kind of job."""

    def to_json(self) -> dict[str, Any]:
        """As the job's row holds them."""
        ...


@dataclass(frozen=True)
class ModelChange:
    """What a request asks for. The model (its digest) is already kept, and has not been read; nor have the samples.

    kind   the name of its kind in `compiler.contract.job_kinds`
    queue  names the workers that may do it
    """

    kind: str
    owner: uuid.UUID
    model: str
    options: Plain
    samples: tuple[SampleFile, ...] = ()
    idempotency_key: str | None = None
    priority: int = 0
    beside: Beside = NOTHING
    queue: str = kinds.CPU.name

    @property
    def body_hash(self) -> str:
        """What two requests with one idempotency key must share (SHA-256, hex)."""
        digests = [sample.blob.sha256 for sample in self.samples]
        further = [said] if (said := self.beside.said) else []
        return fingerprint(self.kind, self.model, self.options.to_json(), digests, *further)


def change(db: Database, wanted: ModelChange, *, limits: Limits) -> Submitted:
    """Make the job's row, durably.

    Raises `NotFound` (no such model), `BlobLost` (bytes that are lost or damaged), `IdempotencyKeyReused`, and what
    `service.jobs.accounts.quotas` refuses.
    """
    with db.write() as session:
        owner = quotas.opened(session, wanted.owner)
        if (known := earlier(session, wanted.owner, wanted.idempotency_key, wanted.body_hash)) is not None:
            return Submitted(known, replayed=True)
        model = models.required(session, wanted.owner, wanted.model)
        size = sum(sample.blob.bytes for sample in wanted.samples)
        quotas.demand_room(session, owner, size, limits)
        samples.name(session, wanted.samples)
        artifacts.use_model(session, wanted.owner, wanted.model)
        models.demand_bytes(session, model)
        samples.demand_bytes(session, wanted.samples)
        job = Job(
            id=new_id(),
            owner_id=wanted.owner,
            kind=wanted.kind,
            model_digest=wanted.model,
            options=wanted.options.to_json(),
            samples=[sample.to_json() for sample in wanted.samples] or None,
            samples_bytes=size,
            idempotency_key=wanted.idempotency_key,
            body_hash=wanted.body_hash,
            queue=wanted.queue,
            priority=wanted.priority,
            state=JobState.QUEUED,
            **wanted.beside.columns,
        )
        enqueue(session, job, limits)
        return Submitted(job, replayed=False)
