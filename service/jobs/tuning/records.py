"""Tuning records as workers write them and compilations read them.

A record in JSON: {"kind": "kernel", "workload": str, "operator": str, "description": str, "target": str,
"hardware": str, "variant": {...}, "threads": int, "seconds": float, "p10": float, "p90": float,
"samples": int, "compiler": str}.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from compiler.errors import InternalError
from service.db import records
from service.db.engine import Database
from service.db.models import TuningRecord, new_id
from service.db.plain import storable
from service.db.records import Place, Wanted
from service.errors import NotFound

MAX_TEXT_BYTES = 256 << 10
"""Of a workload's text."""
MAX_VARIANT_BYTES = 16 << 10
"""Of a record's variant, as JSON; every compilation that may use the record is handed it."""

FIELDS: Mapping[str, type] = {
    "kind": str,
    "workload": str,
    "operator": str,
    "description": str,
    "target": str,
    "hardware": str,
    "variant": dict,
    "threads": int,
    "seconds": float,
    "p10": float,
    "p90": float,
    "samples": int,
    "compiler": str,
}

NAMES = tuple(FIELDS)

LONGEST: Mapping[str, int] = {
    "kind": 32,
    "target": 100,
    "compiler": 50,
    "workload": 500,
    "operator": 500,
    "hardware": 500,
    "description": 10_000,
}
"""Bytes of UTF-8; what one index holds together has to fit into a third of a page of PostgreSQL."""

MOST = 2**53
"""Greatest whole number that JSON carries everywhere."""

BATCH = 2_000
"""Rows that are read at a time where all are wanted."""

MOST_IN_A_FILE = 1_000_000
"""Records that one answer holds where a file of all is asked for."""

SNAPSHOT = 50_000
"""The most rows that one compilation is handed."""


def to_row(
    plain: Mapping[str, Any], *, owner: uuid.UUID, job: uuid.UUID | None, model_digest: str | None
) -> dict[str, Any]:
    """The columns of a record. Raises `InternalError` naming the field that is missing, ill-typed or out of range."""
    row: dict[str, Any] = {"id": new_id(), "owner_id": owner, "job_id": job, "model_digest": model_digest}
    for name, kind in FIELDS.items():
        value = storable(plain.get(name))
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InternalError(
                f"tuning record field {name!r} is not a (finite) {kind.__name__}: {plain.get(name)!r:.80}"
            )
        if isinstance(value, int | float) and not 0 <= value <= MOST:
            raise InternalError(f"tuning record field {name!r} is out of range: {value:g}")
        if isinstance(value, str) and len(value.encode()) > LONGEST[name]:
            raise InternalError(f"tuning record field {name!r} is longer than {LONGEST[name]} bytes")
        row[name] = value
    return row


def to_json(record: TuningRecord) -> dict[str, Any]:
    """The record as its worker wrote it."""
    return {name: getattr(record, name) for name in FIELDS}


def records_for(db: Database, owner: uuid.UUID, target: str, hardware: str) -> list[dict[str, Any]]:
    """The snapshot handed to a compilation.

    What the owner measured for this target on this hardware, the newest `SNAPSHOT`. Of several measurements of one
    variant (same kind, workload, threads and variant) the newest counts. Oldest first.
    """
    same = operator.itemgetter(*(NAMES.index(name) for name in ("kind", "workload", "threads", "variant")))
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    with db.read() as session:
        for row in records.measured(session, owner, target, hardware, NAMES, SNAPSHOT):
            newest.setdefault(same(row), row)
    snapshot = [dict(zip(NAMES, row, strict=True)) for row in reversed(newest.values())]
    for plain in snapshot:
        plain["variant"] = orjson.loads(plain["variant"])
    return snapshot


def page(
    db: Database, owner: uuid.UUID, wanted: Wanted, *, before: Place | None, limit: int
) -> tuple[list[TuningRecord], Place | None]:
    """Records of the owner, newest first, and where the next page begins (None: there is none)."""
    with db.read() as session:
        rows = list(records.page(session, owner, wanted, before=before, limit=limit + 1))
    return rows[:limit], place(rows[limit - 1]) if len(rows) > limit else None


def everything(db: Database, owner: uuid.UUID, wanted: Wanted, *, most: int | None) -> Iterator[Sequence[TuningRecord]]:
    """The owner's records that are wanted, newest first, in batches; no more than `most` in all.

    Each batch is read by itself, so that a slow reader holds up nobody; what is recorded meanwhile is newer and
    not included.
    """
    before: Place | None = None
    left = most
    while left is None or left > 0:
        limit = BATCH if left is None else min(BATCH, left)
        with db.read() as session:
            rows = records.page(session, owner, wanted, before=before, limit=limit)
        if rows:
            yield rows
        if len(rows) < limit:
            return
        before = place(rows[-1])
        left = None if left is None else left - len(rows)


def place(record: TuningRecord) -> Place:
    """Where a record stands among the others by age."""
    return record.created_at, record.id


def get(db: Database, owner: uuid.UUID, record_id: uuid.UUID) -> TuningRecord:
    """One record. Raises `NotFound`."""
    with db.read() as session:
        record = records.of_owner(session, owner, record_id)
    if record is None:
        raise NotFound(f"there is no tuning record {record_id}", fix="list them with GET /tuning-records")
    return record
