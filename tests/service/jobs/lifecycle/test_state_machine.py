"""Any order of what clients, workers, crashes and reconcilers do keeps the promises of a job's life."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from compiler.contract import CompileOptions, Event
from service.blobs.local import LocalBlobs
from service.db import owners
from service.db.engine import Database
from service.db.models import Artifact, Job, JobState, TuningRecord
from service.db.models import Event as EventRow
from service.errors import JobFinished
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.lifecycle import cancel, transitions
from service.jobs.operations import reconcile
from service.jobs.scheduling import lease
from service.jobs.storage import models
from service.jobs.submission.submit import Submission, submit
from tests.servers import Databases


class Silence:
    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        pass

    def check(self) -> None:
        pass


Fresh = Callable[[Path], AbstractContextManager[str]]
"""Makes a fresh, migrated database, in this folder if it is a file; its URL."""


class Life(RuleBasedStateMachine):
    fresh: Fresh
    record: dict[str, object]

    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="life-"))
        self.left_open = ExitStack()
        self.db = Database(self.left_open.enter_context(self.fresh(self.folder)))
        self.blobs = LocalBlobs(self.folder / "blobs")
        with self.db.write() as session:
            self.owner = owners.named(session, "ada")
        self.model = models.keep(self.db, self.owner, self.blobs.put_bytes(b"model")).digest
        self.current: dict[uuid.UUID, lease.Claim] = {}
        self.ended: dict[uuid.UUID, JobState] = {}

    def teardown(self) -> None:
        self.db.dispose()
        self.left_open.close()
        shutil.rmtree(self.folder)

    def state(self, job_id: uuid.UUID) -> JobState:
        with self.db.read() as session:
            return JobState(session.scalars(sa.select(Job.state).where(Job.id == job_id)).one())

    def holds(self, claim: lease.Claim) -> bool:
        return self.current.get(claim.job_id) == claim

    @rule(target=jobs, priority=st.integers(0, 2))
    def submit(self, priority: int) -> uuid.UUID:
        asked = Submission(self.owner, self.model, CompileOptions(), fresh=True, priority=priority)
        return submit(self.db, asked, limits=UNLIMITED).job.id

    @rule(target=claims)
    def claim(self) -> Any:
        claim = lease.claim(self.db, "w", ["cpu"], 3600.0)
        if claim is None:
            return multiple()
        assert claim.job_id not in self.ended
        assert claim.job_id not in self.current, "nobody else may hold it"
        self.current[claim.job_id] = claim
        return claim

    @rule(claim=claims, fraction=st.floats(0, 1), lines=st.integers(0, 3))
    def heartbeat(self, claim: lease.Claim, fraction: float, lines: int) -> None:
        answer = lease.heartbeat(self.db, claim, [Event("progress", "tile", fraction)] * lines)
        assert (answer != "lost") == self.holds(claim)

    def end(self, claim: lease.Claim, written: bool, state: JobState) -> None:
        if self.holds(claim):
            assert written
            del self.current[claim.job_id]
            self.ended[claim.job_id] = state
        else:
            assert not written or self.ended.get(claim.job_id) == state

    @rule(claim=claims, data=st.binary(min_size=1, max_size=3))
    def succeed(self, claim: lease.Claim, data: bytes) -> None:
        stored = self.blobs.put_bytes(data)
        written = lease.succeed(
            self.db, claim, made=stored, report={}, circumstances={}, measured=lease.Measured([self.record])
        )
        self.end(claim, written, JobState.SUCCEEDED)

    @rule(claim=claims)
    def fail(self, claim: lease.Claim) -> None:
        self.end(claim, lease.fail(self.db, claim, {"code": "x"}), JobState.FAILED)

    @rule(claim=consumes(claims))
    def release(self, claim: lease.Claim) -> None:
        held = self.holds(claim)
        written = lease.release(self.db, claim)
        if held:
            assert written
            del self.current[claim.job_id]
            if (state := self.state(claim.job_id)) == JobState.CANCELLED:
                self.ended[claim.job_id] = state

    @rule(job=jobs)
    def ask_to_cancel(self, job: uuid.UUID) -> None:
        if self.ended.get(job) in (JobState.SUCCEEDED, JobState.FAILED):
            with pytest.raises(JobFinished):
                cancel.cancel(self.db, self.owner, job)
        elif cancel.cancel(self.db, self.owner, job).state == JobState.CANCELLED:
            assert job not in self.current
            self.ended[job] = JobState.CANCELLED

    @rule()
    def lose_every_lease(self) -> None:
        with self.db.write() as session:
            session.execute(sa.update(Job).where(Job.lease_until.is_not(None)).values(lease_until=1.0))
        reconcile.reconcile(self.db, Silence())
        for job_id in list(self.current):
            del self.current[job_id]
            if (state := self.state(job_id)) in transitions.TERMINAL:
                self.ended[job_id] = state
            else:
                assert state == JobState.QUEUED

    @invariant()
    def promises_are_kept(self) -> None:
        with self.db.read() as session:
            rows = {row.id: row for row in session.scalars(sa.select(Job))}
            events = session.execute(sa.select(EventRow.job_id, EventRow.seq).order_by(EventRow.seq)).all()
            artifacts = session.scalars(sa.select(Artifact)).all()
            records = session.scalars(sa.select(TuningRecord.job_id)).all()
        for row in rows.values():
            assert (row.state in (JobState.LEASED, JobState.RUNNING)) == (row.id in self.current)
            assert (row.state in transitions.TERMINAL) == (row.id in self.ended)
            assert row.state == self.ended.get(row.id, row.state), "an end is final"
            assert row.lost_leases <= 3
            seqs = [event.seq for event in events if event.job_id == row.id]
            assert seqs == list(range(1, row.event_seq + 1))
        succeeded = {row.artifact_id for row in rows.values() if row.state == JobState.SUCCEEDED}
        assert {artifact.id for artifact in artifacts} == succeeded
        assert sorted(map(str, records)) == sorted(str(artifact.job_id) for artifact in artifacts)


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, migrated: Path) -> Fresh:
    """One for each example."""
    if request.param == "sqlite":
        return lambda folder: nullcontext(f"sqlite:///{shutil.copy(migrated, folder / 't.db')}")
    databases: Databases = request.getfixturevalue("databases")
    return lambda folder: databases.emptied()


@pytest.mark.parametrize("lives", [5, 30])
def test_a_jobs_life_keeps_its_promises(fresh: Fresh, record: dict[str, object], lives: int) -> None:
    kept = type("KeptLife", (Life,), {"fresh": staticmethod(fresh), "record": record})
    run_state_machine_as_test(
        kept,
        settings=settings(
            max_examples=lives, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
