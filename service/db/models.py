"""The rows. Times are seconds since 1970 (UTC) by the database's clock; ids are UUIDv7; JSON is plain JSON."""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import Any, ClassVar

import sqlalchemy as sa
import uuid_utils.compat
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

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
    """Where a job is in its life; `service.jobs.life.NEXT` says what may follow what."""

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
    }


class Owner(Row):
    """Whose a row is. Nothing of one owner is visible to another."""

    __tablename__ = "owners"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(sa.String(100), unique=True)
    created_at: Mapped[float] = mapped_column(default=clock())


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


class Model(Row):
    """Uploaded model bytes, once per owner and digest (SHA-256, hex)."""

    __tablename__ = "models"

    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), primary_key=True)
    digest: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    bytes: Mapped[int]
    blob_key: Mapped[str] = mapped_column(sa.String(200))
    created_at: Mapped[float] = mapped_column(default=clock())


class Job(Row):
    """One compilation, from request to outcome."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.CheckConstraint(sa.column("state").in_([str(state) for state in JobState]), name="state"),
        sa.ForeignKeyConstraint(["owner_id", "model_digest"], ["models.owner_id", "models.digest"]),
        sa.UniqueConstraint("owner_id", "idempotency_key"),
        sa.Index("ix_jobs_owner_id_id", "owner_id", "id"),
        sa.Index("ix_jobs_owner_id_cache_key", "owner_id", "cache_key"),
        sa.Index("ix_jobs_queue_state_priority_created_at", "queue", "state", "priority", "created_at"),
        sa.Index("ix_jobs_state_lease_until", "state", "lease_until"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    artifact_id: Mapped[uuid.UUID] = mapped_column(default=new_id, index=True)
    """The id the artifact has or will have; a job answered from the cache names the artifact that was there."""
    model_digest: Mapped[str] = mapped_column(sa.String(64))
    options: Mapped[dict[str, Any]]
    cache_key: Mapped[str] = mapped_column(sa.String(64))
    cached: Mapped[bool] = mapped_column(default=False)
    idempotency_key: Mapped[str | None] = mapped_column(sa.String(200))
    body_hash: Mapped[str] = mapped_column(sa.String(64))

    queue: Mapped[str] = mapped_column(sa.String(64))
    priority: Mapped[int] = mapped_column(default=0)
    """Greater goes first."""
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


class TuningRecord(Row):
    """One measurement on a real device. `seconds` is the median of `samples`; p10 and p90 are seconds too."""

    __tablename__ = "tuning_records"
    __table_args__ = (
        sa.Index("ix_tuning_records_owner_id_id", "owner_id", "id"),
        sa.Index("ix_tuning_records_owner_id_target_hardware_id", "owner_id", "target", "hardware", "id"),
        sa.Index("ix_tuning_records_owner_id_workload_id", "owner_id", "workload", "id"),
        sa.Index("ix_tuning_records_owner_id_operator_id", "owner_id", "operator", "id"),
        sa.Index("ix_tuning_records_owner_id_model_digest_id", "owner_id", "model_digest", "id"),
        sa.Index("ix_tuning_records_job_id_id", "job_id", "id"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"))
    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"))
    model_digest: Mapped[str] = mapped_column(sa.String(64))
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


class Worker(Row):
    """A process that holds a device, as it last reported."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    queue: Mapped[str] = mapped_column(sa.String(64))
    hardware: Mapped[dict[str, Any]]
    busy_with: Mapped[uuid.UUID | None]
    """The job it runs, if any."""
    last_seen: Mapped[float] = mapped_column(default=clock(), index=True)
