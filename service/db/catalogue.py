"""What workers publish of their compilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.insert import unless_present
from service.db.models import Catalogue


def put(session: Session, name: str, compiler: str, entries: Sequence[dict[str, Any]]) -> None:
    """Insert or replace what is known of one compiler version."""
    unless_present(session, Catalogue, name=name, compiler=compiler, entries=[])
    update = sa.update(Catalogue).where(Catalogue.name == name, Catalogue.compiler == compiler)
    values = {"entries": list(entries), "published_at": clock()}
    session.execute(update.values(values).execution_options(synchronize_session=False))


def newest(session: Session, name: str) -> Catalogue | None:
    """What was published last under this name, whatever the compiler's version."""
    query = sa.select(Catalogue).where(Catalogue.name == name)
    return session.scalar(query.order_by(Catalogue.published_at.desc(), Catalogue.compiler.desc()).limit(1))


def forget(session: Session, name: str, older_than_s: float) -> None:
    """Remove what was published longer ago than this."""
    session.execute(sa.delete(Catalogue).where(Catalogue.name == name, Catalogue.published_at < clock() - older_than_s))
