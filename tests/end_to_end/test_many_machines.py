"""The services of docker-compose.yml by its settings, on several machines.

These are PostgreSQL, Redis, two APIs, a reconciler, a builder and two device workers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.db.engine import Database
from service.db.models import Artifact, Attempt, Event, Job, JobState, Worker
from tests.end_to_end import models
from tests.end_to_end.fleet import Fleet, running
from tests.end_to_end.house import eventually
from tests.servers import Missing
from tests.service.s3_server import KEY, SECRET, S3Server, running_s3
from tilewright.client import Client
from tilewright.errors import RequestRefused

OPTIONS = {"threads": 1, "tuning_budget_s": 0.2}
JOBS_OF_EACH = 4


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    try:
        with running(tmp_path) as fleet:
            yield fleet
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def db(fleet: Fleet) -> Iterator[Database]:
    """The fleet's database."""
    database = Database(fleet.database_url)
    yield database
    database.dispose()


def alive(db: Database, count: int) -> Mapping[str, list[str]]:
    """The queues of so many workers, by their names."""

    def reported() -> Mapping[str, list[str]] | None:
        with db.read() as session:
            found = {worker.name: worker.queues for worker in session.scalars(sa.select(Worker))}
        return found if len(found) == count else None

    return eventually(reported, f"{count} workers")


def took(db: Database) -> dict[str, str]:
    """The worker of every job; asserts that each was tried once and SUCCEEDED."""
    with db.read() as session:
        tries = session.scalars(sa.select(Attempt)).all()
        jobs = session.scalars(sa.select(Job)).all()
    assert [(tried.attempt, tried.outcome) for tried in tries] == [(1, "SUCCEEDED")] * len(jobs)
    assert [job.state for job in jobs] == [JobState.SUCCEEDED] * len(jobs)
    return {str(tried.job_id): tried.worker for tried in tries}


def test_two_apis_a_builder_and_two_device_workers_share_the_work_of_two_owners(
    fleet: Fleet, db: Database, tmp_path: Path
) -> None:
    first, second = fleet.apis(2)
    fleet.start("reconciler")
    fleet.start("builder")
    ada_key = fleet.run("api", "key", "ada")
    with ExitStack() as open_clients:
        submitting = [open_clients.enter_context(first.client(key)) for key in (fleet.key, ada_key)]
        following = [open_clients.enter_context(second.client(key)) for key in (fleet.key, ada_key)]
        built = builds_without_a_device(submitting[1], following[1], db)
        waiting = submit_to_both(submitting)
        names = set(alive(db, 1))
        for _ in range(2):
            fleet.start("cpu-worker")
        queues = alive(db, 3)
        devices = queues.keys() - names
        assert all("cpu" in queues[name] for name in devices)
        waiting += submit_to_both(submitting)
        for owner, job_id in waiting:
            assert following[owner].wait(job_id).state == "SUCCEEDED"
            with pytest.raises(RequestRefused):
                following[1 - owner].job(job_id)
        workers = took(db)
        assert workers.pop(built) in names, "the builder"
        assert workers.keys() == {job_id for _, job_id in waiting}
        assert set(workers.values()) == devices, "both took part, and the builder in none of these"
        done_once(db, following[0], tmp_path, waiting)


def builds_without_a_device(submitting: Client, following: Client, db: Database) -> str:
    """A job for a profile is done while only a builder is there."""
    (queues,) = alive(db, 1).values()
    assert "cpu:x86-64-v2" in queues
    assert "cpu" not in queues
    job = submitting.compile(models.relu([2, 8]), {**OPTIONS, "target": "cpu:x86-64-v2"}, fresh=True)
    assert following.wait(job.id).state == "SUCCEEDED"
    assert following.manifest(job)["target"] == "cpu:x86-64-v2"
    return job.id


def submit_to_both(clients: list[Client]) -> list[tuple[int, str]]:
    """Half of each owner's jobs, in turn; whose each is."""
    half = range(JOBS_OF_EACH // 2)
    return [
        (owner, client.compile(models.relu([2, 8]), {**OPTIONS, "seed": seed}, fresh=True).id)
        for seed in half
        for owner, client in enumerate(clients)
    ]


def done_once(db: Database, client: Client, folder: Path, jobs: list[tuple[int, str]]) -> None:
    """One artifact for each job and whole; every log without a gap, with one end."""
    with db.read() as session:
        artifacts = session.scalars(sa.select(Artifact)).all()
        events = session.scalars(sa.select(Event).order_by(Event.job_id, Event.seq)).all()
        ends = Counter(str(event.job_id) for event in events if event.data.get("state") == "SUCCEEDED")
        all_jobs = {str(job_id) for job_id in session.scalars(sa.select(Job.id))}
    assert sorted(str(artifact.job_id) for artifact in artifacts) == sorted(all_jobs)
    assert ends == dict.fromkeys(all_jobs, 1)
    for job_id in all_jobs:
        numbers = [event.seq for event in events if str(event.job_id) == job_id]
        assert numbers == list(range(1, len(numbers) + 1))
    mine = next(job_id for owner, job_id in jobs if owner == 0)
    assert [event.seq for event in client.events(mine)] == [
        event.seq for event in events if str(event.job_id) == mine
    ], "the stream of the other API"
    kept = next(artifact for artifact in artifacts if str(artifact.job_id) == mine)
    file = client.download(client.job(mine), folder / "artifact.tw")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == kept.sha256


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def cloud(tmp_path: Path, s3: S3Server) -> Iterator[Fleet]:
    """A fleet whose blobs are in a bucket."""
    place = {
        "BLOB_URL": f"s3://{s3.bucket()}/blobs",
        "BLOB_ENDPOINT": s3.endpoint,
        "BLOB_ACCESS_KEY_ID": KEY,
        "BLOB_SECRET_ACCESS_KEY": SECRET,
    }
    try:
        with running(tmp_path, place) as fleet:
            yield fleet
    except Missing as reason:
        pytest.skip(str(reason))


def test_machines_that_share_no_folder_meet_in_a_bucket(cloud: Fleet, s3: S3Server, tmp_path: Path) -> None:
    (api,) = cloud.apis(1)
    cloud.start("cpu-worker")
    model = models.tiny(models.QUICK)
    with api.client(cloud.key) as client:
        job = client.wait(client.compile(model, OPTIONS, fresh=True).id)
        assert job.state == "SUCCEEDED"
        file = client.download(job, tmp_path / "artifact.tw")
    bucket = cloud.variables["BLOB_URL"].split("/")[2]
    kept = [entry["Size"] for entry in s3.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert sorted(kept) == sorted([len(model), file.stat().st_size])
    assert not (cloud.folder / "blobs").exists()
