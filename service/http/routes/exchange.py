"""Export and import of tuning records."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

from anyio import to_thread
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from service.errors import BadRequest, BodyTooLarge
from service.http.admission.auth import Administrator
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.records import ImportOut
from service.http.state import Here
from service.jobs.tuning import exchange
from service.jobs.tuning.exchange import BATCH, MAX_LINE_BYTES

NDJSON = "application/x-ndjson"

BATCH_BYTES = 8 << 20
"""Of lines that are in memory before they are kept, however few."""

EXPORT_EXAMPLE = """{"format":"tilewright-records","version":1,"compiler":"0.1.0"}
{"type":"workload","workload":"1f0c9a52be7d4e83a6b1c0d2","text":"..."}
{"type":"record","kind":"kernel","workload":"1f0c9a52be7d4e83a6b1c0d2","seconds":0.000213,"created_at":1795233603.0}
"""

LINES: dict[str, Any] = {NDJSON: {"schema": {"type": "string"}, "example": EXPORT_EXAMPLE}}

router = Gated(tags=["tuning records"])


@router.get(
    "/tuning-records/export",
    summary="Export tuning records",
    response_class=Response,
    responses={200: {"description": "JSON lines.", "content": LINES}},
)
def export_records(here: Here, caller: Administrator) -> StreamingResponse:
    """Every workload and record of the caller, to be imported elsewhere.

    JSON lines, of which the first names format and version.

    Needs the scope `admin`. Nothing in it describes models or jobs.
    """
    pieces = exchange.export(here.db, caller.owner)
    whole = itertools.chain((next(pieces),), pieces)  # a database that is away is a problem document still
    headers = {
        "Content-Disposition": 'attachment; filename="tuning-records.jsonl"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(whole, media_type=NDJSON, headers=headers)


@router.post(
    "/tuning-records/import",
    summary="Import tuning records",
    response_model=ImportOut,
    responses=problem_responses(413),
    openapi_extra={"requestBody": {"required": True, "content": LINES}},
)
async def import_records(request: Request, here: Here, caller: Administrator) -> ImportOut:
    """Take in what an export wrote. Needs the scope `admin`.

    Each record is checked as a worker's would be; lines that fail are refused and reported, the others are taken. What
    is there already is passed over, so that an import that broke off can be repeated: lines are kept in batches of
    1,000, each as a whole or not at all. Imported records are used by later compilations on the same hardware; one that
    is wrong can make a model slow, never wrong.
    """
    work = exchange.Import(here.db, caller.owner)
    limit = here.settings.max_model_bytes
    try:
        async for lines in _batches(request, limit):
            await to_thread.run_sync(work.take, lines)
    except ClientDisconnect:
        raise BadRequest("the body broke off", fix="send it again: records that exist already are skipped") from None
    except (BadRequest, BodyTooLarge) as error:
        error.details = {**error.details, "done": ImportOut.of(work.totals).model_dump()}
        raise
    if work.totals.lines == 0:
        raise BadRequest("the body is empty", fix="send the answer of GET /tuning-records/export")
    return ImportOut.of(work.totals)


async def _batches(request: Request, limit: int) -> AsyncIterator[list[bytes]]:
    """The lines of the body, some at a time. Raises `BodyTooLarge`, also for a line that does not end."""
    lines: list[bytes] = []
    rest = b""
    size = held = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(
                f"the body is larger than {limit} bytes",
                fix="send it in several files, each with the first line, or raise TILEWRIGHT_MAX_MODEL_BYTES",
                details={"limit_bytes": limit},
            )
        *whole, rest = (rest + chunk).split(b"\n")
        lines += whole
        if len(rest) > MAX_LINE_BYTES:
            raise BodyTooLarge(
                f"a line is longer than {MAX_LINE_BYTES} bytes", fix="send the file of an export, unchanged"
            )
        held += sum(map(len, whole))
        if len(lines) >= BATCH or held >= BATCH_BYTES:
            for batch in _cut(lines):
                yield batch
            lines, held = [], 0
    for batch in _cut([*lines, rest] if rest else lines):
        yield batch


def _cut(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Batches of at most `BATCH`."""
    for at in range(0, len(lines), BATCH):
        yield lines[at : at + BATCH]
