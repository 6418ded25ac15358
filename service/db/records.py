"""Tuning records: measurements of kernels, of the machine, and of searches.

Records are ordered by age: by the time they were measured at, then by id. A `Place` in that order is where a page ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.db.engine import clock
from service.db.models import NARROWING, RecordOperator, TuningRecord

FILTERS = (
    "kind",
    "operator",
    "workload",
    "target",
    "hardware",
    "job_id",
    "model_digest",
    "threads",
    "imported",
)
"""Columns that a query may fix to one value; `operator` to one that a kernel contains, or to its whole name."""

FEW = ("workload", "job_id", "model_digest")
"""Filters that leave so few records that each can be asked for its operators."""

BETWEEN, CUT = "+", "..."
"""What stands between the operators of a kernel's name, and for those that a long name leaves out."""

Place = tuple[float, uuid.UUID]
"""`created_at` and `id` of a record."""


@dataclass(frozen=True)
class Wanted:
    """Which records: `where` fixes some of `FILTERS`.

    `text` stands in the description, as great or small letters (of ASCII). Measured at `since` or later, and before
    `until` (seconds since 1970).
    """

    where: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    since: float | None = None
    until: float | None = None


def add(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that have their `id`."""
    if not rows:
        return
    now = session.scalar(sa.select(clock()))
    timed = [{"created_at": now, **row} for row in rows]
    session.execute(sa.insert(TuningRecord), timed)
    copied = ("owner_id", "created_at", *(column for column in NARROWING if column != "operator"))
    contained = [
        {
            "record_id": row["id"],
            "operator": operator,
            "imported": False,
            **{name: row[name] for name in copied if name in row},
        }
        for row in timed
        for operator in operators_of(row["operator"])
    ]
    session.execute(sa.insert(RecordOperator), contained)


def operators_of(name: str) -> list[str]:
    """By what a kernel of this name is found: each operator that the name says it contains, and the whole name."""
    return sorted({name, *name.split(BETWEEN)} - {"", CUT} or {name})


def of_owner(session: Session, owner_id: uuid.UUID, record_id: uuid.UUID) -> TuningRecord | None:
    """The owner's record, or None."""
    query = sa.select(TuningRecord).where(TuningRecord.id == record_id, TuningRecord.owner_id == owner_id)
    return session.scalar(query)


def page(
    session: Session, owner_id: uuid.UUID, wanted: Wanted, *, before: Place | None, limit: int
) -> Sequence[TuningRecord]:
    """The owner's records that are wanted, newest first, older than `before`."""
    return session.scalars(paged(owner_id, wanted, before=before, limit=limit)).all()


def paged(owner_id: uuid.UUID, wanted: Wanted, *, before: Place | None, limit: int) -> sa.Select[TuningRecord]:
    """The question that `page` asks.

    Where an operator is asked for, and nothing that leaves few records, the page's ids come from the table of operators
    alone, in order, and the records by these ids.
    """
    operator = wanted.where.get("operator")
    rows = sa.select(TuningRecord)
    if operator is None or wanted.text or any(name in wanted.where for name in FEW):
        query = _among(rows, TuningRecord, TuningRecord.id, owner_id, wanted, before, limit)
        if wanted.text:
            query = query.where(TuningRecord.description.icontains(wanted.text, autoescape=True))
        return query if operator is None else query.where(_contains(owner_id, operator))
    ids = sa.select(RecordOperator.record_id).where(RecordOperator.operator == operator)
    ids = _among(ids, RecordOperator, RecordOperator.record_id, owner_id, wanted, before, limit)
    return rows.where(TuningRecord.id.in_(ids)).order_by(TuningRecord.created_at.desc(), TuningRecord.id.desc())


def _among(
    query: sa.Select[Any],
    table: type[TuningRecord | RecordOperator],
    id: InstrumentedAttribute[uuid.UUID],
    owner_id: uuid.UUID,
    wanted: Wanted,
    before: Place | None,
    limit: int,
) -> sa.Select[Any]:
    """What is wanted of a table that has columns to narrow and to order by; `id` is that of its records."""
    query = query.where(table.owner_id == owner_id)
    for column in FILTERS:
        if column in wanted.where and column != "operator":
            query = query.where(getattr(table, column) == wanted.where[column])
    if wanted.since is not None:
        query = query.where(table.created_at >= wanted.since)
    if wanted.until is not None and (before is None or wanted.until <= before[0]):
        query = query.where(table.created_at < wanted.until)
    if before is not None:  # says more than a later `until`, and SQLite searches by one of the two only
        last = sa.tuple_(sa.literal(before[0], sa.Double()), sa.literal(before[1], sa.Uuid()))
        query = query.where(sa.tuple_(table.created_at, id) < last)
    return query.order_by(table.created_at.desc(), id.desc()).limit(limit)


def _contains(owner_id: uuid.UUID, operator: str) -> sa.ColumnElement[bool]:
    """Whether a record of the owner contains the operator.

    The owner is named once more: PostgreSQL may look for the operator's records first, and the index begins with whose
    they are.
    """
    found = sa.select(RecordOperator.record_id).where(RecordOperator.record_id == TuningRecord.id)
    return found.where(RecordOperator.owner_id == owner_id, RecordOperator.operator == operator).exists()


def measured_at(session: Session, owner_id: uuid.UUID, times: Sequence[float]) -> Sequence[TuningRecord]:
    """The owner's records that were measured at exactly these times."""
    query = sa.select(TuningRecord).where(TuningRecord.owner_id == owner_id, TuningRecord.created_at.in_(times))
    return session.scalars(query).all()


def measured(
    session: Session, owner_id: uuid.UUID, target: str, hardware: str, columns: Sequence[str], limit: int
) -> Iterator[tuple[Any, ...]]:
    """Columns of the owner's newest `limit` records for one target on one hardware, newest first.

    `variant` is JSON text.
    """
    wanted = Wanted({"target": target, "hardware": hardware})
    query = paged(owner_id, wanted, before=None, limit=limit)
    chosen = [_as_text(column) if column == "variant" else getattr(TuningRecord, column) for column in columns]
    rows = session.execute(query.with_only_columns(*chosen))
    return (tuple(row) for row in rows.yield_per(1000))


def _as_text(column: str) -> sa.ColumnElement[str]:
    return sa.cast(getattr(TuningRecord, column), sa.Text).label(column)
