"""Minimisations as jobs, and artifacts that are there before measuring ends.

Revision 0015, after 0014. Going down removes both; the models that minimisations made stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BEFORE = "kind IN ('compile', 'benchmark', 'inference', 'quantization', 'compression')"
AFTER = "kind IN ('compile', 'benchmark', 'inference', 'quantization', 'compression', 'minimisation')"


def upgrade() -> None:
    """Allow the kind; make the table."""
    _kinds(AFTER)
    op.create_table(
        "partial_artifacts",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("blob_key", sa.String(200), nullable=False),
        sa.Column("report", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_partial_artifacts_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_partial_artifacts"),
    )


def downgrade() -> None:
    """Remove what is of it, children before parents: foreign keys are off on SQLite while the schema changes."""
    op.drop_table("partial_artifacts")
    gone = "SELECT id FROM jobs WHERE kind = 'minimisation'"
    op.execute(f"UPDATE tuning_records SET job_id = NULL WHERE job_id IN ({gone})")
    for child in ("events", "attempts", "deliveries", "job_needs", "share_links"):
        op.execute(f"DELETE FROM {child} WHERE job_id IN ({gone})")
    op.execute("DELETE FROM jobs WHERE kind = 'minimisation'")
    _kinds(BEFORE)


def _kinds(allowed: str) -> None:
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_constraint(op.f("ck_jobs_kind"), type_="check")
        jobs.create_check_constraint(op.f("ck_jobs_kind"), allowed)
