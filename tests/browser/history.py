"""A full history of one owner: jobs and records, written past the service."""

from __future__ import annotations

import sqlalchemy as sa

from service.config import Settings
from service.db.engine import Database
from service.db.models import Job, JobState, new_id
from tests.end_to_end.house import House
from tests.service.db.test_records import fill

JOBS = 10_000
RECORDS = 100_000


def write_history(house: House) -> None:
    """JOBS ended jobs of 20 models, and RECORDS measurements."""
    db = Database.of(Settings(data_dir=house.data))
    owner = fill(db, RECORDS, "local")
    states = [JobState.SUCCEEDED] * 8 + [JobState.FAILED, JobState.CANCELLED]
    rows = [
        {
            "id": new_id(),
            "owner_id": owner,
            "artifact_id": new_id(),
            "model_digest": f"{number % 20:064x}",
            "options": {"target": "cpu", "threads": 1},
            "body_hash": "",
            "queue": "cpu",
            "state": states[number % len(states)],
        }
        for number in range(JOBS)
    ]
    with db.write() as session:
        session.execute(sa.insert(Job), rows)
    db.dispose()
