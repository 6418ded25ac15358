"""A report is all that the job made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from service.blobs.store import StoredBlob
from service.db import jobs
from service.db.plain import storable
from service.jobs.scheduling.lease import Claim


def store(
    session: Session,
    claim: Claim,
    report: Mapping[str, Any],
    made: StoredBlob | None,
    circumstances: Mapping[str, Any],
) -> None:
    """Keep the report beside the job."""
    jobs.locked(session, claim.job_id).report = storable(report)
