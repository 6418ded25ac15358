"""The rows. Times are seconds since 1970 (UTC) by the database's clock; ids are UUIDv7; JSON is plain JSON."""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import Any, ClassVar

import sqlalchemy as sa
import uuid_utils.compat
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from compiler.contract import job_kinds
from service.db.engine import clock

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

PLAIN = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class JobState(StrEnum):
    """Where a job is in its life; `service.jobs.lifecycle.transitions.NEXT` says what may follow what."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


def new_id() -> uuid.UUID:
    """A UUIDv7: ids made later sort later."""
    return uuid_utils.compat.uuid7()


class Row(DeclarativeBase):
    """What all tables share."""

    metadata = sa.MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        uuid.UUID: sa.Uuid(),
        float: sa.Double(),
        int: sa.BigInteger(),
        dict[str, Any]: PLAIN,
        list[str]: PLAIN,
        list[dict[str, Any]]: PLAIN,
    }


class Owner(Row):
    """Whose a row is. Nothing of one owner is visible to another."""

    __tablename__ = "owners"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(sa.String(100), unique=True)
    created_at: Mapped[float] = mapped_column(default=clock())
    suspended_at: Mapped[float | None]
    """Since when its keys are refused and none of its jobs is started."""
    deleted_at: Mapped[float | None]
    """When its deletion was asked for; the row goes last, after all that is the owner's."""
    max_stored_bytes: Mapped[int | None]
    """This and the next three: what the operator granted instead of the installation's limit; 0: no limit."""
    max_queued_jobs: Mapped[int | None]
    max_device_s: Mapped[float | None]
    """Device seconds of a calendar month (UTC)."""
    max_concurrent_jobs: Mapped[int | None]


class ApiKey(Row):
    """A key's SHA-256 (keys are high-entropy, so no salt or stretching is needed); the key itself is not kept."""

    __tablename__ = "api_keys"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), index=True)
    digest: Mapped[str] = mapped_column(sa.String(64), unique=True)
    scopes: Mapped[list[str]]
    label: Mapped[str] = mapped_column(sa.String(200))
    created_at: Mapped[float] = mapped_column(default=clock())
    revoked_at: Mapped[float | None]
    expires_at: Mapped[float | None]
    """From then on it is refused."""
    last_used_at: Mapped[float | None]
    """To about a minute."""
    replaced_by: Mapped[uuid.UUID | None]
    """The key that was made when this one was rotated."""
    made_by: Mapped[uuid.UUID | None] = mapped_column(index=True)
    """The key of the same owner by which it was made: it is revoked with that one."""


class Model(Row):
    """An uploaded model, once per owner and digest.

    One ONNX file has its SHA-256 (hex) as digest; one with external data that of its canonical manifest
    (`compiler.contract.bundle_digest`).
    """

    __tablename__ = "models"

    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), primary_key=True)
    digest: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    bytes: Mapped[int]
    """Of all its files."""
    blob_key: Mapped[str] = mapped_column(sa.String(200))
    """Of the ONNX file."""
    files: Mapped[list[dict[str, Any]]]
    """External data beside the ONNX file: `path` (relative), `sha256`, `bytes`, `key`."""
    created_at: Mapped[float] = mapped_column(default=clock())
    used_at: Mapped[float] = mapped_column(default=clock())
    """When it was last sent, or a job for it submitted."""
    name: Mapped[str | None] = mapped_column(sa.String(200))
    """This and the next two: what its owner calls it."""
    note: Mapped[str | None] = mapped_column(sa.Text)
    tags: Mapped[list[str] | None]


class Upload(Row):
    """A model that arrives in pieces; each piece is a blob, and the whole becomes a model when the last has come."""

    __tablename__ = "uploads"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), index=True)
    media_type: Mapped[str] = mapped_column(sa.String(100))
    bytes: Mapped[int]
    """Of the whole."""
    sha256: Mapped[str | None] = mapped_column(sa.String(64))
    """Of the whole, if the caller announced it."""
    found_sha256: Mapped[str | None] = mapped_column(sa.String(64))
    """Of the bytes of a whole zip, once they were hashed; what arrived does not change any more."""
    received: Mapped[int] = mapped_column(default=0)
    parts: Mapped[list[dict[str, Any]]]
    """`key` and `bytes` of each piece, in order."""
    model_digest: Mapped[str | None] = mapped_column(sa.String(64))
    """The model it became."""
    created_at: Mapped[float] = mapped_column(default=clock())
    updated_at: Mapped[float] = mapped_column(default=clock(), index=True)


