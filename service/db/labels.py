"""Names, notes and tags of rows: how they are narrowed by them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.db.models import Job, Model

Labelled = type[Job] | type[Model]


def tagged(session: Session, table: Labelled, tags: Collection[str]) -> list[sa.ColumnElement[bool]]:
    """That a row has each of these tags."""
    return [_has(session, table.tags, tag) for tag in tags]


def saying(table: Labelled, text: str) -> sa.ColumnElement[bool]:
    """That name or note of a row hold this text; great and small letters (of ASCII) are the same."""
    return sa.or_(table.name.icontains(text, autoescape=True), table.note.icontains(text, autoescape=True))


def _has(session: Session, column: InstrumentedAttribute[list[str] | None], tag: str) -> sa.ColumnElement[bool]:
    if session.get_bind().dialect.name == "postgresql":
        held: sa.ColumnElement[bool] = column.bool_op("@>")([tag])
        return held
    each: Any = sa.func.json_each(column).table_valued("value")
    return sa.select(sa.literal(1)).select_from(each).where(each.c.value == tag).exists()
