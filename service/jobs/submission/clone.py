"""Compile a model of an earlier job again, with some of its options changed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from compiler.contract import CompileOptions, job_kinds
from service.db.engine import Database
from service.errors import WrongKind
from service.jobs.accounts.quotas import Limits
from service.jobs.lifecycle import find
from service.jobs.storage.samples import of_row
from service.jobs.submission.job_terms import NOTHING, Beside
from service.jobs.submission.submit import Submission, Submitted, submit


def clone(
    db: Database,
    owner: uuid.UUID,
    job_id: uuid.UUID,
    overrides: Mapping[str, Any],
    *,
    fresh: bool = False,
    priority: int = 0,
    idempotency_key: str | None = None,
    beside: Beside = NOTHING,
    limits: Limits,
) -> Submitted:
    """Submit the model and the samples of a compilation with its options, of which `overrides` replaces some as wholes.

    Raises `NotFound`, `WrongKind` for what is no compilation, `OptionsError`, and the errors of `submit`.
    """
    source = find.job(db, owner, job_id).job
    if source.kind != job_kinds.COMPILE.name or source.model_digest is None:
        raise WrongKind(
            f"job {job_id} is of kind {source.kind}, which compiles no model",
            fix="clone a compilation; list them with GET /jobs?kind=compile",
        )
    submission = Submission(
        owner=owner,
        model=source.model_digest,
        options=CompileOptions.from_json({**source.options, **overrides}),
        fresh=fresh,
        idempotency_key=idempotency_key,
        priority=priority,
        cloned_from=source.id,
        samples=of_row(source.samples),
        beside=beside,
    )
    return submit(db, submission, limits=limits)