class Job(Row):
    """One piece of work for a worker, from request to outcome."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.CheckConstraint(sa.column("state").in_([str(state) for state in JobState]), name="state"),
        sa.ForeignKeyConstraint(["owner_id", "model_digest"], ["models.owner_id", "models.digest"]),
        sa.UniqueConstraint("owner_id", "idempotency_key"),
        sa.Index("ix_jobs_owner_id_id", "owner_id", "id"),
        sa.Index("ix_jobs_owner_id_cache_key", "owner_id", "cache_key"),
        sa.Index("ix_jobs_owner_id_kind_id", "owner_id", "kind", "id"),
        sa.Index("ix_jobs_owner_id_model_digest", "owner_id", "model_digest"),
        sa.Index("ix_jobs_owner_id_batch_id", "owner_id", "batch_id"),
        sa.Index("ix_jobs_queue_state_priority_created_at", "queue", "state", "priority", "created_at"),
        sa.Index("ix_jobs_state_lease_until", "state", "lease_until"),
        sa.Index("ix_jobs_state_finished_at", "state", "finished_at"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(sa.String(16), default=job_kinds.COMPILE.name)
    """The name of one of `compiler.contract.job_kinds`."""
    artifact_id: Mapped[uuid.UUID | None] = mapped_column(index=True)
    """Of a compilation: the id the artifact has or will have. One answered from the cache names the artifact that was
    there."""
    model_digest: Mapped[str | None] = mapped_column(sa.String(64))
    """Of a compilation, quantization, compression or minimisation."""
    options: Mapped[dict[str, Any]]
    """`CompileOptions`, `BenchmarkOptions`, `QuantizeOptions`, `CompressOptions`, or for an inference `{"threads"}`."""
    samples: Mapped[list[dict[str, Any]] | None]
    samples_bytes: Mapped[int] = mapped_column(default=0)
    """Of a compilation, quantization or compression that has some: `name`, `sha256`, `bytes` and `key` of each .npz."""
    cache_key: Mapped[str | None] = mapped_column(sa.String(64))
    """Of a compilation."""
    cached: Mapped[bool] = mapped_column(default=False)
    cloned_from: Mapped[uuid.UUID | None]
    batch_id: Mapped[uuid.UUID | None]
    """What the jobs share that one request asked for."""
    traceparent: Mapped[str | None] = mapped_column(sa.String(55))
    """The caller's place in a trace (W3C Trace Context), where the request named one."""
    name: Mapped[str | None] = mapped_column(sa.String(200))
    """This and the next two: what its owner calls it."""
    note: Mapped[str | None] = mapped_column(sa.Text)
    tags: Mapped[list[str] | None]
    idempotency_key: Mapped[str | None] = mapped_column(sa.String(200))
    body_hash: Mapped[str] = mapped_column(sa.String(64))

    queue: Mapped[str] = mapped_column(sa.String(200))
    """The device class: a target (`cpu`, `cpu:x86-64-v3`), for what runs artifacts `run:` and a target."""
    priority: Mapped[int] = mapped_column(default=0)
    """Greater goes first."""
    blocked_by: Mapped[int] = mapped_column(default=0)
    """How many of the artifacts it needs are not made yet; it is not claimed before there are none."""
    max_queue_s: Mapped[float | None]
    """Seconds after its making in which a worker must have begun it, or it fails; None: it waits for ever."""
    compiler: Mapped[str | None] = mapped_column(sa.String(50))
    """Version of the compiler whose workers alone may take it, such as `0.1.*`; None: of any."""
    max_run_s: Mapped[float | None]
    """What one attempt may take, where that is less than the operator allows."""
    unserved_since: Mapped[float | None]
    """Since when it waits while no live worker serves its queue, as far as was noticed."""
    state: Mapped[JobState] = mapped_column(sa.String(16))
    phase: Mapped[str | None] = mapped_column(sa.String(64))
    fraction: Mapped[float] = mapped_column(default=0.0)
    """Of the present attempt, 0 to 1."""

    fence: Mapped[int] = mapped_column(default=0)
    """Raised by every claim; a write of a worker counts only while it carries the present value."""
    lease_owner: Mapped[str | None] = mapped_column(sa.String(200))
    lease_until: Mapped[float | None]
    attempts: Mapped[int] = mapped_column(default=0)
    lost_leases: Mapped[int] = mapped_column(default=0)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    finish_requested: Mapped[bool] = mapped_column(default=False)
    """The owner wants the best found so far: measuring ends, the rest is done."""
    published_at: Mapped[float | None]
    """When a doorbell was last sent for this row; None: not since it was queued."""
    event_seq: Mapped[int] = mapped_column(default=0)
    """Number of the job's newest event."""

    problem: Mapped[dict[str, Any] | None]
    """Why the job failed, as `TilewrightError.to_json`."""
    report: Mapped[dict[str, Any] | None]
    created_at: Mapped[float] = mapped_column(default=clock())
    started_at: Mapped[float | None]
    """When the present or last attempt was claimed."""
    finished_at: Mapped[float | None]


