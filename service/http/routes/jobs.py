"""`/jobs`: look at jobs, follow them, cancel them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Annotated

from anyio import to_thread
from fastapi import BackgroundTasks, Header, Query, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Scope

from compiler.errors import OptionsError
from service.db.models import JobKind, JobState
from service.db.plain import dumps
from service.errors import BadRequest, DatabaseUnavailable, IdempotencyKeyReused, JobInUse, JobNotFinished, NotFound
from service.http.accepted import IdempotencyKey, accepted
from service.http.auth import Reader, Submitter
from service.http.cursors import Cursor, Limit, decode, encode
from service.http.errors import QUOTAS, problem_responses
from service.http.gate import Gated, direct
from service.http.ids import JobId
from service.http.run_schemas import CloneIn
from service.http.schemas import JobOut, JobPage, PurgeOut, ReportOut, event_json
from service.http.state import Here, State
from service.http.wishes import demand_storable
from service.jobs import cancel, clone, find, finish, priority, removal
from service.jobs.access import Caller

KEEP_ALIVE = format_sse_event(comment="still here")

EVENT_STREAM_EXAMPLE = (
    'event: state\ndata: {"state":"LEASED","seq":2,"kind":"state","at":"2026-11-21T04:00:00+00:00"}\nid: 2\n\n'
)

EVENT_SCHEMA = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"type": "string", "enum": ["state", "phase", "progress", "notice"]},
        "id": {"type": "string", "pattern": "^[1-9][0-9]*$"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

router = Gated(tags=["jobs"])


@router.get("/jobs", summary="List jobs", responses=problem_responses(400))
def list_jobs(
    here: Here,
    caller: Reader,
    state: Annotated[list[JobState] | None, Query(description="Only these states; may be repeated.")] = None,
    kind: Annotated[list[JobKind] | None, Query(description="Only these kinds; may be repeated.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """The caller's jobs, newest first."""
    before = decode(cursor)
    rows, last = find.page(here.db, caller.owner, states=state or (), kinds=kind or (), before=before, limit=limit)
    return JobPage(jobs=[JobOut.of(row) for row in rows], next_cursor=encode(last))


async def _job(here: State, caller: Caller, job_id: uuid.UUID) -> Response:
    found = await here.board.job(caller.owner, job_id)
    return Response(JobOut.found(found).model_dump_json(), media_type="application/json")


async def _job_of_path(here: State, caller: Caller, scope: Scope) -> Response | None:
    try:
        job_id = uuid.UUID(scope["path_params"]["job_id"])
    except ValueError:
        return None
    return await _job(here, caller, job_id)


@router.get("/jobs/{job_id}", summary="One job", response_model=JobOut, responses=problem_responses(404))
@direct(_job_of_path)
async def get_job(here: Here, caller: Reader, job_id: JobId) -> Response:
    """State, phase, progress, times and, when it failed, why."""
    return await _job(here, caller, job_id)


@router.delete("/jobs/{job_id}", summary="Cancel a job", responses=problem_responses(404, 409))
def cancel_job(here: Here, caller: Submitter, job_id: JobId, response: Response) -> JobOut:
    """At once (200) while it waits; while it runs (202) its worker stops it within seconds."""
    job = cancel.cancel(here.db, caller.owner, job_id)
    if job.state != JobState.CANCELLED:
        response.status_code = 202
    return JobOut.of(job)


@router.post(
    "/jobs/{job_id}/finish",
    status_code=202,
    summary="Keep the best found so far",
    responses=problem_responses(404, 409),
)
def finish_job(here: Here, caller: Submitter, job_id: JobId) -> JobOut:
    """End the measuring of a compilation, within a second, and go on to its artifact.

    Asked of a job that waits, the measuring never begins.

    Asking again changes nothing.
    """
    return JobOut.of(finish.finish(here.db, caller.owner, job_id))


