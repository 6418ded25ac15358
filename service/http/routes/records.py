"""`/tuning-records`: every measurement that was made on a device."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Query

from service.errors import BadRequest
from service.http.auth import Reader
from service.http.cursors import Cursor, Limit, decode, encode
from service.http.errors import problem_responses
from service.http.schemas import RecordOut, RecordPage
from service.http.state import Here
from service.jobs import records

router = APIRouter(tags=["tuning records"])


@router.get("/tuning-records", summary="List tuning records", responses=problem_responses(400))
def list_records(
    here: Here,
    caller: Reader,
    kind: Annotated[str | None, Query(description="`kernel`, `stage`, `plan`, `model`, ...")] = None,
    operator: Annotated[str | None, Query(examples=["Conv"])] = None,
    workload: Annotated[str | None, Query(description="The workload's key.")] = None,
    target: Annotated[str | None, Query(examples=["cpu:x86-64-v4"])] = None,
    hardware: Annotated[str | None, Query(description="Fingerprint of the machine that measured.")] = None,
    device: Annotated[str | None, Query(description="The same as `hardware`.")] = None,
    job: Annotated[uuid.UUID | None, Query(description="Measured by this job.")] = None,
    model: Annotated[str | None, Query(description="SHA-256 of the model that was compiled.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> RecordPage:
    """The caller's measurements, newest first."""
    if None not in (hardware, device) and hardware != device:
        raise BadRequest("hardware and device differ", fix="give one of them")
    given = {
        "kind": kind,
        "operator": operator,
        "workload": workload,
        "target": target,
        "hardware": hardware or device,
        "job_id": job,
        "model_digest": model,
    }
    where = {name: value for name, value in given.items() if value is not None}
    rows, last = records.page(here.db, caller.owner, where=where, before=decode(cursor), limit=limit)
    return RecordPage(records=[RecordOut.of(row) for row in rows], next_cursor=encode(last))


@router.get("/tuning-records/{record_id}", summary="One tuning record", responses=problem_responses(404))
def get_record(here: Here, caller: Reader, record_id: uuid.UUID) -> RecordOut:
    """One measurement."""
    return RecordOut.of(records.get(here.db, caller.owner, record_id))
