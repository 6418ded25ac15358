"""The whole log of a job: who tried it and when, what happened, and what the processes printed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.contract import PIECE
from service.db import attempts, events
from service.db.engine import Database
from service.db.models import Attempt, Event, Job
from service.jobs.lifecycle.find import required

EVENTS_PER_READ = 500


@dataclass(frozen=True)
class Logbook:
    """A job as it was when it was asked for, the tries at it, and how to read its events."""

    db: Database
    job: Job
    attempts: Sequence[Attempt]

    def events(self) -> Iterator[Event]:
        """The events that the job had, in order; read in batches, so that their number does not matter.

        Pieces of an output are without their elements.
        """
        after = 0
        while after < self.job.event_seq:
            with self.db.read() as session:
                lines = events.after(session, self.job.id, after, EVENTS_PER_READ)
            if not lines:
                return
            yield from (_without_elements(line) for line in lines if line.seq <= self.job.event_seq)
            after = lines[-1].seq


def _without_elements(line: Event) -> Event:
    if line.kind != PIECE:
        return line
    told = {name: value for name, value in line.data.get("data", {}).items() if name != "elements"}
    data = {**line.data, "data": told}
    return Event(job_id=line.job_id, seq=line.seq, kind=line.kind, created_at=line.created_at, data=data)


def open_log(db: Database, owner: uuid.UUID, job_id: uuid.UUID) -> Logbook:
    """The log of one job, whatever its state. Raises `NotFound`."""
    with db.read() as session:
        job = required(session, owner, job_id)
        return Logbook(db, job, attempts.of(session, job_id))
