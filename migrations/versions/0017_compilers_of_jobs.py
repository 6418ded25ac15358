"""Versions of the compiler that jobs ask for.

Revision 0017, after 0016. Going down forgets them: what waits is then taken by workers of any version.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column."""
    op.add_column("jobs", sa.Column("compiler", sa.String(50)))


def downgrade() -> None:
    """Remove it."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("compiler")
