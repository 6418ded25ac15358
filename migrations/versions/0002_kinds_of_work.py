"""Benchmarks and inferences as jobs, models of several files, uploads, shares, attempts, workloads.

Revision 0002, after 0001. Going down removes what 0001 cannot hold: benchmarks, inferences, models with external
data and their jobs, records without a job.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PLAIN = sa.JSON().with_variant(JSONB(), "postgresql")
KINDS = "kind IN ('compile', 'benchmark', 'inference')"

JOBS_AFTER = {
    "ix_jobs_owner_id_kind_id": ["owner_id", "kind", "id"],
    "ix_jobs_owner_id_model_digest": ["owner_id", "model_digest"],
    "ix_jobs_state_finished_at": ["state", "finished_at"],
}
"""Indexes of jobs that are new, by name: their columns."""

RECORDS_BEFORE: dict[str, tuple[str, ...]] = {
    "ix_tuning_records_job_id_id": ("job_id", "id"),
    "ix_tuning_records_owner_id_id": ("owner_id", "id"),
    "ix_tuning_records_owner_id_model_digest_id": ("owner_id", "model_digest", "id"),
    "ix_tuning_records_owner_id_operator_id": ("owner_id", "operator", "id"),
    "ix_tuning_records_owner_id_target_hardware_id": ("owner_id", "target", "hardware", "id"),
    "ix_tuning_records_owner_id_workload_id": ("owner_id", "workload", "id"),
}
AGE = ("created_at", "id")
NARROWING = ("kind", "operator", "target", "hardware", "threads", "imported")
RECORDS_AFTER: dict[str, tuple[str, ...]] = {
    "ix_tuning_records_owner_id_created_at": ("owner_id", *AGE, *NARROWING),
    **{
        f"ix_tuning_records_owner_id_{first}": ("owner_id", first, *AGE, *(name for name in NARROWING if name != first))
        for first in (*NARROWING, "model_digest")
    },
    "ix_tuning_records_owner_id_workload": ("owner_id", "workload", *AGE),
    "ix_tuning_records_job_id": ("job_id", "owner_id", *AGE),
}
"""Indexes of tuning records by name: their columns."""


def upgrade() -> None:
    """Widen what is there, then make what is new."""
    _widen_models_and_jobs()
    _widen_records()
    op.drop_table("workers")  # reports of living processes: each reports again within seconds
    _make_workers()
    _make_tables_of_jobs()
    _make_tables_of_owners()
    op.create_table(
        "catalogue",
        sa.Column("name", sa.String(length=50), nullable=False),
        sa.Column("compiler", sa.String(length=50), nullable=False),
        sa.Column("entries", PLAIN, nullable=False),
        sa.Column("published_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "compiler", name="pk_catalogue"),
    )
    op.create_table(
        "totals",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("labels", sa.String(length=400), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "labels", name="pk_totals"),
    )


def _widen_models_and_jobs() -> None:
    with op.batch_alter_table("models") as models:
        models.add_column(sa.Column("files", PLAIN, nullable=False, server_default=sa.text("'[]'")))
    with op.batch_alter_table("models") as models:
        models.alter_column("files", server_default=None, existing_type=PLAIN, existing_nullable=False)
    new: tuple[tuple[str, sa.types.TypeEngine[Any], Any], ...] = (
        ("kind", sa.String(length=16), sa.text("'compile'")),
        ("blocked_by", sa.BigInteger(), sa.text("0")),
        ("finish_requested", sa.Boolean(), sa.false()),
    )
    with op.batch_alter_table("jobs") as jobs:
        for name, kind, default in new:
            jobs.add_column(sa.Column(name, kind, nullable=False, server_default=default))
        jobs.add_column(sa.Column("cloned_from", sa.Uuid()))
        jobs.alter_column("artifact_id", existing_type=sa.Uuid(), nullable=True)
        jobs.alter_column("model_digest", existing_type=sa.String(length=64), nullable=True)
        jobs.alter_column("cache_key", existing_type=sa.String(length=64), nullable=True)
        jobs.alter_column("queue", existing_type=sa.String(length=64), type_=sa.String(length=200))
    with op.batch_alter_table("jobs") as jobs:
        for name, kind, _ in new:
            jobs.alter_column(name, server_default=None, existing_type=kind, existing_nullable=False)
        jobs.create_check_constraint(op.f("ck_jobs_kind"), KINDS)
        for name, columns in JOBS_AFTER.items():
            jobs.create_index(name, columns)
    # A job that waits for a device waits in the queue of its target from now on.
    target = {"postgresql": "options->>'target'"}.get(op.get_bind().dialect.name, "json_extract(options, '$.target')")
    op.execute(f"UPDATE jobs SET queue = coalesce({target}, queue)")


def _widen_records() -> None:
    for name in RECORDS_BEFORE:
        op.drop_index(name, "tuning_records")
    with op.batch_alter_table("tuning_records") as records:
        records.add_column(sa.Column("imported", sa.Boolean(), nullable=False, server_default=sa.false()))
        records.alter_column("job_id", existing_type=sa.Uuid(), nullable=True)
        records.alter_column("model_digest", existing_type=sa.String(length=64), nullable=True)
        records.drop_constraint("fk_tuning_records_job_id_jobs", type_="foreignkey")
        records.create_foreign_key("fk_tuning_records_job_id_jobs", "jobs", ["job_id"], ["id"], ondelete="SET NULL")
    with op.batch_alter_table("tuning_records") as records:
        records.alter_column("imported", server_default=None, existing_type=sa.Boolean(), existing_nullable=False)
    for name, columns in RECORDS_AFTER.items():
        op.create_index(name, "tuning_records", columns)


def _make_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("queues", PLAIN, nullable=False),
        sa.Column("hardware", PLAIN, nullable=False),
        sa.Column("compiler", sa.String(length=50), nullable=False),
        sa.Column("busy_with", sa.Uuid()),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_index("ix_workers_last_seen", "workers", ["last_seen"])


def _make_tables_of_jobs() -> None:
    op.create_table(
        "job_needs",
        _job_id(),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("artifact_id", sa.Uuid(), nullable=False),
        _of_job("job_needs"),
        sa.PrimaryKeyConstraint("job_id", "position", name="pk_job_needs"),
    )
    op.create_index("ix_job_needs_artifact_id", "job_needs", ["artifact_id"])
    op.create_table(
        "attempts",
        _job_id(),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("outcome", sa.String(length=32)),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("batches", sa.BigInteger(), nullable=False),
        _of_job("attempts"),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_attempts"),
    )
    op.create_table(
        "benchmarks",
        _job_id(),
        sa.Column("report", PLAIN, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        _of_job("benchmarks"),
        sa.PrimaryKeyConstraint("job_id", name="pk_benchmarks"),
    )
    op.create_table(
        "inferences",
        _job_id(),
        sa.Column("input_key", sa.String(length=200), nullable=False),
        sa.Column("input_bytes", sa.BigInteger(), nullable=False),
        sa.Column("output_key", sa.String(length=200)),
        sa.Column("output_bytes", sa.BigInteger()),
        sa.Column("output_sha256", sa.String(length=64)),
        sa.Column("report", PLAIN),
        _of_job("inferences"),
        sa.PrimaryKeyConstraint("job_id", name="pk_inferences"),
    )


def _make_tables_of_owners() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("media_type", sa.String(length=100), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64)),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("parts", PLAIN, nullable=False),
        sa.Column("model_digest", sa.String(length=64)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        _of_owner("uploads"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_owner_id", "uploads", ["owner_id"])
    op.create_index("ix_uploads_updated_at", "uploads", ["updated_at"])
    op.create_table(
        "workloads",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("workload", sa.String(length=500), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        _of_owner("workloads"),
        sa.PrimaryKeyConstraint("owner_id", "workload", name="pk_workloads"),
    )
    op.create_table(
        "shares",
        sa.Column("queue", sa.String(length=200), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("used_s", sa.Double(), nullable=False),
        _of_owner("shares"),
        sa.PrimaryKeyConstraint("queue", "owner_id", name="pk_shares"),
    )


def downgrade() -> None:
    """Remove what is new and what 0001 cannot hold, then narrow what is left."""
    for table in ("totals", "catalogue", "shares", "workloads", "uploads", "inferences", "benchmarks", "attempts"):
        op.drop_table(table)
    op.drop_table("job_needs")
    op.drop_table("workers")
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("hardware", PLAIN, nullable=False),
        sa.Column("busy_with", sa.Uuid()),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_index("ix_workers_last_seen", "workers", ["last_seen"])
    _remove_what_0001_cannot_hold()
    for name in RECORDS_AFTER:
        op.drop_index(name, "tuning_records")
    with op.batch_alter_table("tuning_records") as records:
        records.drop_constraint("fk_tuning_records_job_id_jobs", type_="foreignkey")
        records.create_foreign_key("fk_tuning_records_job_id_jobs", "jobs", ["job_id"], ["id"], ondelete="CASCADE")
        records.alter_column("job_id", existing_type=sa.Uuid(), nullable=False)
        records.alter_column("model_digest", existing_type=sa.String(length=64), nullable=False)
        records.drop_column("imported")
    for name, columns in RECORDS_BEFORE.items():
        op.create_index(name, "tuning_records", columns)
    for name in JOBS_AFTER:
        op.drop_index(name, "jobs")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_constraint(op.f("ck_jobs_kind"), type_="check")
        for column in ("kind", "blocked_by", "finish_requested", "cloned_from"):
            jobs.drop_column(column)
        jobs.alter_column("artifact_id", existing_type=sa.Uuid(), nullable=False)
        jobs.alter_column("model_digest", existing_type=sa.String(length=64), nullable=False)
        jobs.alter_column("cache_key", existing_type=sa.String(length=64), nullable=False)
        jobs.alter_column("queue", existing_type=sa.String(length=200), type_=sa.String(length=64))
    with op.batch_alter_table("models") as models:
        models.drop_column("files")


def _remove_what_0001_cannot_hold() -> None:
    """Children before parents: foreign keys are off on SQLite while the schema changes."""
    empty = {"postgresql": "'[]'::jsonb"}.get(op.get_bind().dialect.name, "'[]'")
    split = (
        "SELECT 1 FROM models WHERE models.owner_id = jobs.owner_id "
        f"AND models.digest = jobs.model_digest AND models.files <> {empty}"
    )
    gone = f"SELECT id FROM jobs WHERE kind <> 'compile' OR EXISTS ({split})"
    op.execute(f"DELETE FROM tuning_records WHERE job_id IS NULL OR model_digest IS NULL OR job_id IN ({gone})")
    for child in ("events", "artifacts"):
        op.execute(f"DELETE FROM {child} WHERE job_id IN ({gone})")
    op.execute(f"DELETE FROM jobs WHERE id IN ({gone})")
    op.execute(f"DELETE FROM models WHERE files <> {empty}")
    op.execute("UPDATE jobs SET queue = 'cpu' WHERE queue LIKE 'cpu:%'")


def _job_id() -> sa.Column[object]:
    return sa.Column("job_id", sa.Uuid(), nullable=False)


def _of_job(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=f"fk_{table}_job_id_jobs", ondelete="CASCADE")


def _of_owner(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=f"fk_{table}_owner_id_owners", ondelete="CASCADE")
