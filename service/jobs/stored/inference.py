"""An inference leaves its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from service.blobs.store import StoredBlob
from service.db import results
from service.db.plain import storable
from service.jobs.scheduling.lease import Claim


def store(
    session: Session,
    claim: Claim,
    report: Mapping[str, Any],
    made: StoredBlob | None,
    circumstances: Mapping[str, Any],
) -> None:
    """Add the outputs to the inputs."""
    assert made is not None, "outputs are a file"
    results.end_inference(session, claim.job_id, made.key, made.bytes, made.sha256, storable(report))
