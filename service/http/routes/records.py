"""`/tuning-records`: every measurement that was made on a device."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from importlib import util
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from compiler.errors import SourceUnavailable
from service.db.plain import storable
from service.db.records import Wanted
from service.errors import BadRequest, Busy, NotFound, SourceUnknown
from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.cursors import Cursor, Limit, decode_place, encode_place, link
from service.http.responses.errors import problem_responses
from service.http.responses.record_files import Batches, csv_file, parquet_file
from service.http.schemas.ids import RecordId
from service.http.schemas.records import RecordDetail, RecordOut, RecordPage
from service.http.schemas.times import Moment, seconds_of
from service.http.state import Here
from service.jobs.inspection import source
from service.jobs.tuning import records
from service.jobs.tuning.records import MOST, MOST_IN_A_FILE

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"
BY_TYPE = {CSV: "csv", PARQUET: "parquet"}

CSV_EXAMPLE = "id,kind,operator,seconds\n019aa1f0-9d11-7c52-8e0a-0f6d2b7a4c10,kernel,Conv+Relu,0.000213\n"

FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": RecordPage,
        "description": "A page as JSON, or everything that is asked for as a file.",
        "content": {
            CSV: {"schema": {"type": "string"}, "example": CSV_EXAMPLE},
            PARQUET: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}

router = Gated(tags=["tuning records"])


async def _wanted(
    kind: Annotated[
        str | None,
        Query(
            max_length=100,
            description="`kernel`, `machine`, `handover`, `stage`, `search`, `plan`, `cores` or `stream`.",
        ),
    ] = None,
    operator: Annotated[
        str | None,
        Query(
            max_length=1000,
            description="One that the kernel contains, as `Conv`; or the kernel's whole name, as `Conv+Relu`.",
        ),
    ] = None,
    workload: Annotated[str | None, Query(max_length=1000, description="The workload's key.")] = None,
    target: Annotated[
        str | None, Query(max_length=1000, description="Fingerprint of the hardware.", examples=["cpu:x86-64-v4"])
    ] = None,
    hardware: Annotated[
        str | None, Query(max_length=1000, description="Fingerprint of the machine that measured.")
    ] = None,
    device: Annotated[str | None, Query(max_length=1000, description="The same as `hardware`.")] = None,
    query: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            pattern=r"^[^\u0000]+$",
            description="Text of the workload to find, such as a shape.",
            examples=["[1, 64, 56, 56]"],
        ),
    ] = None,
    job: Annotated[uuid.UUID | None, Query(description="Measured by this job.")] = None,
    model: Annotated[str | None, Query(max_length=100, description="Digest of the model that was compiled.")] = None,
    threads: Annotated[int | None, Query(ge=0, le=MOST, description="Measured on so many lanes.")] = None,
    since: Annotated[Moment | None, Query(description="Measured then or later; RFC 3339.")] = None,
    until: Annotated[Moment | None, Query(description="Measured before; RFC 3339.")] = None,
    imported: Annotated[bool | None, Query(description="Whether they were measured by another installation.")] = None,
) -> Wanted:
    """The filters, which all have to match."""
    if None not in (hardware, device) and hardware != device:
        raise BadRequest("hardware and device differ", fix="give one of them")
    given = {
        "kind": kind,
        "operator": operator,
        "workload": workload,
        "target": target,
        "hardware": device if hardware is None else hardware,
        "job_id": job,
        "model_digest": model,
        "threads": threads,
        "imported": imported,
    }
    where = {name: storable(value) for name, value in given.items() if value is not None}
    return Wanted(where, text=query or "", since=seconds_of(since), until=seconds_of(until))


@router.get(
    "/tuning-records",
    summary="List tuning records",
    response_class=Response,
    responses={**problem_responses(400), **FILES},
)
def list_records(
    request: Request,
    here: Here,
    caller: Reader,
    wanted: Annotated[Wanted, Depends(_wanted)],
    format: Annotated[
        Literal["json", "csv", "parquet"] | None, Query(description="Left out: as `Accept` says, else JSON.")
    ] = None,
    accept: Annotated[str | None, Header(description=f"`{CSV}` or `{PARQUET}` for a file.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """The caller's measurements, newest first.

    JSON comes in pages. CSV and Parquet are everything that matches, up to 1,000,000 records (`limit` and `cursor` have
    no part in them); a file of that many goes on with `until` set to its last `created_at`. In both, a variant is JSON
    text. In CSV, a text that a spreadsheet would take for a formula is preceded by an apostrophe.
    """
    form = format or _by_accept(accept)
    if form == "json":
        rows, last = records.page(here.db, caller.owner, wanted, before=decode_place(cursor), limit=limit)
        found = RecordPage(records=[RecordOut.of(row) for row in rows], next_cursor=encode_place(last))
        answer = Response(found.model_dump_json(), media_type="application/json")
        link(request, answer, found.next_cursor)
        return answer
    batches = records.everything(here.db, caller.owner, wanted, most=MOST_IN_A_FILE)
    if form == "csv":
        return _file(csv_file, batches, CSV, "tuning-records.csv")
    if util.find_spec("pyarrow") is None:
        raise BadRequest(
            "this server writes no Parquet: pyarrow is not installed there",
            fix="ask for CSV, or install the server with pip install 'tilewright[server,parquet]'",
        )
    return _file(parquet_file, batches, PARQUET, "tuning-records.parquet")


@router.get("/tuning-records/{record_id}", summary="One tuning record", responses=problem_responses(404))
def get_record(here: Here, caller: Reader, record_id: RecordId) -> RecordDetail:
    """One measurement, with what was measured as text."""
    record = records.get(here.db, caller.owner, record_id)
    return RecordDetail.of_record(record, source.workload_text(here.db, caller.owner, record))


@router.get(
    "/tuning-records/{record_id}/source",
    summary="Source of a tuning record",
    response_class=PlainTextResponse,
    responses={
        **problem_responses(NotFound, SourceUnknown, SourceUnavailable, 500, Busy),
        200: {
            "description": "C, as it stands in an artifact.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": '#include "tw_kernel.h"\n...'}},
        },
    },
)
async def get_source(here: Here, caller: Reader, record_id: RecordId) -> PlainTextResponse:
    """The code that was measured, generated anew from the record and its workload in a sealed process.

    404 `source_unknown` without that text.
    """
    made = await here.pools.preflight.run(source.source, here.db, here.inspector, caller.owner, record_id)
    return PlainTextResponse(made, headers={"X-Content-Type-Options": "nosniff"})


def _file(
    write: Callable[[Batches], Iterator[bytes]], batches: Batches, media_type: str, name: str
) -> StreamingResponse:
    """The first piece is made before the answer begins: a database that is away is a problem document still."""
    pieces = write(batches)
    first = next(pieces)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(itertools.chain((first,), pieces), media_type=media_type, headers=headers)


def _by_accept(accept: str | None) -> str:
    """The first form among the listed types that we have; JSON for anything else."""
    listed = [kind.partition(";")[0].strip().lower() for kind in (accept or "").split(",")]
    return next((BY_TYPE.get(kind, "json") for kind in listed if kind in BY_TYPE or kind == "application/json"), "json")
