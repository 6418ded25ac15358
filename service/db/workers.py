"""Liveness of workers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import clock
from service.db.models import Worker


def report(
    session: Session,
    name: str,
    queues: Sequence[str],
    hardware: dict[str, Any],
    compiler: str,
    busy_with: uuid.UUID | None,
) -> None:
    """Insert or renew the worker's row; one process writes one name."""
    values = {
        "queues": list(queues),
        "hardware": hardware,
        "compiler": compiler,
        "busy_with": busy_with,
        "last_seen": clock(),
    }
    update = sa.update(Worker).where(Worker.name == name).values(values).returning(Worker.name)
    if session.execute(update.execution_options(synchronize_session=False)).first() is None:
        session.execute(sa.insert(Worker).values(name=name, **values))


def alive(session: Session, within_s: float) -> Sequence[Worker]:
    """Workers seen within the last `within_s` seconds, by name."""
    query = sa.select(Worker).where(Worker.last_seen >= clock() - within_s)
    return session.scalars(query.order_by(Worker.name)).all()


def forget(session: Session, unseen_s: float) -> None:
    """Remove rows of workers that have not been seen for this long."""
    session.execute(sa.delete(Worker).where(Worker.last_seen < clock() - unseen_s))
