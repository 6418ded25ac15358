"""Accept what runs artifacts on a device: benchmarks and inferences.

Both are jobs; what they need may still be in the making.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import BenchmarkOptions, job_kinds
from service.blobs.store import StoredBlob
from service.db import artifacts, jobs, kept, needs, results
from service.db.engine import Database
from service.db.models import Job, JobState, new_id
from service.errors import ArtifactNeverMade, NotFound
from service.jobs.accounts import quotas
from service.jobs.accounts.quotas import Limits
from service.jobs.lifecycle import transitions
from service.jobs.storage import samples
from service.jobs.storage.integrity import problem
from service.jobs.storage.samples import SampleFile
from service.jobs.submission.job_terms import NOTHING, Beside
from service.jobs.submission.submit import Submitted, earlier, enqueue, fingerprint

RUN = "run:"
"""Before a target it names the queue of what runs artifacts on such devices."""


@dataclass(frozen=True)
class Run:
    """A request to run artifacts of one owner. `inputs` (.npz, in the blob store) makes it an inference.

    `samples` are what a benchmark times them on. They have not been read.
    """

    owner: uuid.UUID
    artifacts: Sequence[uuid.UUID]
    options: dict[str, Any]
    inputs: StoredBlob | None = None
    idempotency_key: str | None = None
    priority: int = 0
    beside: Beside = NOTHING
    samples: tuple[SampleFile, ...] = ()

    @property
    def kind(self) -> str:
        """What the worker is to do with them."""
        return job_kinds.BENCHMARK.name if self.inputs is None else job_kinds.INFERENCE.name

    @property
    def body_hash(self) -> str:
        """What two requests with one idempotency key must share (SHA-256, hex)."""
        inputs = None if self.inputs is None else self.inputs.sha256
        further: list[Any] = [said] if (said := self.beside.said) else []
        further += [[sample.blob.sha256 for sample in self.samples]] if self.samples else []
        return fingerprint(str(self.kind), [str(id) for id in self.artifacts], self.options, inputs, *further)


def benchmark(
    db: Database,
    owner: uuid.UUID,
    artifact_ids: Sequence[uuid.UUID],
    options: BenchmarkOptions,
    *,
    idempotency_key: str | None = None,
    priority: int = 0,
    beside: Beside = NOTHING,
    on: tuple[SampleFile, ...] = (),
    limits: Limits,
) -> Submitted:
    """Queue a benchmark of one or several artifacts, made or in the making, on a sample or on numbers that are drawn.

    Raises `OptionsError` for sizes beside a sample, and the errors of `run`.
    """
    if on:
        options.demand_no_sizes()
    wanted = Run(owner, artifact_ids, options.to_json(), None, idempotency_key, priority, beside, on)
    return run(db, wanted, limits=limits)


def infer(
    db: Database,
    owner: uuid.UUID,
    artifact_id: uuid.UUID,
    inputs: StoredBlob,
    *,
    threads: int | None = None,
    seed: int | None = None,
    further: Mapping[str, Any] = MappingProxyType({}),
    idempotency_key: str | None = None,
    priority: int = 0,
    beside: Beside = NOTHING,
    limits: Limits,
) -> Submitted:
    """Queue one run of an artifact on uploaded inputs; the errors of `run`.

    `further` says what is more than one run: `generate`, how tokens are taken and when the text ends (the arguments of
    `tilewright.generate`), of a decoder whose prompt the inputs are; `pieces`, whether an output comes in pieces.
    """
    options: dict[str, Any] = {"threads": threads, **({} if seed is None else {"seed": seed}), **further}
    wanted = Run(owner, [artifact_id], options, inputs, idempotency_key, priority, beside)
    return run(db, wanted, limits=limits)


def run(db: Database, wanted: Run, *, limits: Limits) -> Submitted:
    """Make the job's row, durably.

    Raises `NotFound` for an artifact that was never promised, `ArtifactNeverMade` for one whose job failed,
    `ArtifactLost` for one whose bytes are lost or damaged, `IdempotencyKeyReused`, and what
    `service.jobs.accounts.quotas` refuses.
    """
    with db.write() as session:
        owner = quotas.opened(session, wanted.owner)
        if (known := earlier(session, wanted.owner, wanted.idempotency_key, wanted.body_hash)) is not None:
            return Submitted(known, replayed=True)
        makers = [_maker(session, wanted.owner, id) for id in wanted.artifacts]
        size = sum(sample.blob.bytes for sample in wanted.samples)
        job = Job(
            id=new_id(),
            owner_id=wanted.owner,
            kind=wanted.kind,
            options=wanted.options,
            samples=[sample.to_json() for sample in wanted.samples] or None,
            samples_bytes=size,
            idempotency_key=wanted.idempotency_key,
            body_hash=wanted.body_hash,
            queue=queue_of([maker.queue for maker in makers]),
            priority=wanted.priority,
            blocked_by=sum(maker.state not in transitions.TERMINAL for maker in makers),
            state=JobState.QUEUED,
            **wanted.beside.columns,
        )
        if wanted.inputs is not None:
            quotas.demand_room(session, owner, wanted.inputs.bytes, limits)
        if wanted.samples:
            quotas.demand_room(session, owner, size, limits)
            samples.name(session, wanted.samples)
            samples.demand_bytes(session, wanted.samples)
        enqueue(session, job, limits)
        needs.add(session, job.id, wanted.artifacts)
        if wanted.inputs is not None:
            results.add_inference(session, job.id, wanted.inputs.key, wanted.inputs.bytes)
        return Submitted(job, replayed=False)


def queue_of(targets: Sequence[str]) -> str:
    """The queue of devices that can run all of these.

    That of the first target that names a profile, else of the first.
    """
    return RUN + next((target for target in targets if ":" in target), targets[0])


def _maker(session: Session, owner: uuid.UUID, artifact_id: uuid.UUID) -> Job:
    """The job that made the artifact or will, kept as it is until the transaction ends."""
    found = jobs.by_artifact(session, owner, artifact_id)
    if found is None:
        raise NotFound(f"there is no artifact {artifact_id}", fix="a job names its artifact: GET /jobs/{id}")
    maker = jobs.locked(session, found.id)
    made = artifacts.of_owner(session, owner, artifact_id)
    if made is not None and (faults := kept.faults(session, [made.blob_key])):
        raise problem(faults[made.blob_key])
    if maker.state in transitions.TERMINAL and made is None:
        raise ArtifactNeverMade(
            f"job {maker.id}, which was to make artifact {artifact_id}, ended as {maker.state}",
            fix="look at that job's problem, and compile again",
            details={"job": str(maker.id), "artifact": str(artifact_id)},
        )
    return maker
