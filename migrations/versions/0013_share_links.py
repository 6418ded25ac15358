"""Links that open one job for whoever has them.

Revision 0013, after 0011. Going down forgets them: none opens any more.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "share_links",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("download", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double()),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_share_links_owner_id_owners", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_share_links_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_share_links"),
    )
    op.create_index("ix_share_links_job_id_id", "share_links", ["job_id", "id"])
    op.create_index("ix_share_links_owner_id", "share_links", ["owner_id"])


def downgrade() -> None:
    """Remove it."""
    op.drop_table("share_links")
