from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compiler.contract import BenchmarkOptions
from service.blobs.local import LocalBlobs
from service.db import jobs, owners, results
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import ArtifactNeverMade, IdempotencyKeyReused, NotFound
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.operations.reconcile import reconcile
from service.jobs.scheduling import lease
from service.jobs.submission import runs

Make = Callable[..., Job]
Take = Callable[..., lease.Claim]


@pytest.fixture
def bench(db: Database, owner: uuid.UUID) -> Callable[..., Job]:
    """Queues a benchmark of these artifacts."""

    def ask(*artifacts: uuid.UUID | None, **more: Any) -> Job:
        ids = [id for id in artifacts if id is not None]
        return runs.benchmark(db, owner, ids, BenchmarkOptions(), limits=UNLIMITED, **more).job

    return ask


def now(db: Database, job: Job) -> Job:
    with db.write() as session:
        return jobs.locked(session, job.id)


def claim(db: Database, queue: str = "run:cpu") -> lease.Claim | None:
    return lease.claim(db, "w", [queue], 60.0)


def test_a_benchmark_of_what_is_made_is_claimed_with_its_artifacts(
    db: Database, queued: Make, finish: Callable[..., lease.Claim], bench: Callable[..., Job]
) -> None:
    first, second = queued(b"1"), queued(b"2")
    finish(b"one")
    finish(b"two")
    job = bench(second.artifact_id, first.artifact_id)
    assert (job.kind, job.queue, job.blocked_by) == ("benchmark", "run:cpu", 0)
    taken = claim(db)
    assert taken is not None
    assert [input.name for input in taken.inputs] == [str(second.artifact_id), str(first.artifact_id)]
    assert lease.succeed(db, taken, {"rounds": 5})
    assert now(db, job).state == JobState.SUCCEEDED
    with db.read() as session:
        found = results.benchmark(session, job.id)
    assert found is not None
    assert found.report == {"rounds": 5}


def test_a_benchmark_waits_for_artifacts_in_the_making(
    db: Database, queued: Make, finish: Callable[..., lease.Claim], bench: Callable[..., Job], ring: Any
) -> None:
    compiles = [queued(b"1"), queued(b"2")]
    job = bench(*(compiled.artifact_id for compiled in compiles))
    assert job.blocked_by == 2
    assert claim(db) is None
    finish()
    assert claim(db) is None
    assert "run:cpu" not in (reconcile(db, ring), ring.rung)[1], "nobody is woken for what is blocked"
    finish()
    reconcile(db, ring)
    assert "run:cpu" in ring.rung
    assert claim(db) is not None


@pytest.mark.parametrize("end", ["fail", "cancelled"])
def test_a_benchmark_of_what_is_never_made_fails_with_the_reason(
    db: Database, queued: Make, claimed: Take, bench: Callable[..., Job], end: str
) -> None:
    compiled = queued()
    job = bench(compiled.artifact_id)
    taken = claimed()
    assert lease.fail(db, taken, {"code": "x"}) if end == "fail" else lease.cancelled(db, taken)
    row = now(db, job)
    assert row.state == JobState.FAILED
    assert row.problem is not None
    assert row.problem["code"] == "artifact_never_made"
    assert str(compiled.id) in row.problem["message"]


def test_what_was_never_promised_and_what_failed_before_are_refused(
    db: Database, queued: Make, claimed: Take, bench: Callable[..., Job]
) -> None:
    with pytest.raises(NotFound):
        bench(uuid.uuid4())
    compiled = queued()
    lease.fail(db, claimed(), {"code": "x"})
    with pytest.raises(ArtifactNeverMade):
        bench(compiled.artifact_id)


def test_artifacts_of_others_do_not_exist(db: Database, queued: Make, finish: Callable[..., lease.Claim]) -> None:
    compiled = queued()
    finish()
    assert compiled.artifact_id is not None
    with db.write() as session:
        stranger = owners.named(session, "eve")
    with pytest.raises(NotFound):
        runs.benchmark(db, stranger, [compiled.artifact_id], BenchmarkOptions(), limits=UNLIMITED)


def test_an_idempotency_key_holds_for_all_kinds_together(
    queued: Make, finish: Callable[..., lease.Claim], bench: Callable[..., Job]
) -> None:
    first, second = queued(b"1"), queued(b"2")
    finish()
    finish()
    job = bench(first.artifact_id, idempotency_key="k")
    assert bench(first.artifact_id, idempotency_key="k").id == job.id
    with pytest.raises(IdempotencyKeyReused):
        bench(second.artifact_id, idempotency_key="k")


def test_an_inference_carries_its_inputs_and_keeps_its_outputs(
    db: Database, owner: uuid.UUID, blobs: LocalBlobs, queued: Make, finish: Callable[..., lease.Claim]
) -> None:
    compiled = queued()
    finish()
    assert compiled.artifact_id is not None
    asked = runs.infer(db, owner, compiled.artifact_id, blobs.put_bytes(b"npz"), threads=1, limits=UNLIMITED)
    taken = claim(db)
    assert taken is not None
    assert (taken.kind, taken.options) == ("inference", {"threads": 1})
    assert [input.name for input in taken.inputs] == [str(compiled.artifact_id), "inputs"]
    assert blobs.path(taken.inputs[1].key).read_bytes() == b"npz"
    assert lease.succeed(db, taken, made=blobs.put_bytes(b"out"), report={"seconds": 0.1})
    with db.read() as session:
        found = results.inference(session, asked.job.id)
    assert found is not None
    assert (found.output_bytes, found.report) == (3, {"seconds": 0.1})


@pytest.mark.parametrize(
    ("targets", "queue"),
    [
        (["cpu"], "run:cpu"),
        (["cpu", "cpu:x86-64-v3"], "run:cpu:x86-64-v3"),
        (["cpu:x86-64-v4", "cpu"], "run:cpu:x86-64-v4"),
    ],
)
def test_the_most_particular_target_names_the_queue(targets: list[str], queue: str) -> None:
    assert runs.queue_of(targets) == queue
