"""Workloads of models that owners give names to.

Revision 0016, after 0015. Going down forgets them; the jobs that used one keep its sizes in their options.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

PLAIN = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "named_workloads",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("model_digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("dims", PLAIN, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id", "model_digest"],
            ["models.owner_id", "models.digest"],
            name="fk_named_workloads_owner_id_models",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("owner_id", "model_digest", "name", name="pk_named_workloads"),
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("named_workloads")
