"""Samples of compilations, which jobs name.

Revision 0006, after 0005. Going down forgets them: queued jobs are compiled without.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

PLAIN = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Jobs that are there have none."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("samples", PLAIN))
        jobs.add_column(sa.Column("samples_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("samples_bytes", server_default=None, existing_type=sa.BigInteger(), existing_nullable=False)


def downgrade() -> None:
    """Their blobs are named by no row then, and are removed in time."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("samples_bytes")
        jobs.drop_column("samples")
