"""Records by each of their operators, what is known of the bytes behind rows, and when a model was last used.

Revision 0004, after 0003.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

AGE = ("created_at", "record_id")
NARROWING = ("kind", "target", "hardware", "threads", "imported")
BEFORE = ("owner_id", "operator", "created_at", "id", *NARROWING)
"""Of the index that found records by their kernel's whole name alone."""
BATCH = 1000


def upgrade() -> None:
    """Make the tables and fill them from what is there."""
    op.create_table(
        "record_operators",
        sa.Column("record_id", sa.Uuid(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("hardware", sa.Text(), nullable=False),
        sa.Column("threads", sa.BigInteger(), nullable=False),
        sa.Column("imported", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["record_id"],
            ["tuning_records.id"],
            name="fk_record_operators_record_id_tuning_records",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("record_id", "operator", name="pk_record_operators"),
        sqlite_with_rowid=False,
    )
    _fill_operators()
    op.create_index(
        "ix_record_operators_owner_id_operator", "record_operators", ["owner_id", "operator", *AGE, *NARROWING]
    )
    op.drop_index("ix_tuning_records_owner_id_operator", "tuning_records")
    op.create_table(
        "blobs",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("named_at", sa.Double(), nullable=False),
        sa.Column("checked_at", sa.Double(), nullable=False),
        sa.Column("fault", sa.String(length=16)),
        sa.PrimaryKeyConstraint("key", name="pk_blobs"),
    )
    op.create_index("ix_blobs_checked_at", "blobs", ["checked_at", "key"])
    op.create_index("ix_blobs_fault", "blobs", ["fault"])
    _fill_blobs()
    with op.batch_alter_table("models") as models:
        models.add_column(sa.Column("used_at", sa.Double(), nullable=False, server_default=sa.text("0")))
    with op.batch_alter_table("models") as models:
        models.alter_column("used_at", server_default=None, existing_type=sa.Double(), existing_nullable=False)
    last = (
        "SELECT max(jobs.created_at) FROM jobs "
        "WHERE jobs.owner_id = models.owner_id AND jobs.model_digest = models.digest"
    )
    op.execute(f"UPDATE models SET used_at = coalesce(({last}), created_at)")


def downgrade() -> None:
    """Drop what is new."""
    with op.batch_alter_table("models") as models:
        models.drop_column("used_at")
    op.drop_table("blobs")
    op.drop_table("record_operators")
    op.create_index("ix_tuning_records_owner_id_operator", "tuning_records", list(BEFORE))


def _fill_operators() -> None:
    """Kernels' names are few: each is taken apart once, and joined to the records that bear it."""
    parts = op.create_table(
        "operator_parts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "part", name="pk_operator_parts"),
    )
    names = op.get_bind().exec_driver_sql("SELECT DISTINCT operator FROM tuning_records").scalars().all()
    rows = [{"name": name, "part": part} for name in names for part in sorted({name, *name.split("+")} - {"", "..."})]
    for first in range(0, len(rows), BATCH):
        op.bulk_insert(parts, rows[first : first + BATCH])
    columns = ", ".join(("owner_id", "created_at", *NARROWING))
    op.execute(
        f"INSERT INTO record_operators (record_id, operator, {columns}) "
        f"SELECT id, part, {columns} FROM tuning_records JOIN operator_parts ON name = operator"
    )
    op.drop_table("operator_parts")


def _fill_blobs() -> None:
    now = {"postgresql": "extract(epoch from now())::float8"}.get(
        op.get_bind().dialect.name, "(julianday('now') - 2440587.5) * 86400.0"
    )
    once = "ON CONFLICT DO NOTHING"
    for table, key, size in (
        ("artifacts", "blob_key", "bytes"),
        ("inferences", "input_key", "input_bytes"),
        ("inferences", "output_key", "output_bytes"),
    ):
        op.execute(
            f"INSERT INTO blobs (key, bytes, named_at, checked_at) SELECT {key}, max({size}), {now}, 0 FROM {table} "
            f"WHERE {key} <> '' AND {size} IS NOT NULL GROUP BY {key} {once}"
        )
    one = sa.text(f"INSERT INTO blobs (key, bytes, named_at, checked_at) VALUES (:key, :bytes, {now}, 0) {once}")
    for row in _files():
        op.get_bind().execute(one, row)


def _files() -> Iterator[dict[str, Any]]:
    """Key and length of each file of models, and of each piece of uploads."""
    connection = op.get_bind()
    for key, size, files in connection.exec_driver_sql("SELECT blob_key, bytes, files FROM models").all():
        named = _entries(files)
        yield {"key": key, "bytes": size - sum(one["bytes"] for one in named)}
        yield from named
    for (parts,) in connection.exec_driver_sql("SELECT parts FROM uploads").all():
        yield from _entries(parts)


def _entries(column: Any) -> list[dict[str, Any]]:
    """`key` and `bytes` of a list in JSON, which one of the databases returns as text."""
    plain = json.loads(column) if isinstance(column, str) else column
    found = plain if isinstance(plain, list) else []
    return [{"key": one["key"], "bytes": one["bytes"]} for one in found]
