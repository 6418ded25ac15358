from __future__ import annotations

import random
from collections.abc import Callable

import sqlalchemy as sa

from service.db import jobs
from service.db.engine import Database
from service.db.models import Job, JobState


def test_places_in_the_queue_are_those_that_counting_gives(db: Database, queued: Callable[..., Job]) -> None:
    dice = random.Random(3)
    made = [queued(target=dice.choice(["cpu", "cpu:x86-64-v3"]), priority=dice.randint(-1, 1)) for _ in range(24)]
    with db.write() as session:
        for job in made[::5]:
            session.execute(sa.update(Job).where(Job.id == job.id).values(blocked_by=1))
        session.execute(sa.update(Job).where(Job.id == made[7].id).values(state=JobState.SUCCEEDED))
    with db.read() as session:
        rows = jobs.status_rows(session, [job.id for job in made])
        line = sorted(
            (row for row in rows if row.state == JobState.QUEUED),
            key=lambda row: (-row.priority, row.created_at, row.id),
        )
        counted = {
            row.id: sum(other.queue == row.queue and not other.blocked_by for other in line[:place])
            for place, row in enumerate(line)
        }
        assert jobs.positions(session, rows) == counted
        assert jobs.positions(session, rows[:3]) == {row.id: counted[row.id] for row in rows[:3] if row.id in counted}
        assert jobs.positions(session, []) == {}
