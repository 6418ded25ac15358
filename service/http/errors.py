"""Errors as RFC 9457 problem documents. This file alone knows which status code an error has."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from compiler import errors as compiler
from compiler.errors import Refusal, TilewrightError
from service import errors
from service.db.plain import storable
from service.http.schemas import Problem
from service.logs import logger

STATUS: dict[type[TilewrightError], int] = {
    TilewrightError: 500,
    compiler.CallerError: 422,
    compiler.OptionsError: 422,
    errors.RequestError: 400,
    errors.BadRequest: 400,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.BodyTooLarge: 413,
    errors.QueueFull: 429,
    errors.IdempotencyKeyReused: 422,
    errors.JobFinished: 409,
    errors.JobNotFinished: 409,
    errors.ArtifactNeverMade: 410,
    errors.UnavailableError: 503,
    errors.StorageUnavailable: 507,
}
"""The nearest class up the tree decides."""

HEADERS: dict[type[TilewrightError], dict[str, str]] = {
    errors.NotAuthenticated: {"WWW-Authenticate": "Bearer"},
    errors.QueueFull: {"Retry-After": "30"},
    errors.JobNotFinished: {"Retry-After": "2"},
    errors.UnavailableError: {"Retry-After": "5"},
}

BY_STATUS = {404: "no_such_route", 405: "method_not_allowed"}
"""Codes of what the router itself refuses."""

log = logger(__name__)


def install(app: FastAPI) -> None:
    """Make the app answer every failure with a problem document."""
    app.add_exception_handler(TilewrightError, _tilewright)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _router)
    app.add_exception_handler(Exception, _unexpected)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route declares for OpenAPI of the errors it may answer with, beside 401, 403 and 503."""
    described = {"model": Problem, "content": {"application/problem+json": {}}}
    return {status: {**described, "description": HTTPStatus(status).phrase} for status in (*statuses, 401, 403, 503)}


def response_to(error: TilewrightError, path: str) -> JSONResponse:
    """The problem document of an error."""
    tree = [kind for kind in type(error).__mro__ if kind in STATUS]
    said = error.to_json()
    headers = next((HEADERS[kind] for kind in type(error).__mro__ if kind in HEADERS), {})
    return _document(STATUS[tree[0]], said.pop("message"), path, headers, **said)


def _document(status: int, detail: str, path: str, headers: dict[str, str], **said: Any) -> JSONResponse:
    body = {
        "type": f"urn:tilewright:problem:{said['code']}",
        "title": said["code"].replace("_", " "),
        "status": status,
        "detail": detail,
        "instance": path,
        **said,
    }
    return JSONResponse(storable(body), status, headers, media_type="application/problem+json")


def _tilewright(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TilewrightError)
    response = response_to(error, request.url.path)
    if response.status_code >= 500:
        log.error("request failed", path=request.url.path, code=error.code, error=error.message)
    return response


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
    said = {"code": code, "fault": "caller", "fix": "see /docs for what there is", "refusals": [], "details": {}}
    return _document(error.status_code, str(error.detail), request.url.path, dict(error.headers or {}), **said)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("request broke", path=request.url.path, exc_info=error)
    return response_to(
        compiler.InternalError("the service failed; this is our fault", fix="retry, and report it if it stays"),
        request.url.path,
    )