class Need(Row):
    """An artifact that a benchmark or an inference runs."""

    __tablename__ = "job_needs"

    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    artifact_id: Mapped[uuid.UUID] = mapped_column(index=True)


class Attempt(Row):
    """One worker's try at a job."""

    __tablename__ = "attempts"

    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    worker: Mapped[str] = mapped_column(sa.String(200))
    started_at: Mapped[float] = mapped_column(default=clock())
    ended_at: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(sa.String(32))
    """The state the job was left in, or `lost` when the worker vanished."""
    log: Mapped[str] = mapped_column(sa.Text, default="")
    """The end of what the process that did the work printed."""
    batches: Mapped[int] = mapped_column(default=0)
    """Number of the newest batch of events and measurements that was written. A batch whose answer was lost is not
    written again."""
    tallied_until: Mapped[float | None]
    """Up to when its seconds are in the owner's `Usage`; None: from its start on they are not."""


class Event(Row):
    """One line of a job's log; `seq` runs 1, 2, 3, ... without gaps within a job, in commit order."""

    __tablename__ = "events"

    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(sa.String(32))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(default=clock())


class Artifact(Row):
    """A finished artifact; made in the transaction that moves its job to SUCCEEDED."""

    __tablename__ = "artifacts"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), index=True)
    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    sha256: Mapped[str] = mapped_column(sa.String(64))
    bytes: Mapped[int]
    blob_key: Mapped[str] = mapped_column(sa.String(200))
    receipt: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(default=clock())


class PartialArtifact(Row):
    """What a compilation made before measuring, chosen by the cost model: there until its artifact is."""

    __tablename__ = "partial_artifacts"

    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(sa.String(64))
    bytes: Mapped[int]
    blob_key: Mapped[str] = mapped_column(sa.String(200))
    report: Mapped[dict[str, Any]]
    """`CompileReport` of it."""
    created_at: Mapped[float] = mapped_column(default=clock())


class BlobFault(StrEnum):
    """What is wrong with bytes that a row names."""

    LOST = "lost"
    DAMAGED = "damaged"


class Blob(Row):
    """What is known of the bytes under a key that rows name, or have named until a while ago."""

    __tablename__ = "blobs"
    __table_args__ = (sa.Index("ix_blobs_checked_at", "checked_at", "key"),)

    key: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    bytes: Mapped[int]
    named_at: Mapped[float] = mapped_column(default=clock())
    """When a row last began to name it; right before that the bytes were written."""
    checked_at: Mapped[float] = mapped_column(default=0.0)
    """When the bytes were last compared with their digest; 0: never."""
    fault: Mapped[BlobFault | None] = mapped_column(sa.String(16), index=True)
    """What was wrong when they were last opened or checked; None: nothing."""


class Benchmark(Row):
    """What a benchmark found; made in the transaction that moves its job to SUCCEEDED."""

    __tablename__ = "benchmarks"

    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    report: Mapped[dict[str, Any]]
    """As `compiler.runner.benchmark` returns it."""
    created_at: Mapped[float] = mapped_column(default=clock())


class Inference(Row):
    """Inputs and, once it has SUCCEEDED, outputs of an inference: two .npz files."""

    __tablename__ = "inferences"

    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    input_key: Mapped[str] = mapped_column(sa.String(200))
    input_bytes: Mapped[int]
    output_key: Mapped[str | None] = mapped_column(sa.String(200))
    output_bytes: Mapped[int | None]
    output_sha256: Mapped[str | None] = mapped_column(sa.String(64))
    report: Mapped[dict[str, Any] | None]
    """As `compiler.runner.infer` returns it."""