@router.post(
    "/jobs/{job_id}/clone",
    status_code=202,
    summary="Compile the same model again",
    responses=problem_responses(*QUOTAS, 404, OptionsError, IdempotencyKeyReused),
)
def clone_job(
    here: Here,
    caller: Submitter,
    job_id: JobId,
    wanted: CloneIn,
    response: Response,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """A new job for the model of an earlier compilation, with that one's options but for those given here.

    Without a change and without `fresh` it is answered from the cache, if the earlier one succeeded.
    """
    submitted = clone.clone(
        here.db,
        caller.owner,
        job_id,
        demand_storable(wanted.options),
        fresh=wanted.fresh,
        priority=priority.allowed(caller, wanted.priority),
        idempotency_key=idempotency_key,
        limits=here.limits,
    )
    accepted(here, response, background, submitted, f"/jobs/{submitted.job.id}")
    return JobOut.of(submitted.job)


@router.post(
    "/jobs/{job_id}/purge",
    summary="Delete a job with all that it made",
    responses={
        **problem_responses(404, JobInUse),
        202: {"model": PurgeOut, "description": "It was told to stop; repeat the request after `Retry-After`."},
    },
)
def purge_job(here: Here, caller: Submitter, job_id: JobId, response: Response) -> PurgeOut:
    """As if it had never been: its log, events and report, its artifact or result, and what it measured.

    A job that waits is cancelled first. One that runs is told to stop: 202, and nothing is deleted yet. An artifact
    that other jobs were answered with stays theirs. The model stays. The bytes leave the disk in about an hour.
    """
    purged = removal.purge(here.db, caller.owner, job_id)
    if purged.stopping:
        response.status_code = 202
        response.headers["Retry-After"] = "2"
    return PurgeOut.of(purged)


@router.get("/jobs/{job_id}/report", summary="Report of an ended job", responses=problem_responses(404, JobNotFinished))
def get_report(here: Here, caller: Reader, job_id: JobId) -> ReportOut:
    """What was done and how long each phase took; for a failed job the problem."""
    return ReportOut.of(find.finished(here.db, caller.owner, job_id))


@router.get(
    "/jobs/{job_id}/events",
    summary="Follow a job",
    response_class=StreamingResponse,
    responses={
        **problem_responses(404),
        200: {
            "description": "Server-sent events. `id` runs 1, 2, 3, ... without gaps; `event` is `state`, `phase`, "
            "`progress` or `notice`; `data` is JSON with `seq`, `kind`, `at` and what the event tells. "
            "The stream ends after the event that ends the job.",
            "content": {"text/event-stream": {"itemSchema": EVENT_SCHEMA, "example": EVENT_STREAM_EXAMPLE}},
        },
    },
)
async def follow_job(
    here: Here,
    caller: Reader,
    job_id: JobId,
    last_event_id: Annotated[
        str | None, Header(description="Go on after this event; sent by itself on reconnecting.")
    ] = None,
) -> StreamingResponse:
    """The job's event log from the beginning, or from where a broken stream ended, and then live."""
    after = _after(last_event_id)
    await to_thread.run_sync(find.job, here.db, caller.owner, job_id)  # 404 before the stream begins
    return StreamingResponse(
        _stream(here, caller.owner, job_id, after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(here: State, owner: uuid.UUID, job_id: uuid.UUID, after: int) -> AsyncIterator[bytes]:
    try:
        async for batch in here.feed.follow(owner, job_id, after, here.settings.sse_keepalive_s):
            if not batch:
                yield KEEP_ALIVE
            for event in batch:
                text = dumps(event_json(event))
                yield format_sse_event(event=event.kind, data_str=text, id=str(event.seq))
    except DatabaseUnavailable:
        yield format_sse_event(comment="the database is away: reconnect", retry=2000)
    except NotFound:
        yield format_sse_event(comment="the job was removed with its model")


def _after(last_event_id: str | None) -> int:
    if last_event_id is None or last_event_id == "":
        return 0
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise BadRequest(
            f"Last-Event-ID {last_event_id!r:.40} is not a number", fix="send the id of the last event seen"
        )
    return int(last_event_id)
