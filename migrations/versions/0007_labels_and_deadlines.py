"""Names, notes and tags of jobs and models; the time that a job may wait and run; since when no worker serves it.

Revision 0007, after 0006. Going down forgets them.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

PLAIN = sa.JSON().with_variant(JSONB(), "postgresql")
LABELS: dict[str, sa.types.TypeEngine[Any]] = {"name": sa.String(length=200), "note": sa.Text(), "tags": PLAIN}
NEW: dict[str, dict[str, sa.types.TypeEngine[Any]]] = {
    "models": LABELS,
    "jobs": {**LABELS, "max_queue_s": sa.Double(), "max_run_s": sa.Double(), "unserved_since": sa.Double()},
}
"""Columns that are new, by table; each may be empty."""


def upgrade() -> None:
    """What is there has none of them."""
    for table, columns in NEW.items():
        with op.batch_alter_table(table) as changed:
            for name, kind in columns.items():
                changed.add_column(sa.Column(name, kind))


def downgrade() -> None:
    """Jobs wait and run for as long as the operator lets them then."""
    for table, columns in NEW.items():
        with op.batch_alter_table(table) as changed:
            for name in columns:
                changed.drop_column(name)
