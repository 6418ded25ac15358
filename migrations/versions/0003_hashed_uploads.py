"""Uploads know the SHA-256 that their bytes have, so that a whole one is hashed once.

Revision 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("uploads", sa.Column("found_sha256", sa.String(64), nullable=True))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("uploads") as table:
        table.drop_column("found_sha256")
