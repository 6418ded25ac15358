"""Liveness and readiness."""

from __future__ import annotations

from fastapi import Response

from compiler.contract import COMPILER_VERSION
from service.http.gate import Gated
from service.http.schemas.common import Alive, Readiness, VersionOut
from service.http.state import Here

API = "v1"

router = Gated(tags=["operation"])


@router.get("/healthz", summary="Is the process alive?")
async def get_health() -> Alive:
    """Answers as long as the process does."""
    return Alive()


@router.get(
    "/readyz",
    summary="Is everything up?",
    responses={503: {"model": Readiness, "description": "Some check failed; `detail` says what to do."}},
)
async def get_readiness(here: Here, response: Response) -> Readiness:
    """Database, broker, blobs and at least one live worker, each tried a moment ago and listed."""
    readiness = Readiness.of(await here.checks.get())
    response.status_code = 200 if readiness.ready else 503
    return readiness


@router.get("/version", summary="Which version answers?")
async def get_version() -> VersionOut:
    """The version of the service and of the compiler that its cache answers for, and of this API."""
    return VersionOut(version=COMPILER_VERSION, api=API)
