"""Sums that only grow, of all processes together."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.engine import AT_COMMIT
from service.db.insert import add_up
from service.db.models import Total

_PENDING = "totals"


def count(session: Session, name: str, value: float = 1.0, **labels: str) -> None:
    """Add `value` to a sum when the transaction commits.

    The additions of a transaction are made at its end, in one order for all: two transactions that touch the same
    sums cannot wait for each other.
    """
    if _PENDING not in session.info:
        session.info.setdefault(AT_COMMIT, []).append(_settle)
    pending: dict[tuple[str, str], float] = session.info.setdefault(_PENDING, {})
    key = (name, json.dumps(labels, sort_keys=True))
    pending[key] = pending.get(key, 0.0) + value


def _settle(session: Session) -> None:
    pending: dict[tuple[str, str], float] = session.info.pop(_PENDING, {})
    for name, labels in sorted(pending):
        add_up(session, Total, "value", pending[name, labels], name=name, labels=labels)


def everything(session: Session) -> Sequence[Total]:
    """All sums, by name and labels."""
    return session.scalars(sa.select(Total).order_by(Total.name, Total.labels)).all()
