"""Webhooks, and what was sent to them.

Revision 0008, after 0007. Going down forgets them: nobody is told any more.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

PLAIN = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("secret", sa.String(length=200), nullable=False),
        sa.Column("states", PLAIN, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled_at", sa.Double()),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_webhooks_owner_id_owners", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_owner_id_id", "webhooks", ["owner_id", "id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("webhook_id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid()),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.Double()),
        sa.Column("status", sa.BigInteger()),
        sa.Column("fault", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("delivered", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name="fk_deliveries_webhook_id_webhooks", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_webhook_id_id", "deliveries", ["webhook_id", "id"])
    op.create_index("ix_deliveries_job_id", "deliveries", ["job_id"])
    op.create_index("ix_deliveries_next_at", "deliveries", ["next_at"])
    op.create_index("ix_deliveries_ended_at", "deliveries", ["ended_at"])


def downgrade() -> None:
    """Remove them."""
    op.drop_table("deliveries")
    op.drop_table("webhooks")
