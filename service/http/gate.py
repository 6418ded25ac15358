"""What a request must pass before anything of its body is read: a key, its scope and rate, the limits of its route.

Every router is a `Gated`, whose routes let nothing through before that; `service.http.admission.limits` has the limits.
What is asked for a thousand times a second is let through by `Ahead`, before the router.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from compiler.errors import TilewrightError
from service.errors import BadRequest, BodyTooLarge, EncodingUnsupported, NotAuthenticated, RateLimited
from service.http.admission import shared_access as shared_routes
from service.http.admission.auth import ANY, CALLER, demanded
from service.http.admission.connections import Connection, connection_of
from service.http.admission.limits import ROUTES, Body, Lane, Terms
from service.http.admission.sessions import carried
from service.http.admission.turn import TURN, Turn
from service.http.openapi import operation_id
from service.http.responses import errors
from service.http.responses.headers import ADDED
from service.http.state import State, state_of
from service.jobs.accounts import audit
from service.jobs.accounts.access import Caller, digest_of
from service.jobs.lifecycle import share_links

Answering = Callable[[State, Caller], Awaitable[Response]]
"""Makes the answer to one request of a caller who was let in. Raises what is answered with a problem document."""
Direct = Callable[[Mapping[str, str], Mapping[bytes, bytes]], Answering | None]
"""Given the parts of the path and the headers: how to answer, or None to leave it to the function of the route."""
DIRECT = "tilewright_direct"
TERMS = "tilewright_terms"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
OF_BODY = (b"content-length", b"transfer-encoding")
NEVER_REMEMBERED = frozenset({"keys", "admin"})
"""Scopes of requests whose key is looked up each time: what these change outlasts the moment a key is remembered."""


def direct(how: Direct) -> Callable[[Endpoint], Endpoint]:
    """Mark a function of a GET route: `Ahead` asks `how` first, and the router and FastAPI have nothing to do then.

    That is most of what an answer costs which is asked for a thousand times a second.
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, DIRECT, how)
        return endpoint

    return mark


def on_terms(terms: Terms) -> Callable[[Endpoint], Endpoint]:
    """Mark a function of a route with its terms, one that `service.http.limits.ROUTES` does not name."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, TERMS, terms)
        return endpoint

    return mark


class GatedRoute(APIRoute):
    """A route that is reached with a body within its limit, and, where it demands a scope, by a caller who has it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.terms: Terms = getattr(self.endpoint, TERMS, None) or ROUTES.get(self.name, Terms())
        self.demands = demanded(self.dependant)
        self.direct: Direct | None = getattr(self.endpoint, DIRECT, None)
        assert self.direct is None or (self.demands is not None and self.terms.lane is Lane.STATUS)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises what the gate refuses with; the app answers it."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # which answers 405
            return
        here = state_of(scope["app"])
        parts = scope["path_params"]
        caller = None if self.demands is None else await _admit(here, scope, self.demands, self.name, parts)
        body = _Counted(receive, self.terms.body, here, Headers(scope=scope))
        if caller is None:
            await super().handle(scope, body.receive, send)
            return
        # Whoever reads through a link waits for others of that link, and its owner for none of them.
        turn = scope[TURN] = Turn(here.turns, caller.owner if caller.opened is None else caller.key)
        await turn.change(self.terms.lane)
        try:
            if self.body_field is not None:
                await body.gather()
            await super().handle(scope, body.receive, send)
        finally:
            turn.end()


class Gated(APIRouter):
    """A router whose routes are gated."""

    def __init__(self, **named: Any) -> None:
        super().__init__(route_class=GatedRoute, generate_unique_id_function=operation_id, **named)


