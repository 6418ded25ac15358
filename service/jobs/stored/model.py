"""A model that was made of another becomes one of its owner's models, which the report names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import bundle_digest, job_kinds
from service.blobs.store import StoredBlob
from service.db import artifacts, jobs
from service.db.plain import storable
from service.jobs.scheduling.lease import Claim


def store(
    session: Session,
    claim: Claim,
    report: Mapping[str, Any],
    made: StoredBlob | None,
    circumstances: Mapping[str, Any],
) -> None:
    """Keep the model; the report names it as the kind says: `quantized_model`."""
    assert made is not None, "a model is a file"
    digest = bundle_digest(made.sha256, {})
    called = f"{job_kinds.of(claim.kind).made}_model"
    jobs.locked(session, claim.job_id).report = storable({**report, called: digest})
    artifacts.keep_model(session, claim.owner, digest, made.bytes, made.key, [])
