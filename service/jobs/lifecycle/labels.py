"""Call jobs and models otherwise."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from service.db import jobs
from service.db.engine import Database
from service.db.models import Job, Model
from service.jobs.accounts import audit
from service.jobs.lifecycle import find
from service.jobs.storage import models


def label_job(db: Database, owner: uuid.UUID, job_id: uuid.UUID, changes: Mapping[str, Any]) -> Job:
    """The job with another name, note or tags, those that are in `changes`; None takes one away. Raises `NotFound`."""
    with db.write() as session:
        job = find.required(session, owner, job_id, lock=True)
        _change(job, changes)
        audit.note(session, "label", f"/jobs/{job_id}")
        session.flush()
        return jobs.locked(session, job_id)


def label_model(db: Database, owner: uuid.UUID, digest: str, changes: Mapping[str, Any]) -> Model:
    """The same for a model. Raises `NotFound`."""
    with db.write() as session:
        model = models.required(session, owner, digest)
        _change(model, changes)
        audit.note(session, "label", f"/models/{digest}")
        return model


def _change(row: Job | Model, changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        setattr(row, name, value or None)