class Workload(Row):
    """What the records of one workload measured: a kernel and its buffers, as text that the compiler reads back."""

    __tablename__ = "workloads"

    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), primary_key=True)
    workload: Mapped[str] = mapped_column(sa.String(500), primary_key=True)
    text: Mapped[str] = mapped_column(sa.Text)
    created_at: Mapped[float] = mapped_column(default=clock())


NARROWING = ("kind", "operator", "target", "hardware", "threads", "imported")
"""By these columns records are filtered too, and each holds few distinct values."""


def _records_by(*leading: str) -> sa.Index:
    """An index of an owner's records by some columns, then by age.

    It ends in the other columns of `NARROWING`: where many rows match the first columns and none the rest, they are
    passed over inside the index, without a look at each row.
    """
    others = (column for column in NARROWING if column not in leading)
    name = "_".join(("ix_tuning_records_owner_id", *(leading or ("created_at",))))
    return sa.Index(name, "owner_id", *leading, "created_at", "id", *others)


class TuningRecord(Row):
    """One measurement on a real device. `seconds` is the median of `samples`; p10 and p90 are seconds too.

    It outlives its job: `job_id` is empty once the job was removed, and for a record that was imported.
    """

    __tablename__ = "tuning_records"
    __table_args__ = (
        _records_by(),
        _records_by("kind"),
        _records_by("target"),
        _records_by("hardware"),
        _records_by("threads"),
        _records_by("imported"),
        _records_by("model_digest"),
        sa.Index("ix_tuning_records_owner_id_workload", "owner_id", "workload", "created_at", "id"),
        sa.Index("ix_tuning_records_job_id", "job_id", "owner_id", "created_at", "id"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    job_id: Mapped[uuid.UUID | None] = mapped_column(sa.ForeignKey("jobs.id", ondelete="SET NULL"))
    model_digest: Mapped[str | None] = mapped_column(sa.String(64))
    imported: Mapped[bool] = mapped_column(default=False)
    kind: Mapped[str] = mapped_column(sa.String(32))
    operator: Mapped[str] = mapped_column(sa.Text)
    workload: Mapped[str] = mapped_column(sa.Text)
    description: Mapped[str] = mapped_column(sa.Text)
    target: Mapped[str] = mapped_column(sa.String(100))
    hardware: Mapped[str] = mapped_column(sa.Text)
    variant: Mapped[dict[str, Any]]
    threads: Mapped[int]
    seconds: Mapped[float]
    p10: Mapped[float]
    p90: Mapped[float]
    samples: Mapped[int]
    compiler: Mapped[str] = mapped_column(sa.String(50))
    created_at: Mapped[float] = mapped_column(default=clock())


class RecordOperator(Row):
    """That a record's kernel contains an operator; a kernel's whole name counts as one too.

    What records are narrowed by stands here again, so that one index finds them in the order of their age.
    """

    __tablename__ = "record_operators"
    __table_args__ = (
        sa.Index(
            "ix_record_operators_owner_id_operator",
            *("owner_id", "operator", "created_at", "record_id"),
            *(column for column in NARROWING if column != "operator"),
        ),
        {"sqlite_with_rowid": False},
    )

    record_id: Mapped[uuid.UUID] = mapped_column(
        sa.ForeignKey("tuning_records.id", ondelete="CASCADE"), primary_key=True
    )
    operator: Mapped[str] = mapped_column(sa.Text, primary_key=True)
    owner_id: Mapped[uuid.UUID]
    created_at: Mapped[float]
    kind: Mapped[str] = mapped_column(sa.String(32))
    target: Mapped[str] = mapped_column(sa.String(100))
    hardware: Mapped[str] = mapped_column(sa.Text)
    threads: Mapped[int]
    imported: Mapped[bool]


class Worker(Row):
    """A process that holds a device, or builds for others, as it last reported."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    queues: Mapped[list[str]]
    """Whose jobs it takes."""
    hardware: Mapped[dict[str, Any]]
    compiler: Mapped[str] = mapped_column(sa.String(50))
    """Version of the compiler it runs."""
    busy_with: Mapped[uuid.UUID | None]
    """The job it runs, if any."""
    started_at: Mapped[float] = mapped_column(default=clock())
    last_seen: Mapped[float] = mapped_column(default=clock(), index=True)


class Share(Row):
    """Device seconds that an owner has had of a queue; who has had least goes first."""

    __tablename__ = "shares"

    queue: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), primary_key=True)
    used_s: Mapped[float] = mapped_column(default=0.0)


class Usage(Row):
    """Device seconds that an owner's attempts had in a calendar month (UTC), of all queues; it only grows."""

    __tablename__ = "usage"

    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), primary_key=True)
    month: Mapped[str] = mapped_column(sa.String(7), primary_key=True)
    """Such as `2026-11`."""
    device_s: Mapped[float] = mapped_column(default=0.0)


