"""Errors as RFC 9457 problem documents. This file alone knows which status code an error has."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from compiler import errors as compiler
from compiler.errors import Refusal, TilewrightError
from service import errors
from service.blobs.store import NO_ROOM, no_room
from service.db.plain import storable
from service.http.responses.error_pages import type_of
from service.http.responses.headers import REQUEST
from service.http.responses.problem_samples import SAMPLES
from service.logs import Seldom, logger

STATUS: dict[type[TilewrightError], int] = {
    TilewrightError: 500,
    compiler.CallerError: 422,
    compiler.OptionsError: 422,
    errors.RequestError: 400,
    errors.BadRequest: 400,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.OwnerSuspended: 403,
    errors.QuotaExceeded: 403,
    errors.NotFound: 404,
    errors.BodyTooLarge: 413,
    errors.QueueFull: 429,
    errors.DeviceTimeUsed: 429,
    errors.OwnerExists: 409,
    errors.KeyEnded: 409,
    errors.TooManyAtOnce: 429,
    errors.RateLimited: 429,
    errors.IdempotencyKeyReused: 422,
    errors.InvalidWebhook: 422,
    errors.WrongKind: 422,
    errors.JobFinished: 409,
    errors.JobNotFinished: 409,
    errors.ArtifactNeverMade: 410,
    errors.EncodingUnsupported: 415,
    errors.RangeUnsatisfiable: 416,
    errors.PartTooLarge: 422,
    errors.DigestMismatch: 422,
    errors.WrongOffset: 409,
    errors.ModelInUse: 409,
    errors.JobInUse: 409,
    errors.Removed: 410,
    errors.UnavailableError: 503,
    errors.DatabaseFull: 507,
    errors.StorageUnavailable: 507,
}
"""The nearest class up the tree decides."""

HEADERS: dict[type[TilewrightError], dict[str, str]] = {
    errors.NotAuthenticated: {"WWW-Authenticate": "Bearer"},
    errors.EncodingUnsupported: {"Accept-Encoding": "identity"},
    errors.QueueFull: {"Retry-After": "30"},
    errors.TooManyAtOnce: {"Retry-After": "2"},
    errors.RateLimited: {"Retry-After": "1"},
    errors.Busy: {"Retry-After": "2"},
    errors.JobNotFinished: {"Retry-After": "2"},
    errors.UnavailableError: {"Retry-After": "5"},
}

REPEATED: dict[type[TilewrightError], dict[str, str]] = {
    errors.WrongOffset: {"Upload-Offset": "received"},
    errors.DeviceTimeUsed: {"Retry-After": "retry_after_s"},
    errors.RateLimited: {"Retry-After": "retry_after_s"},
}
"""Headers that repeat one of the error's details."""

QUOTAS: tuple[type[TilewrightError], ...] = (
    errors.NotAllowed,
    errors.OwnerSuspended,
    errors.QuotaExceeded,
    errors.QueueFull,
    errors.DeviceTimeUsed,
)
"""What a route may answer that makes jobs, beside what every route does."""

WITH_CODE = (errors.NotAllowed, errors.QuotaExceeded)
"""Refusals that the audit log tells; keys that are not let in it tells at the door."""

BY_STATUS = {400: "bad_request", 404: "no_such_route", 405: "method_not_allowed"}
"""Codes of what the router itself refuses."""

PROBLEM = "application/problem+json"
PROBLEM_SCHEMA = {"$ref": "#/components/schemas/Problem"}

log = logger(__name__)

_failures = Seldom(10, within_s=10.0)
"""Answers that are alike, of a full disk or a database that is away: a line for each would fill what is full."""


def install(app: FastAPI) -> None:
    """Make the app answer every failure with a problem document."""
    app.add_exception_handler(TilewrightError, answer_to)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _router)
    app.add_exception_handler(OSError, _system)
    app.add_exception_handler(Exception, _unexpected)


