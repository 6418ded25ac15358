"""Kernels that compilations offer to other workers to be measured.

Revision 0014, after 0013. Going down forgets who measured what; the records stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

PLAIN = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "tuning_shares",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("offer", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("target", sa.String(100), nullable=False),
        sa.Column("hardware", sa.Text(), nullable=False),
        sa.Column("compiler", sa.String(50), nullable=False),
        sa.Column("terms", PLAIN, nullable=False),
        sa.Column("task", PLAIN, nullable=False),
        sa.Column("worker", sa.String(200)),
        sa.Column("own", sa.Boolean(), nullable=False),
        sa.Column("lease_until", sa.Double()),
        sa.Column("done_at", sa.Double()),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("measured", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_tuning_shares_job_id_jobs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["owners.id"], name="fk_tuning_shares_owner_id_owners", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tuning_shares"),
    )
    op.create_index("ix_tuning_shares_job_id_offer", "tuning_shares", ["job_id", "offer"])
    op.create_index("ix_tuning_shares_done_at_target_hardware", "tuning_shares", ["done_at", "target", "hardware"])
    op.create_index("ix_tuning_shares_owner_id_workload", "tuning_shares", ["owner_id", "workload"])


def downgrade() -> None:
    """Remove it."""
    op.drop_table("tuning_shares")
