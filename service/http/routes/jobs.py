"""`/jobs`: look at jobs, follow them, cancel them."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from anyio import to_thread
from fastapi import BackgroundTasks, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event

from compiler.errors import OptionsError
from service.db.jobs import Wanted
from service.db.models import JobState
from service.db.plain import dumps
from service.errors import BadRequest, DatabaseUnavailable, IdempotencyKeyReused, JobInUse, JobNotFinished, NotFound
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Answering, Gated, direct
from service.http.requests import waiting
from service.http.requests.accepted import IdempotencyKey, accepted
from service.http.requests.request_options import demand_storable
from service.http.requests.waiting import Prefer
from service.http.responses.cursors import Cursor, Following, Limit, decode, encode
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.common import JobKind, JobOut, JobPage, PurgeOut, ReportOut, event_json
from service.http.schemas.ids import JobId
from service.http.schemas.labels import LabelsIn, Saying, Tagged
from service.http.schemas.models import DIGEST
from service.http.schemas.runs import CloneIn
from service.http.schemas.times import Moment, seconds_of
from service.http.state import Here, State
from service.jobs.accounts.access import Caller
from service.jobs.lifecycle import cancel, early_finish, find, labels, share_links
from service.jobs.operations import removal
from service.jobs.submission import clone, priority

TEXT: dict[str, Any] = {"schema": {"type": "string"}}

KEEP_ALIVE = format_sse_event(comment="still here")

EVENT_STREAM_EXAMPLE = (
    'event: state\ndata: {"state":"LEASED","seq":2,"kind":"state","at":"2026-11-21T04:00:00+00:00"}\nid: 2\n\n'
)

EVENT_SCHEMA = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"type": "string", "enum": ["state", "phase", "progress", "notice", "tuning", "tokens", "printed"]},
        "id": {"type": "string", "pattern": "^[1-9][0-9]*$"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

NOT_WAITED: Mapping[str, str] = {}
STATE_HEADERS: dict[str, Any] = {
    "ETag": {"description": "Of what is told of the job.", **TEXT},
    "Retry-After": {"description": "Seconds after which to look again; not there once it has ended.", **TEXT},
}
AS_IT_IS: dict[int | str, dict[str, Any]] = {304: {"description": "The caller knows it as it is (`If-None-Match`)."}}

IfNoneMatch = Annotated[str | None, Header(description="ETags that the caller has.")]

router = Gated(tags=["jobs"])


@router.get("/jobs", summary="List jobs", responses=problem_responses(400))
def list_jobs(
    here: Here,
    caller: Reader,
    following: Following,
    state: Annotated[list[JobState] | None, Query(description="Only these states; may be repeated.")] = None,
    kind: Annotated[list[JobKind] | None, Query(description="Only these kinds; may be repeated.")] = None,
    tag: Tagged = None,
    query: Saying = None,
    model: Annotated[str | None, Query(pattern=DIGEST, description="Only compilations of this model.")] = None,
    queue: Annotated[
        str | None,
        Query(max_length=200, pattern=r"^[^\u0000]*$", description="Only of this queue: a target, or `run:` and one."),
    ] = None,
    batch: Annotated[uuid.UUID | None, Query(description="Only jobs of this batch.")] = None,
    since: Annotated[Moment | None, Query(description="Made then or later; RFC 3339.")] = None,
    until: Annotated[Moment | None, Query(description="Made before; RFC 3339.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """The caller's jobs, newest first; all filters that are given must hold."""
    wanted = Wanted(
        states=state or (),
        kinds=kind or (),
        tags=tag or (),
        text=query or "",
        model=model,
        queue=queue,
        batch=batch,
        since=seconds_of(since),
        until=seconds_of(until),
    )
    rows, last = find.page(here.db, caller.owner, wanted, before=decode(cursor), limit=limit)
    return JobPage(jobs=[JobOut.of(row) for row in rows], next_cursor=following(encode(last)))


def _as_asked(parts: Mapping[str, str], headers: Mapping[bytes, bytes]) -> Answering | None:
    """How to answer `get_job`, but for what waits and what names no job."""
    try:
        job_id = uuid.UUID(parts["job_id"])
    except ValueError:
        return None
    if b"prefer" in headers:
        return None
    known = headers.get(b"if-none-match")
    tags = None if known is None else known.decode("latin-1")

    async def answering(here: State, caller: Caller) -> Response:
        return here.answers.to(await here.board.job(caller.owner, job_id), tags, NOT_WAITED)

    return answering


