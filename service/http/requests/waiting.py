"""`Prefer: wait=N` (RFC 7240): an answer that comes when jobs have ended, or after N seconds.

Who waits holds a connection as an event stream does, and takes a turn among the owner's streams for it. Where there is
none left the answer comes at once: a preference may be passed over.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Collection, Sequence
from typing import Annotated, Any, cast

from fastapi import Header, Request
from starlette.responses import Response

from service.errors import TooManyAtOnce
from service.http.admission.auth import CALLER
from service.http.admission.limits import Lane
from service.http.admission.turn import TURN, Turn
from service.http.schemas.common import JobOut
from service.http.state import State
from service.jobs.accounts.access import Caller
from service.jobs.lifecycle import transitions
from service.jobs.lifecycle.find import Found

MOST_S = 60
"""The longest wait; a greater one that is asked for becomes this one."""
LOOK_S = 1.0
"""How often it is looked whether who asked is still there."""

WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;[^,]*)?(?=,|$)', re.ASCII | re.IGNORECASE)
APPLIED = "Preference-Applied"

Prefer = Annotated[
    str | None,
    Header(
        description=f"`wait=N`: answer when the job has ended, or after N seconds, at most {MOST_S} (RFC 7240).",
        examples=["wait=30"],
    ),
]
APPLIED_HEADER: dict[str, Any] = {
    APPLIED: {"description": "The wait that was kept to, such as `wait=30`.", "schema": {"type": "string"}}
}


def seconds_of(prefer: str | None) -> int:
    """The seconds that the header asks to wait; 0 for none, and for what it does not say in the form of the RFC."""
    asked = WAIT.search(prefer or "")
    return int(asked[1]) if asked else 0


def wanted_s(prefer: str | None) -> int:
    """The same, for an answer that is held back."""
    return min(seconds_of(prefer), MOST_S)


async def wait(request: Request, here: State, seconds: int, job_ids: Collection[uuid.UUID]) -> dict[str, str]:
    """Until these jobs of the caller have ended, the time is over or the caller has left.

    Returns the headers of the answer: those of a preference that was kept to, or none.
    """
    turn = cast(Turn, request.scope[TURN])
    try:
        await turn.change(Lane.STREAM)
    except TooManyAtOnce:
        return {}
    ends = asyncio.gather(*(here.feed.end(job_id) for job_id in job_ids))
    left = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((ends, left), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (ends, left):
            task.cancel()
        await asyncio.gather(ends, left, return_exceptions=True)
    return {APPLIED: f"wait={seconds}"}


async def look(request: Request, here: State, seconds: int, job_id: uuid.UUID) -> tuple[Found, dict[str, str]]:
    """A job of the caller, after a wait if it has not ended, and the headers of that. Raises `NotFound`."""
    owner = cast(Caller, request.scope[CALLER]).owner
    found = await here.board.job(owner, job_id)
    if seconds == 0 or found.job.state in transitions.TERMINAL:
        return found, {}
    applied = await wait(request, here, seconds, [job_id])
    return await here.board.job(owner, job_id), applied


async def look_at_all(
    request: Request, here: State, seconds: int, job_ids: Sequence[uuid.UUID], response: Response
) -> list[JobOut]:
    """Jobs that were just made, after a wait for all of them; the answer is 200 if all have ended."""
    owner = cast(Caller, request.scope[CALLER]).owner
    response.headers.update(await wait(request, here, seconds, job_ids))
    found = [await here.board.job(owner, job_id) for job_id in job_ids]
    if all(one.job.state in transitions.TERMINAL for one in found):
        response.status_code = 200
    return [JobOut.found(one) for one in found]


async def _left(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(LOOK_S)
