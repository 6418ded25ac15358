"""What Alembic runs for every command: it is given a connection, or opens one by the service's settings."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from alembic import context

from service.config import Settings
from service.db.migrate import connected
from service.db.models import Row


def render_item(kind: str, item: Any, autogen_context: object) -> str | Literal[False]:
    """Write JSON columns of a new step as `PLAIN`, which its template defines for both databases."""
    if kind == "type" and isinstance(item, sa.JSON):
        return "PLAIN"
    return False


def run(connection: sa.Connection) -> None:
    """Run the steps inside the transaction that `connection` has open."""
    context.configure(
        connection=connection,
        target_metadata=Row.metadata,
        render_as_batch=True,
        render_item=render_item,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    with connected(Settings().sqlalchemy_url) as opened:
        run(opened)
