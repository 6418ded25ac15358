"""Insert what may be there already, on both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.db.models import Row


def unless_present(session: Session, table: type[Row], **values: Any) -> None:
    """Insert a row; nothing happens when a row with one of its keys exists, or is made at the same moment."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(postgresql.insert(table).values(**values).on_conflict_do_nothing())
    else:
        session.execute(sqlite.insert(table).values(**values).on_conflict_do_nothing())
