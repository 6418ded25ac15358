"""`/jobs/{id}/log`: the whole story of a job in one text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from fastapi.responses import JSONResponse, StreamingResponse

from service.db.models import Attempt, Event
from service.db.plain import dumps
from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.common import event_json, span, utc
from service.http.schemas.ids import JobId
from service.http.schemas.runs import AttemptOut, LogOut
from service.http.state import Here
from service.jobs.lifecycle.job_log import Logbook, open_log
from service.jobs.lifecycle.problems import without_stacks

LOG_EXAMPLE = """job 019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11 is SUCCEEDED

attempt 1 by worker-1/811: 2026-11-21T04:00:00.180000+00:00 to 2026-11-21T04:00:05.310000+00:00, 5.130 s, SUCCEEDED

2026-11-21T04:00:00.000000+00:00      1 state    {"state":"QUEUED","cached":false}
2026-11-21T04:00:00.180000+00:00      2 state    {"state":"LEASED","worker":"worker-1/811"}
"""

TEXT = "text/plain; charset=utf-8"

router = Gated(tags=["jobs"])


@router.get(
    "/jobs/{job_id}/log",
    summary="Log of a job",
    response_class=Response,
    responses={
        **problem_responses(404),
        200: {
            "model": LogOut,
            "description": "Attempts, then events, then what the processes printed.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": LOG_EXAMPLE}},
        },
    },
)
def get_log(
    here: Here,
    caller: Reader,
    job_id: JobId,
    format: Annotated[Literal["text", "json"], Query(description="`text` for people, `json` for programs.")] = "text",
) -> Response:
    """Who tried it and when, every event so far, and the end of what each attempt printed; of a job in any state."""
    book = open_log(here.db, caller.owner, job_id)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if format == "json":
        return JSONResponse(_plain(book), headers=headers)
    return StreamingResponse(_lines(book), media_type=TEXT, headers=headers)


def _plain(book: Logbook) -> dict[str, Any]:
    attempts = [AttemptOut.of(row) for row in book.attempts]
    events = [event_json(event) for event in book.events()]
    shown = LogOut(job=book.job.id, state=book.job.state, attempts=attempts, events=events)
    return shown.model_dump(mode="json")


def _lines(book: Logbook) -> Iterator[str]:
    yield f"job {book.job.id} is {book.job.state}\n\n"
    for attempt in book.attempts:
        yield _attempt_line(attempt)
    yield "\n"
    for event in book.events():
        yield _event_line(event)
    for attempt in book.attempts:
        if attempt.log:
            yield f"\nattempt {attempt.attempt} printed:\n{without_stacks(attempt.log).rstrip()}\n"


def _attempt_line(attempt: Attempt) -> str:
    began = f"attempt {attempt.attempt} by {attempt.worker}: {utc(attempt.started_at).isoformat()}"
    if attempt.ended_at is None:
        return f"{began}, goes on\n"
    seconds = span(attempt.started_at, attempt.ended_at)
    return f"{began} to {utc(attempt.ended_at).isoformat()}, {seconds:.3f} s, {attempt.outcome}\n"


def _event_line(event: Event) -> str:
    return f"{utc(event.created_at).isoformat()} {event.seq:6d} {event.kind:8} {dumps(event.data)}\n"
