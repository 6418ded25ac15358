"""The C source of a tuning record, made anew each time: it is kept nowhere and taken from nobody."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from compiler.errors import InternalError, SourceUnavailable
from service.db import workloads
from service.db.engine import Database
from service.db.models import TuningRecord
from service.db.plain import storable
from service.errors import Busy, SourceUnknown
from service.jobs.inspection.inspector import BUSY, TIME_LIMIT
from service.jobs.tuning import records

CPU_S = 20.0
"""Processor seconds that making one source may take; most take milliseconds."""


class Answers(Protocol):
    """What answers an order by a sealed process: `service.jobs.inspection.inspector.Inspector`."""

    def ask(self, order: Mapping[str, Any], cpu_s: float) -> dict[str, Any]:
        """The answer, unchecked, or `{"problem": ...}` when none came in so much processor time. Blocking."""
        ...


def workload_text(db: Database, owner: uuid.UUID, record: TuningRecord) -> str | None:
    """What the record measured, as text; None when that was never recorded."""
    with db.read() as session:
        found = workloads.of_owner(session, owner, record.workload)
    return found.text if found else None


def source(db: Database, inspector: Answers, owner: uuid.UUID, record_id: uuid.UUID) -> str:
    """C of what a record measured, generated from its workload, variant and target in a sealed process.

    Raises `NotFound`; `SourceUnknown` when the workload's text was never recorded; `SourceUnavailable` when the text or
    the variant cannot be read, or takes too long; `Busy` while too many others ask; `InternalError` when it died.
    """
    record = records.get(db, owner, record_id)
    text = workload_text(db, owner, record)
    if text is None:
        raise SourceUnknown(
            f"the text of workload {record.workload} was never recorded, "
            f"so that tuning record {record_id} has no source",
            fix="compile the model again with fresh=true and a tuning budget: its measurements are recorded",
            details={"workload": record.workload, "kind": record.kind, "imported": record.imported},
        )
    order = {"order": "source", "text": text, "variant": record.variant, "target": record.target}
    answer = inspector.ask(order, CPU_S)
    made = answer.get("source")
    if not isinstance(made, str):
        raise _refusal(answer)
    return str(storable(made))


def _refusal(answer: Mapping[str, Any]) -> Exception:
    problem = answer.get("problem")
    given = problem if isinstance(problem, dict) else {}
    code, message, fix = (str(storable(given.get(name) or "")) for name in ("code", "message", "fix"))
    if code == SourceUnavailable.code:
        return SourceUnavailable(message, fix=fix)
    if code == TIME_LIMIT:
        return SourceUnavailable(
            f"no source was generated within {CPU_S:g} s", fix="measure it again with this version of the compiler"
        )
    if code == BUSY:
        return Busy("too many sources and models are being looked at", fix="ask again in a moment")
    return InternalError(
        f"no source was generated: {message or 'the answer is not one'}", fix="report it, with the record"
    )