@router.get(
    "/jobs/{job_id}",
    summary="One job",
    response_model=JobOut,
    responses={**problem_responses(404), **AS_IT_IS, 200: {"headers": {**STATE_HEADERS, **waiting.APPLIED_HEADER}}},
)
@direct(_as_asked)
async def get_job(
    request: Request,
    here: Here,
    caller: Reader,
    job_id: JobId,
    prefer: Prefer = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """State, phase, progress, times and, when it failed, why.

    With `Prefer: wait=N` the answer comes when the job has ended, or after N seconds.
    """
    found, applied = await waiting.look(request, here, waiting.wanted_s(prefer), job_id)
    return here.answers.to(found, if_none_match, applied)


@router.head(
    "/jobs/{job_id}",
    summary="Has this job changed?",
    response_description="It is there.",
    responses={**problem_responses(404), **AS_IT_IS, 200: {"headers": STATE_HEADERS}},
)
async def has_job(here: Here, caller: Reader, job_id: JobId, if_none_match: IfNoneMatch = None) -> Response:
    """The headers of `GET`: its `ETag` changes with whatever that tells, `Retry-After` is there until it has ended."""
    answer = here.answers.to(await here.board.job(caller.owner, job_id), if_none_match, NOT_WAITED)
    return Response(status_code=answer.status_code, headers=dict(answer.headers))


@router.patch("/jobs/{job_id}", summary="Name a job", responses=problem_responses(404))
def label_job(here: Here, caller: Submitter, job_id: JobId, wanted: LabelsIn) -> JobOut:
    """Give it another name, note or tags; what is left out stays, and null takes it away. In any state."""
    return JobOut.of(labels.label_job(here.db, caller.owner, job_id, wanted.changes))


@router.post("/jobs/{job_id}/cancel", summary="Cancel a job", responses=problem_responses(404, 409))
def cancel_job(here: Here, caller: Submitter, job_id: JobId, response: Response) -> JobOut:
    """At once (200) while it waits; while it runs (202) its worker stops it within seconds. Nothing is deleted."""
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
    return JobOut.of(early_finish.finish(here.db, caller.owner, job_id))


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
        beside=wanted.beside,
        limits=here.limits,
    )
    accepted(here, response, background, submitted, f"/jobs/{submitted.job.id}")
    return JobOut.of(submitted.job)


PURGED: dict[int | str, dict[str, Any]] = {
    **problem_responses(404, JobInUse),
    202: {"model": PurgeOut, "description": "It was told to stop; repeat the request after `Retry-After`."},
}


@router.delete("/jobs/{job_id}", summary="Delete a job with all that it made", responses=PURGED)
def delete_job(here: Here, caller: Submitter, job_id: JobId, response: Response) -> PurgeOut:
    """As if it had never been: its log, events and report, its artifact or result, and what it measured.

    A job that waits is cancelled first. One that runs is told to stop: 202, and nothing is deleted yet. An artifact
    that other jobs were answered with stays theirs. The model stays. The bytes leave the disk in about an hour.
    """
    return _purge(here, caller, job_id, response)


@router.post("/jobs/{job_id}/purge", summary="Delete a job by POST", responses=PURGED)
def purge_job(here: Here, caller: Submitter, job_id: JobId, response: Response) -> PurgeOut:
    """The same as `DELETE /jobs/{job_id}`."""
    return _purge(here, caller, job_id, response)


def _purge(here: State, caller: Caller, job_id: uuid.UUID, response: Response) -> PurgeOut:
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
            "`progress`, `notice` or `tuning`; `data` is JSON with `seq`, `kind`, `at` and what the event tells. "
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
    prefer: Annotated[
        str | None, Header(description="`wait=N`: end the stream after N seconds (RFC 7240).", examples=["wait=30"])
    ] = None,
) -> StreamingResponse:
    """The job's event log from the beginning, or from where a broken stream ended, and then live."""
    after = _after(last_event_id)
    await to_thread.run_sync(find.job, here.db, caller.owner, job_id)  # 404 before the stream begins
    return StreamingResponse(
        _stream(here, caller, job_id, after, waiting.seconds_of(prefer) or math.inf),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(here: State, caller: Caller, job_id: uuid.UUID, after: int, within_s: float) -> AsyncIterator[bytes]:
    until = time.monotonic() + within_s
    try:
        async for batch in here.feed.follow(caller.owner, job_id, after, min(here.settings.sse_keepalive_s, within_s)):
            if time.monotonic() >= until:
                return
            if not await _stands(here, caller):
                return
            if not batch:
                yield KEEP_ALIVE
            for event in batch:
                text = dumps(event_json(event))
                yield format_sse_event(event=event.kind, data_str=text, id=str(event.seq))
    except DatabaseUnavailable:
        yield format_sse_event(comment="the database is away: reconnect", retry=2000)
    except NotFound:
        yield format_sse_event(comment="the job was removed with its model")


async def _stands(here: State, caller: Caller) -> bool:
    """Whether the key or the link that a stream was opened with has neither been revoked nor ended meanwhile."""
    if caller.opened:
        return await to_thread.run_sync(share_links.opens, here.db, caller.key)
    return not here.door.is_due(caller) or await to_thread.run_sync(here.door.stands, caller)


def _after(last_event_id: str | None) -> int:
    if last_event_id is None or last_event_id == "":
        return 0
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise BadRequest(
            f"Last-Event-ID {last_event_id!r:.40} is not a number", fix="send the id of the last event seen"
        )
    return int(last_event_id)
