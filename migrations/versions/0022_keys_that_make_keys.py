"""Which key made a key, and the scope `keys`.

Revision 0022, after 0021. Managing keys was part of `compile`. So that no owner is locked out, the oldest valid key
with `compile` of each owner without a valid `admin` key has the new scope from now on. Going down forgets who made
which.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

PLAIN = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
KEYS = sa.table(
    "api_keys",
    sa.column("id", sa.Uuid()),
    sa.column("owner_id", sa.Uuid()),
    sa.column("scopes", PLAIN),
    sa.column("created_at", sa.Double()),
    sa.column("revoked_at", sa.Double()),
)


def upgrade() -> None:
    """Make the column, and managers."""
    op.add_column("api_keys", sa.Column("made_by", sa.Uuid()))
    op.create_index("ix_api_keys_made_by", "api_keys", ["made_by"])
    connection = op.get_bind()
    valid = sa.select(KEYS).where(KEYS.c.revoked_at.is_(None)).order_by(KEYS.c.created_at, KEYS.c.id)
    rows = connection.execute(valid).mappings().all()
    managed = {row["owner_id"] for row in rows if {"admin", "keys"} & {*row["scopes"]}}
    for row in rows:
        if "compile" in row["scopes"] and row["owner_id"] not in managed:
            managed.add(row["owner_id"])
            scopes = [*row["scopes"], "keys"]
            connection.execute(sa.update(KEYS).where(KEYS.c.id == row["id"]).values(scopes=scopes))


def downgrade() -> None:
    """Remove the column; the scope means nothing to programs before it."""
    op.drop_index("ix_api_keys_made_by", "api_keys")
    with op.batch_alter_table("api_keys") as keys:
        keys.drop_column("made_by")
