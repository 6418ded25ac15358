"""Owners that are suspended, deleted and limited; keys that expire; device seconds by month; the audit log.

Revision 0005, after 0004.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NEW: dict[str, dict[str, sa.types.TypeEngine[Any]]] = {
    "owners": {
        "suspended_at": sa.Double(),
        "deleted_at": sa.Double(),
        "max_stored_bytes": sa.BigInteger(),
        "max_queued_jobs": sa.BigInteger(),
        "max_device_s": sa.Double(),
        "max_concurrent_jobs": sa.BigInteger(),
    },
    "api_keys": {"expires_at": sa.Double(), "last_used_at": sa.Double(), "replaced_by": sa.Uuid()},
    "attempts": {"tallied_until": sa.Double()},
}
"""Columns that are new, by table; each may be empty."""


def upgrade() -> None:
    """Widen what is there, then make what is new."""
    for table, columns in NEW.items():
        with op.batch_alter_table(table) as changed:
            for name, kind in columns.items():
                changed.add_column(sa.Column(name, kind))
    op.create_table(
        "usage",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("device_s", sa.Double(), nullable=False),
        _of_owner("usage"),
        sa.PrimaryKeyConstraint("owner_id", "month", name="pk_usage"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("owner_id", sa.Uuid()),
        sa.Column("key_id", sa.Uuid()),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=100), nullable=False),
        sa.Column("verb", sa.String(length=32), nullable=False),
        sa.Column("object", sa.String(length=400), nullable=False),
        sa.Column("outcome", sa.String(length=64), nullable=False),
        sa.Column("untold", sa.BigInteger(), nullable=False),
        _of_owner("audit"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_owner_id_id", "audit", ["owner_id", "id"])
    op.create_index("ix_audit_created_at", "audit", ["created_at"])


def downgrade() -> None:
    """Remove what is new. A key that would be valid for longer than it may is revoked: 0002 knows no other end."""
    barred = "SELECT id FROM owners WHERE suspended_at IS NOT NULL OR deleted_at IS NOT NULL"
    op.execute(
        "UPDATE api_keys SET revoked_at = coalesce(revoked_at, expires_at, created_at) "
        f"WHERE expires_at IS NOT NULL OR owner_id IN ({barred})"
    )
    op.drop_table("audit")
    op.drop_table("usage")
    for table, columns in NEW.items():
        with op.batch_alter_table(table) as changed:
            for name in columns:
                changed.drop_column(name)


def _of_owner(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=f"fk_{table}_owner_id_owners", ondelete="CASCADE")
