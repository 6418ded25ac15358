"""`/session`: signing in to the page, and out of it."""

from __future__ import annotations

from fastapi import Request, Response

from service.errors import NotAllowed, QuotaExceeded
from service.http.admission.auth import AnyCaller
from service.http.admission.sessions import session_of, set_cookie
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.sessions import SessionLinkOut, SessionOut
from service.http.state import Here
from service.jobs.accounts import sessions

router = Gated(tags=["keys"])
PRIVATE = {"Cache-Control": "no-store"}


@router.post("/session", status_code=201, summary="Sign in to the page", responses=problem_responses(QuotaExceeded))
def begin_session(here: Here, caller: AnyCaller, request: Request, response: Response) -> SessionOut:
    """A session in a cookie that no script can read, for an API key or, once, for the token of a link.

    It allows what the key allows, ends with it, or after a week. The cookie counts only for requests of the page.
    """
    made = sessions.begin(here.db, caller, most=here.settings.max_keys_per_owner)
    response.headers.update({**PRIVATE, "Set-Cookie": set_cookie(request.scope, made.text)})
    return SessionOut.of(made)


@router.delete(
    "/session",
    status_code=204,
    summary="Sign out of the page",
    response_description="Nobody is signed in by this cookie any more.",
)
def end_session(here: Here, caller: AnyCaller, request: Request) -> Response:
    """The session of the cookie is revoked, within two seconds, and the cookie forgotten; without one nothing is."""
    sessions.end(here.db, caller, session_of(request.headers))
    return Response(status_code=204, headers={**PRIVATE, "Set-Cookie": set_cookie(request.scope, "")})


@router.post(
    "/session/links",
    status_code=201,
    summary="Make a link to the page",
    responses=problem_responses(NotAllowed, QuotaExceeded),
)
def make_session_link(here: Here, caller: AnyCaller, response: Response) -> SessionLinkOut:
    """A link that opens the page signed in, for whoever opens it first within a day. A key has one that is not used."""
    response.headers.update(PRIVATE)
    return SessionLinkOut.of(sessions.invite(here.db, caller, most=here.settings.max_keys_per_owner))
