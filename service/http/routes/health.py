"""Liveness, readiness, and who works."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.http.auth import Reader
from service.http.errors import problem_responses
from service.http.schemas import Readiness, WorkerList, WorkerOut
from service.http.state import Here
from service.jobs import health

router = APIRouter(tags=["operation"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> dict[str, str]:
    """Answers as long as the process does."""
    return {"status": "alive"}


@router.get(
    "/readyz",
    summary="Is everything up?",
    responses={503: {"model": Readiness, "description": "Some check failed; `detail` says what to do."}},
)
def readyz(here: Here, response: Response) -> Readiness:
    """Database, broker, blobs and at least one live worker, each tried now and listed."""
    readiness = Readiness.of(health.checks(here.db, here.ring, here.blobs, here.settings.worker_alive_s))
    response.status_code = 200 if readiness.ready else 503
    return readiness


@router.get("/workers", summary="List live workers", responses=problem_responses())
def list_workers(here: Here, caller: Reader) -> WorkerList:
    """Who is alive, on what hardware, and whether it is busy."""
    rows = health.alive(here.db, here.settings.worker_alive_s)
    return WorkerList(workers=[WorkerOut.of(row) for row in rows])
