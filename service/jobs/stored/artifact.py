"""A compilation leaves an artifact, its receipt, and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import PHASES
from service.blobs.store import StoredBlob
from service.db import artifacts, jobs, totals
from service.db.models import Artifact
from service.jobs.scheduling.lease import Claim


def store(
    session: Session,
    claim: Claim,
    report: Mapping[str, Any],
    made: StoredBlob | None,
    circumstances: Mapping[str, Any],
) -> None:
    """Insert the artifact; the one that was made before measuring goes."""
    row = jobs.locked(session, claim.job_id)
    assert made is not None, "an artifact is a file"
    assert row.artifact_id is not None, "a compilation names its artifact from the start"
    phase_seconds = _phase_seconds(report.get("phase_seconds"))
    row.report = {
        **report,
        "model_digest": claim.model_digest,
        "artifact_digest": made.sha256,
        "artifact_bytes": made.bytes,
        "phase_seconds": phase_seconds,
    }
    receipt = {
        "report": row.report,
        "job": str(claim.job_id),
        "attempt": claim.attempt,
        "fence": claim.fence,
        "model_digest": claim.model_digest,
        "options": claim.options,
        **circumstances,
    }
    artifacts.add(
        session,
        Artifact(
            id=row.artifact_id,
            owner_id=row.owner_id,
            job_id=row.id,
            sha256=made.sha256,
            bytes=made.bytes,
            blob_key=made.key,
            receipt=receipt,
        ),
    )
    artifacts.drop_partial(session, claim.job_id)
    for phase, seconds in phase_seconds.items():
        totals.count(session, "phase_seconds", seconds, phase=phase)
        totals.count(session, "phases", phase=phase)


def _phase_seconds(claimed: object) -> dict[str, float]:
    """What the child says of its phases, as far as it is that: these become sums that all jobs share."""
    seconds = claimed if isinstance(claimed, Mapping) else {}
    return {
        phase: float(seconds[phase])
        for phase in PHASES
        if isinstance(seconds.get(phase), int | float) and math.isfinite(seconds[phase]) and seconds[phase] >= 0
    }
