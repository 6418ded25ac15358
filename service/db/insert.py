"""Insert what may be there already, on both databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.db.models import Row, Share, Total, Usage


def unless_present(session: Session, table: type[Row], **values: Any) -> bool:
    """Insert a row; nothing happens when a row with one of its keys exists, or is made at the same moment.

    Whether it was inserted.
    """
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    insert = dialect.insert(table).values(**values).on_conflict_do_nothing()
    return session.execute(insert.returning(sa.literal_column("1"))).first() is not None


def add_up(
    session: Session, table: type[Share] | type[Total] | type[Usage], column: str, amount: float, **keys: Any
) -> None:
    """Add `amount` to a number in the row with these keys, which is made when missing.

    Safe against others who do so at the same time.
    """
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    insert = dialect.insert(table).values({**keys, column: amount})
    present = getattr(table, column)
    session.execute(insert.on_conflict_do_update(index_elements=list(keys), set_={column: present + amount}))
