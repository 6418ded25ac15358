"""Receivers of webhooks are verified by a challenge.

Revision 0021, after 0017. Webhooks that there are already count as verified: their receivers know no challenge. Going
down forgets who was verified, and what else waits is sent to all.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0017"
branch_labels = None
depends_on = None

WAITING = sa.text("next_at IS NOT NULL")


def upgrade() -> None:
    """Make the columns, and the indexes of what waits."""
    op.add_column("webhooks", sa.Column("verified_at", sa.Double()))
    op.add_column("deliveries", sa.Column("challenge", sa.String(length=100)))
    op.execute("UPDATE webhooks SET verified_at = created_at")
    for name in ("webhook_id", "owner_id"):
        op.create_index(
            f"ix_deliveries_{name}_id_waiting",
            "deliveries",
            [name, "id"],
            sqlite_where=WAITING,
            postgresql_where=WAITING,
        )


def downgrade() -> None:
    """Remove them, with challenges that nobody would know for what they are."""
    op.execute("DELETE FROM deliveries WHERE challenge IS NOT NULL")
    for name in ("owner_id", "webhook_id"):
        op.drop_index(f"ix_deliveries_{name}_id_waiting", table_name="deliveries")
    with op.batch_alter_table("deliveries") as deliveries:
        deliveries.drop_column("challenge")
    with op.batch_alter_table("webhooks") as webhooks:
        webhooks.drop_column("verified_at")
