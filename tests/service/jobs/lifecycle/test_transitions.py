from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from service.db import events, jobs
from service.db.engine import Database, clock
from service.db.models import Job, JobState
from service.jobs.lifecycle import transitions


def test_every_state_has_a_row_and_the_ends_have_no_way_out() -> None:
    assert set(transitions.NEXT) == set(JobState)
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} == transitions.TERMINAL


def test_every_state_can_be_reached_from_queued() -> None:
    reached = {JobState.QUEUED}
    while grown := {following for state in reached for following in transitions.NEXT[state]} - reached:
        reached |= grown
    assert reached == set(JobState)


def _put(db: Database, job_id: uuid.UUID, state: JobState) -> None:
    with db.write() as session:
        assert jobs.advance(session, job_id, state, list(JobState), fence=None, expired=False, values={})


@pytest.mark.parametrize("start", list(JobState))
def test_a_job_moves_exactly_where_the_table_allows(db: Database, queued: Callable[..., Job], start: JobState) -> None:
    for to in JobState:
        job = queued()
        _put(db, job.id, start)
        with db.write() as session:
            before = jobs.locked(session, job.id).event_seq
            assert transitions.move(session, job.id, to) == (to in transitions.NEXT[start])
            row = jobs.locked(session, job.id)
            assert row.state == (to if to in transitions.NEXT[start] else start)
            reported = [event.data["state"] for event in events.after(session, job.id, before, 10)]
            assert reported == ([to] if to in transitions.NEXT[start] else [])


def test_a_move_demands_the_fence(db: Database, queued: Callable[..., Job]) -> None:
    job = queued()
    with db.write() as session:
        transitions.move(session, job.id, JobState.LEASED)
        assert not transitions.move(session, job.id, JobState.RUNNING, fence=7)
        assert jobs.locked(session, job.id).state == JobState.LEASED
        assert transitions.move(session, job.id, JobState.RUNNING, fence=0)


def test_a_fence_opens_nothing_once_the_job_was_taken_away(db: Database, queued: Callable[..., Job]) -> None:
    job = queued()
    with db.write() as session:
        transitions.move(session, job.id, JobState.LEASED)
        transitions.move(session, job.id, JobState.QUEUED)
        assert not transitions.move(session, job.id, JobState.FAILED, fence=0)
        assert jobs.locked(session, job.id).state == JobState.QUEUED


def test_the_end_of_a_job_is_timed_and_frees_its_lease(db: Database, queued: Callable[..., Job]) -> None:
    job = queued()
    with db.write() as session:
        transitions.move(session, job.id, JobState.LEASED, also={"lease_owner": "w", "lease_until": 1.0})
        transitions.move(session, job.id, JobState.FAILED)
        row = jobs.locked(session, job.id)
    assert row.finished_at is not None
    assert row.finished_at >= row.created_at
    assert (row.lease_owner, row.lease_until) == (None, None)


def test_a_move_that_demands_an_expired_lease_spares_one_that_was_just_renewed(
    db: Database, queued: Callable[..., Job]
) -> None:
    job = queued()
    with db.write() as session:
        transitions.move(session, job.id, JobState.LEASED, also={"lease_until": clock() + 60})
        assert not transitions.move(session, job.id, JobState.QUEUED, expired=True)
        assert jobs.locked(session, job.id).state == JobState.LEASED
        jobs.extend(session, job.id, 0, -120.0)
        assert transitions.move(session, job.id, JobState.QUEUED, expired=True)