class Ahead:
    """ASGI middleware that answers requests without a body to routes that have a `direct`, before the router."""

    def __init__(self, app: ASGIApp, *, routers: Iterable[APIRouter]) -> None:
        self._app = app
        routes = [route for router in routers for route in router.routes if isinstance(route, GatedRoute)]
        self._routes = [(route, route.direct, route.demands or ANY) for route in routes if route.direct is not None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        for route, how, demands in self._routes:
            if (asked := route.path_regex.match(path)) is None:
                continue
            headers = dict(scope["headers"])
            answering = None if any(name in headers for name in OF_BODY) else how(asked.groupdict(), headers)
            if answering is not None:
                scope["route"] = route  # by which it is counted
                answer = await _answer(scope, demands, answering, route.name, asked.groupdict())
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _answer(scope: Scope, demands: str, answering: Answering, route: str, parts: Mapping[str, str]) -> Response:
    here = state_of(scope["app"])
    try:
        return await answering(here, await _admit(here, scope, demands, route, parts))
    except TilewrightError as error:
        return errors.answer_to(Request(scope), error)


async def _admit(here: State, scope: Scope, demands: str, route: str, parts: Mapping[str, Any]) -> Caller:
    """Who calls, noted in `scope`. Raises `NotAuthenticated`, `RateLimited` and `NotAllowed`.

    For a share link also `NotFound`, where it does not open these parts of the route's path.
    """
    key = carried(scope)
    shared = key.startswith(share_links.PREFIX)
    caller = None if shared or demands in NEVER_REMEMBERED else here.door.remembered(key)
    connection = connection_of(scope)
    if caller is None:
        pool = here.pools.keys if here.door.knows(key) else here.pools.strangers
        caller = await pool.run(_opened if shared else _entered, here, key, connection)
    audit.asked_by(caller.owner, caller.key)
    try:
        scope[ADDED] = here.rates.spend(digest_of(key) if caller.opened else str(caller.owner))
    except RateLimited:
        scope[ADDED] = here.rates.refusal()
        raise
    if caller.opened is not None:
        shared_routes.demand(caller.opened, route, parts)
    if demands != ANY:
        caller.require(demands)
    if connection is not None and caller.opened is None:
        connection.pay()
    scope[CALLER] = caller
    return caller


def _entered(here: State, key: str, connection: Connection | None) -> Caller:
    _demand_open(connection)
    return here.door.enter(key)


def _opened(here: State, token: str, connection: Connection | None) -> Caller:
    _demand_open(connection)
    try:
        return share_links.enter(here.db, here.signer, token)
    except NotAuthenticated as error:
        here.door.refusals.note("open", error.code)
        raise


def _demand_open(connection: Connection | None) -> None:
    """Nobody waits for what is asked of the database for a caller who has left."""
    if connection is not None and connection.gone:
        raise NotAuthenticated("the connection was closed before its key was looked up", fix="ask again")


class _Counted:
    """The body of a request, which is never longer than its limit. Raises `BodyTooLarge` for one that is.

    And `EncodingUnsupported` for one that is compressed: it would be taken for the bytes of a model.
    """

    def __init__(self, receive: Receive, body: Body, here: State, headers: Headers) -> None:
        self._receive = receive
        self._most = body.most(here.settings)
        self._body = body
        self._settings = here.settings
        self._size = 0
        self._gathered: Message | None = None
        if (encoding := headers.get("content-encoding", "identity").strip().lower()) not in ("identity", ""):
            raise EncodingUnsupported(
                f"the body is compressed: Content-Encoding is {encoding!r:.60}",
                fix="send it as it is, without Content-Encoding; a zip of a model, as application/zip, is unpacked",
            )
        announced = headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._most:
            raise self._too_large(f"is announced with {announced} bytes, more than")

    async def receive(self) -> Message:
        """The next part."""
        if self._gathered is not None:
            message, self._gathered = self._gathered, None
            return message
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            raise self._too_large("has more than")
        return message

    async def gather(self) -> None:
        """Read the whole body, so that whoever parses it meets none that is too large. Raises `BadRequest`."""
        parts, more = [], True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("the body broke off", fix="send it again")
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        self._gathered = {"type": "http.request", "body": b"".join(parts), "more_body": False}

    def _too_large(self, why: str) -> BodyTooLarge:
        files = self._body is Body.FILES
        limit = self._settings.max_model_bytes if files else self._most
        return BodyTooLarge(
            f"the body {why} the {limit} bytes that are allowed",
            fix="send a smaller file, or raise TILEWRIGHT_MAX_MODEL_BYTES" if files else "ask for less at once",
            details={"limit_bytes": limit},
        )
