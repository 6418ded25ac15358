"""`/targets`, `/operators`, `/workers`: what this installation can do, and who is there to do it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.capabilities import OperatorList, OperatorOut, TargetList, TargetOut
from service.http.schemas.common import WorkerList, WorkerOut
from service.http.state import Here
from service.jobs.operations import health
from service.jobs.scheduling import capabilities

router = Gated(tags=["capabilities"])


@router.get("/targets", summary="List targets")
def list_targets(here: Here, caller: Reader) -> TargetList:
    """The device classes that can be compiled for: what they are, which live workers serve them, and how much waits."""
    known = capabilities.targets(here.db, here.settings.worker_alive_s)
    targets = [TargetOut.of(target) for target in known.targets]
    return TargetList(targets=targets, compiler=known.compiler, notice=known.notice or None)


@router.get("/operators", summary="List operators", responses=problem_responses(400))
def list_operators(
    here: Here,
    caller: Reader,
    query: Annotated[str, Query(max_length=100, description="Only names that hold this, in any case.")] = "",
) -> OperatorList:
    """The ONNX operators that the workers' compiler takes, with their opsets and limits."""
    known = capabilities.operators(here.db, query, here.settings.worker_alive_s)
    operators = [OperatorOut.of(entry) for entry in known.entries]
    return OperatorList(operators=operators, compiler=known.compiler, notice=known.notice or None)


@router.get("/workers", summary="List live workers")
def list_workers(here: Here, caller: Reader) -> WorkerList:
    """Who is alive, on what hardware, and whether it is busy."""
    rows = health.alive(here.db, here.settings.worker_alive_s)
    return WorkerList(workers=[WorkerOut.of(row) for row in rows])
