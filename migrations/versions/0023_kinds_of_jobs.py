"""The kinds of job are the program's to know, not the table's: one that is new needs no step of this history.

Revision 0023, after 0022, whose programs work beside it. Going down removes jobs of other kinds than there were; the
models that they made stay.
"""

from __future__ import annotations

from alembic import op

revision = "0023_for_0022"
down_revision = "0022"
branch_labels = None
depends_on = None

BEFORE = "kind IN ('compile', 'benchmark', 'inference', 'quantization', 'compression', 'minimisation')"


def upgrade() -> None:
    """Drop the check."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_constraint(op.f("ck_jobs_kind"), type_="check")


def downgrade() -> None:
    """Remove what it refuses, children before parents: foreign keys are off on SQLite while the schema changes."""
    gone = f"SELECT id FROM jobs WHERE NOT ({BEFORE})"
    op.execute(f"UPDATE tuning_records SET job_id = NULL WHERE job_id IN ({gone})")
    for child in ("events", "attempts", "deliveries", "job_needs", "share_links"):
        op.execute(f"DELETE FROM {child} WHERE job_id IN ({gone})")
    op.execute(f"DELETE FROM jobs WHERE NOT ({BEFORE})")
    with op.batch_alter_table("jobs") as jobs:
        jobs.create_check_constraint(op.f("ck_jobs_kind"), BEFORE)