class AuditEntry(Row):
    """Who changed what, or was refused, when. Entries are added, and removed when they are old; never changed."""

    __tablename__ = "audit"
    __table_args__ = (sa.Index("ix_audit_owner_id_id", "owner_id", "id"),)

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    created_at: Mapped[float] = mapped_column(default=clock(), index=True)
    owner_id: Mapped[uuid.UUID | None] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    """Whose key it was; None for a key that is unknown, and for the console."""
    key_id: Mapped[uuid.UUID | None]
    request_id: Mapped[str] = mapped_column(sa.String(64))
    """The `X-Request-Id` of the answer."""
    address: Mapped[str] = mapped_column(sa.String(100))
    """Where the request came from; `console` for a chore of `python -m service`."""
    verb: Mapped[str] = mapped_column(sa.String(32))
    object: Mapped[str] = mapped_column(sa.String(400))
    """A path of the API, such as `/jobs/{id}`."""
    outcome: Mapped[str] = mapped_column(sa.String(64))
    """`done`, or the code of the problem."""
    untold: Mapped[int] = mapped_column(default=0)
    """How many refusals of this process were left out since its entry before, because there were too many."""


class Webhook(Row):
    """An address that is told when jobs of its owner end."""

    __tablename__ = "webhooks"
    __table_args__ = (sa.Index("ix_webhooks_owner_id_id", "owner_id", "id"),)

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    url: Mapped[str] = mapped_column(sa.String(2000))
    secret: Mapped[str] = mapped_column(sa.String(200))
    """What messages are signed with, as it is: a digest of it could sign nothing."""
    states: Mapped[list[str]]
    """Of jobs that it is told of; empty: all ends."""
    created_at: Mapped[float] = mapped_column(default=clock())
    disabled_at: Mapped[float | None]
    """Since when it is told of nothing, because it wants nothing more."""
    verified_at: Mapped[float | None]
    """When its receiver answered a challenge; None: it is sent challenges alone."""


WAITING = sa.text("next_at IS NOT NULL")
"""Of deliveries."""


class Delivery(Row):
    """A message to a webhook: made in the transaction that ends the job, sent until it is taken or given up."""

    __tablename__ = "deliveries"
    __table_args__ = (
        sa.Index("ix_deliveries_webhook_id_id", "webhook_id", "id"),
        *(
            sa.Index(f"ix_deliveries_{name}_id_waiting", name, "id", sqlite_where=WAITING, postgresql_where=WAITING)
            for name in ("webhook_id", "owner_id")
        ),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    webhook_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("webhooks.id", ondelete="CASCADE"))
    owner_id: Mapped[uuid.UUID]
    job_id: Mapped[uuid.UUID | None] = mapped_column(index=True)
    payload: Mapped[str] = mapped_column(sa.Text)
    """JSON, byte for byte what is signed."""
    challenge: Mapped[str | None] = mapped_column(sa.String(100))
    """What the receiver must answer with to be verified; None: the message is no challenge."""
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[float | None] = mapped_column(index=True)
    """When it is sent the next time; None: never again."""
    status: Mapped[int | None]
    """That the last attempt was answered with."""
    fault: Mapped[str | None] = mapped_column(sa.Text)
    """Why the last attempt came to nothing."""
    created_at: Mapped[float] = mapped_column(default=clock())
    ended_at: Mapped[float | None] = mapped_column(index=True)
    delivered: Mapped[bool] = mapped_column(default=False)


class Catalogue(Row):
    """What workers publish of their compiler, so that the API need not load it: `operators`, `targets`."""

    __tablename__ = "catalogue"

    name: Mapped[str] = mapped_column(sa.String(50), primary_key=True)
    compiler: Mapped[str] = mapped_column(sa.String(50), primary_key=True)
    """Version of the compiler it describes."""
    entries: Mapped[list[dict[str, Any]]]
    published_at: Mapped[float] = mapped_column(default=clock())


class Total(Row):
    """A sum that only grows, of all processes together: what `/metrics` shows as a counter."""

    __tablename__ = "totals"

    name: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    labels: Mapped[str] = mapped_column(sa.String(400), primary_key=True)
    """JSON object with sorted keys; `{}` for none."""
    value: Mapped[float]
