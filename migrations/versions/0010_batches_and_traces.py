"""The batch that a job belongs to, and its caller's place in a trace.

Revision 0010, after 0009. Going down forgets them: the jobs stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs that are there are in no batch."""
    with op.batch_alter_table("jobs") as changed:
        changed.add_column(sa.Column("batch_id", sa.Uuid()))
        changed.add_column(sa.Column("traceparent", sa.String(length=55)))
        changed.create_index("ix_jobs_owner_id_batch_id", ["owner_id", "batch_id"])


def downgrade() -> None:
    """Remove both."""
    with op.batch_alter_table("jobs") as changed:
        changed.drop_index("ix_jobs_owner_id_batch_id")
        changed.drop_column("traceparent")
        changed.drop_column("batch_id")
