"""Compressions as jobs.

Revision 0011, after 0010. Going down removes them; the models that they made stay.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BEFORE = "kind IN ('compile', 'benchmark', 'inference', 'quantization')"
AFTER = "kind IN ('compile', 'benchmark', 'inference', 'quantization', 'compression')"


def upgrade() -> None:
    """Allow the kind."""
    _kinds(AFTER)


def downgrade() -> None:
    """Remove what is of it, children before parents: foreign keys are off on SQLite while the schema changes."""
    gone = "SELECT id FROM jobs WHERE kind = 'compression'"
    op.execute(f"UPDATE tuning_records SET job_id = NULL WHERE job_id IN ({gone})")
    for child in ("events", "attempts", "deliveries", "job_needs"):
        op.execute(f"DELETE FROM {child} WHERE job_id IN ({gone})")
    op.execute("DELETE FROM jobs WHERE kind = 'compression'")
    _kinds(BEFORE)


def _kinds(allowed: str) -> None:
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_constraint(op.f("ck_jobs_kind"), type_="check")
        jobs.create_check_constraint(op.f("ck_jobs_kind"), allowed)