def problem_responses(*wanted: int | type[TilewrightError]) -> dict[int | str, dict[str, Any]]:
    """What a route declares for OpenAPI of the errors that it answers with, by status or more exactly by class.

    What every route answers with that asks for a key or has parameters is added in `service.http.openapi`.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for one in wanted:
        sample = next(
            error for error in SAMPLES if (_status(type(error)) == one if isinstance(one, int) else type(error) is one)
        )
        answer = response_to(sample, "/")
        response = responses.setdefault(answer.status_code, {"description": HTTPStatus(answer.status_code).phrase})
        media = response.setdefault("content", {}).setdefault(PROBLEM, {"schema": PROBLEM_SCHEMA, "examples": {}})
        media["examples"][sample.code] = {"value": json.loads(bytes(answer.body))}
        for name in (*HEADERS.get(type(sample), {}), *REPEATED.get(type(sample), {})):
            response.setdefault("headers", {})[name] = {"schema": {"type": "string"}}
    return responses


def _status(kind: type[TilewrightError]) -> int:
    return next(STATUS[one] for one in kind.__mro__ if one in STATUS)


def response_to(error: TilewrightError, path: str) -> JSONResponse:
    """The problem document of an error."""
    said = error.to_json()
    headers = next((HEADERS[kind] for kind in type(error).__mro__ if kind in HEADERS), {})
    repeated = REPEATED.get(type(error), {})
    also = {name: str(error.details[detail]) for name, detail in repeated.items() if detail in error.details}
    return _document(_status(type(error)), said.pop("message"), path, {**headers, **also}, **said)


def _document(status: int, detail: str, path: str, headers: dict[str, str], **said: Any) -> JSONResponse:
    body = {
        "type": type_of(said["code"]),
        "title": said["code"].replace("_", " "),
        "status": status,
        "detail": detail,
        "instance": path,
        **said,
    }
    return JSONResponse(storable(body), status, headers, media_type=PROBLEM)


def answer_to(request: Request, error: Exception) -> JSONResponse:
    """What a request is answered with that broke with a `TilewrightError`; what the operator should know is logged."""
    assert isinstance(error, TilewrightError)
    if isinstance(error, WITH_CODE):
        request.app.state.tilewright.door.refusals.note(request.method.lower(), error.code)
    shown = error
    if error.code == compiler.InternalError.code:
        shown = _ours(request)
        log.error("request broke", path=request.url.path, error=error.message, details=error.details)
    response = response_to(shown, request.url.path)
    if response.status_code >= 500 and shown is error and not isinstance(error, errors.Busy):
        left_out = _failures.passes(error.code)
        if left_out is not None:
            said = {"left_out": left_out} if left_out else {}
            log.error("request failed", path=request.url.path, code=error.code, error=error.message, **said)
    return response


def _ours(request: Request) -> TilewrightError:
    """What a caller is told of a fault of ours: the id by which the operator finds the rest in the log."""
    request_id = request.scope.get(REQUEST, "")
    return compiler.InternalError(
        "the service failed; this is our fault",
        fix=f"try again; if it stays, report it with the request id {request_id}",
        details={"request": request_id},
    )


def _validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    refusals = tuple(
        Refusal(
            reason=f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}",
            fix=f"got {fault.get('input')!r:.80}",
        )
        for fault in error.errors()
    )
    return response_to(
        errors.BadRequest("the request is malformed", fix="mend the fields named in refusals", refusals=refusals),
        request.url.path,
    )


def _router(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = BY_STATUS.get(error.status_code, "http_error")
    fix = "send a body of valid JSON" if error.status_code == 400 else "see /docs for what there is"
    said = {"code": code, "fault": "caller", "fix": fix, "refusals": [], "details": {}}
    return _document(error.status_code, str(error.detail), request.url.path, dict(error.headers or {}), **said)


def _system(request: Request, error: Exception) -> JSONResponse:
    """A file of our own that finds no room is told as what it is, wherever it was written."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return answer_to(request, no_room(error.strerror or str(error)))
    raise error


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    shown = _ours(request)
    log.error("request broke", path=request.url.path, request=shown.details["request"], exc_info=error)
    response = response_to(shown, request.url.path)
    response.headers["X-Request-Id"] = shown.details["request"]  # what adds it elsewhere is broken off
    return response
