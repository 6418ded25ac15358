"""The first tables: owners, keys, models, jobs, events, artifacts, tuning records, workers.

Revision 0001, after nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PLAIN = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Make them, parents before children."""
    op.create_table(
        "owners",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_owners"),
        sa.UniqueConstraint("name", name="uq_owners_name"),
    )
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
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", PLAIN, nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double()),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_api_keys_owner_id_owners", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_index("ix_api_keys_owner_id", "api_keys", ["owner_id"])
    op.create_table(
        "models",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("blob_key", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_models_owner_id_owners", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("owner_id", "digest", name="pk_models"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("artifact_id", sa.Uuid(), nullable=False),
        sa.Column("model_digest", sa.String(length=64), nullable=False),
        sa.Column("options", PLAIN, nullable=False),
        sa.Column("cache_key", sa.String(length=64), nullable=False),
        sa.Column("cached", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200)),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=64)),
        sa.Column("fraction", sa.Double(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(length=200)),
        sa.Column("lease_until", sa.Double()),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("lost_leases", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("published_at", sa.Double()),
        sa.Column("event_seq", sa.BigInteger(), nullable=False),
        sa.Column("problem", PLAIN),
        sa.Column("report", PLAIN),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.CheckConstraint(
            "state IN ('QUEUED', 'LEASED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')", name="ck_jobs_state"
        ),
        sa.ForeignKeyConstraint(
            ["owner_id", "model_digest"],
            ["models.owner_id", "models.digest"],
            name="fk_jobs_owner_id_model_digest_models",
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_jobs_owner_id_owners", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("owner_id", "idempotency_key", name="uq_jobs_owner_id_idempotency_key"),
    )
    op.create_index("ix_jobs_artifact_id", "jobs", ["artifact_id"])
    op.create_index("ix_jobs_owner_id_cache_key", "jobs", ["owner_id", "cache_key"])
    op.create_index("ix_jobs_owner_id_id", "jobs", ["owner_id", "id"])
    op.create_index("ix_jobs_queue_state_priority_created_at", "jobs", ["queue", "state", "priority", "created_at"])
    op.create_index("ix_jobs_state_lease_until", "jobs", ["state", "lease_until"])
    op.create_table(
        "artifacts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("blob_key", sa.String(length=200), nullable=False),
        sa.Column("receipt", PLAIN, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id_jobs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_artifacts_owner_id_owners", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
        sa.UniqueConstraint("job_id", name="uq_artifacts_job_id"),
    )
    op.create_index("ix_artifacts_owner_id", "artifacts", ["owner_id"])
    op.create_table(
        "events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("data", PLAIN, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_events"),
    )
    op.create_table(
        "tuning_records",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("model_digest", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("hardware", sa.Text(), nullable=False),
        sa.Column("variant", PLAIN, nullable=False),
        sa.Column("threads", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("p10", sa.Double(), nullable=False),
        sa.Column("p90", sa.Double(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("compiler", sa.String(length=50), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_tuning_records_job_id_jobs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["owners.id"], name="fk_tuning_records_owner_id_owners", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tuning_records"),
    )
    op.create_index("ix_tuning_records_job_id_id", "tuning_records", ["job_id", "id"])
    op.create_index("ix_tuning_records_owner_id_id", "tuning_records", ["owner_id", "id"])
    op.create_index("ix_tuning_records_owner_id_model_digest_id", "tuning_records", ["owner_id", "model_digest", "id"])
    op.create_index("ix_tuning_records_owner_id_operator_id", "tuning_records", ["owner_id", "operator", "id"])
    op.create_index(
        "ix_tuning_records_owner_id_target_hardware_id", "tuning_records", ["owner_id", "target", "hardware", "id"]
    )
    op.create_index("ix_tuning_records_owner_id_workload_id", "tuning_records", ["owner_id", "workload", "id"])


def downgrade() -> None:
    """Drop them, children before parents; their indexes go with them."""
    for table in ("tuning_records", "events", "artifacts", "jobs", "models", "api_keys", "workers", "owners"):
        op.drop_table(table)
