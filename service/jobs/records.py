"""Tuning records as workers write them and compilations read them.

A record in JSON: {"kind": "kernel", "workload": str, "operator": str, "description": str, "target": str,
"hardware": str, "variant": {...}, "threads": int, "seconds": float, "p10": float, "p90": float,
"samples": int, "compiler": str}.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from compiler.errors import InternalError
from service.db import records
from service.db.engine import Database
from service.db.models import TuningRecord, new_id
from service.db.plain import storable
from service.errors import NotFound

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

LONGEST: Mapping[str, int] = {
    "kind": 32,
    "target": 100,
    "compiler": 50,
    "workload": 500,
    "operator": 500,
    "hardware": 500,
    "description": 10_000,
}
"""Characters; what is indexed has to fit into a page of PostgreSQL's index."""

MOST = 2**53
"""Greatest whole number that JSON carries everywhere."""

SNAPSHOT = 50_000
"""The most rows that one compilation is handed."""


def to_row(plain: Mapping[str, Any], *, owner: uuid.UUID, job: uuid.UUID, model_digest: str) -> dict[str, Any]:
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
        if isinstance(value, str) and len(value) > LONGEST[name]:
            raise InternalError(f"tuning record field {name!r} is longer than {LONGEST[name]} characters")
        row[name] = value
    return row


def to_json(record: TuningRecord) -> dict[str, Any]:
    """The record as its worker wrote it."""
    return {name: getattr(record, name) for name in FIELDS}


def records_for(db: Database, owner: uuid.UUID, target: str, hardware: str) -> list[dict[str, Any]]:
    """The snapshot handed to a compilation: all that the owner measured for this target on this hardware.

    Of several measurements of one variant (same kind, workload, threads and variant) the newest counts. Oldest first.
    """
    with db.read() as session:
        rows = records.measured(session, owner, target, hardware, SNAPSHOT)
    newest: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row.kind, row.workload, row.threads, json.dumps(row.variant, sort_keys=True))
        newest.setdefault(key, to_json(row))
    return list(newest.values())[::-1]


def page(
    db: Database, owner: uuid.UUID, *, where: Mapping[str, Any], before: uuid.UUID | None, limit: int
) -> tuple[list[TuningRecord], uuid.UUID | None]:
    """Records of the owner, newest first, and the cursor of the next page (None: there is none).

    `where` fixes any of `kind operator workload target hardware job_id model_digest` to one value.
    """
    with db.read() as session:
        rows = list(records.page(session, owner, where=where, before=before, limit=limit + 1))
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None


def get(db: Database, owner: uuid.UUID, record_id: uuid.UUID) -> TuningRecord:
    """One record. Raises `NotFound`."""
    with db.read() as session:
        record = records.of_owner(session, owner, record_id)
    if record is None:
        raise NotFound(f"there is no tuning record {record_id}", fix="list them with GET /tuning-records")
    return record
