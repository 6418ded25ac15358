"""Minimisations as jobs.

Revision 0015, after 0013. Going down removes them; the models that they made stay.
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0013"
branch_labels = None
depends_on = None

BEFORE = "kind IN ('compile', 'benchmark', 'inference', 'quantization', 'compression')"
AFTER = "kind IN ('compile', 'benchmark', 'inference', 'quantization', 'compression', 'minimisation')"


def upgrade() -> None:
    """Allow the kind."""
    _kinds(AFTER)


def downgrade() -> None:
    """Remove what is of it, children before parents: foreign keys are off on SQLite while the schema changes."""
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
