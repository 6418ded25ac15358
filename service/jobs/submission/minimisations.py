"""Accept minimisations: of a model that failed to compile the smallest part that fails in the same way."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from compiler.contract import job_kinds
from compiler.contract.devices import held
from service.db.engine import Database
from service.db.models import JobState
from service.errors import JobNotFinished, WrongKind
from service.jobs.accounts.quotas import Limits
from service.jobs.lifecycle import find
from service.jobs.storage.samples import of_row
from service.jobs.submission.model_changes import ModelChange, change
from service.jobs.submission.submit import Submitted

MAX_SECONDS = 3600.0


@dataclass(frozen=True)
class MinimiseOptions:
    """For how many seconds to search, and the options of the compilation that failed."""

    seconds: float
    compile: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As the job's row holds it."""
        return {"seconds": self.seconds, "compile": self.compile}

    @property
    def held(self) -> str:
        """The device class that the compilation was for."""
        return held(str(self.compile.get("target", "cpu")), self.compile.get("devices", ()))


def minimise(
    db: Database,
    owner: uuid.UUID,
    job_id: uuid.UUID,
    seconds: float,
    *,
    priority: int = 0,
    idempotency_key: str | None = None,
    limits: Limits,
) -> Submitted:
    """Make a job of a failed compilation: its model and samples, with its options.

    Raises `NotFound`, `WrongKind` for what is no compilation that failed, `JobNotFinished` for one that goes on, and
    the errors of `change`.
    """
    source = find.job(db, owner, job_id).job
    if source.kind != job_kinds.COMPILE.name or source.model_digest is None:
        raise WrongKind(
            f"job {job_id} is of kind {source.kind}, which compiles no model",
            fix="name a compilation that failed; list them with GET /jobs?kind=compile&state=FAILED",
        )
    if source.state in (JobState.QUEUED, JobState.LEASED, JobState.RUNNING):
        raise JobNotFinished(f"job {job_id} is {source.state}", fix="wait for its end: only a failure is minimised")
    if source.state != JobState.FAILED:
        raise WrongKind(
            f"job {job_id} ended as {source.state}, so there is no failure to minimise",
            fix="name a compilation that failed; list them with GET /jobs?kind=compile&state=FAILED",
        )
    options = MinimiseOptions(seconds, dict(source.options))
    wanted = ModelChange(
        kind=job_kinds.MINIMISATION.name,
        owner=owner,
        model=source.model_digest,
        options=options,
        queue=options.held,
        samples=of_row(source.samples),
        priority=priority,
        idempotency_key=idempotency_key,
    )
    return change(db, wanted, limits=limits)
