"""How much of a queue each owner has had: who has had least goes first.

Start-time fair queueing (Goyal, Vin and Cheng 1996, section 2) with device seconds as the virtual time: an owner who
was away begins where the least served of those present is, so that absence saves nothing up.
"""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.insert import add_up
from service.db.models import Job, JobState, Share

ADVANCE_S = 1.0
"""What a claim costs at once, so that owners take turns before the first job has ended."""

PRESENT = (JobState.QUEUED, JobState.LEASED, JobState.RUNNING)


def charge(session: Session, queue: str, owner_id: uuid.UUID, seconds: float) -> None:
    """Note that the owner had the device for this long."""
    add_up(session, Share, "used_s", seconds, queue=queue, owner_id=owner_id)


def arrive(session: Session, queue: str, owner_id: uuid.UUID) -> None:
    """An owner without jobs in the queue is about to add one: level with the least served of those present."""
    present = sa.select(Job.owner_id).where(Job.queue == queue, Job.state.in_(PRESENT))
    if session.scalar(present.where(Job.owner_id == owner_id).limit(1)) is not None:
        return
    least = sa.select(sa.func.min(Share.used_s)).where(Share.queue == queue, Share.owner_id.in_(present))
    floor = session.scalar(least)
    had = session.get(Share, (queue, owner_id))
    if floor is not None and (had is None or had.used_s < floor):
        charge(session, queue, owner_id, floor - (had.used_s if had else 0.0))
