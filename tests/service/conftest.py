"""A migrated database, blobs, a doorbell that records, and a client that holds a key."""

from __future__ import annotations

import contextlib
import io
import shutil
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from compiler.contract import CompileOptions
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import owners
from service.db.engine import Database
from service.db.models import Job
from service.errors import NotReady
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.inspection.inspector import Inspector
from service.jobs.scheduling import lease
from service.jobs.storage import models
from service.jobs.submission.submit import Submission, submit
from tests.service.s3_server import S3Server, running_s3

HARDWARE = {"cpu": "test"}


@dataclass
class RecordingRing:
    """A doorbell that notes who was rung, or is broken."""

    rung: list[str] = field(default_factory=list)
    jobs: list[uuid.UUID | None] = field(default_factory=list)
    broken: bool = False
    heard: Callable[[str], None] = field(default=lambda queue: None)

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        if self.broken:
            raise ConnectionRefusedError("no broker")
        self.rung.append(queue)
        self.jobs.append(job)
        self.heard(queue)

    def check(self) -> None:
        if self.broken:
            raise NotReady("no broker")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3-compatible store for all tests of this process; each takes a bucket of its own."""
    with running_s3() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, migrated: Path) -> str:
    """A fresh, migrated database; `any_database` says which tests need only one kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    shutil.copy(migrated, tmp_path / "tilewright.db")
    return f"sqlite:///{tmp_path / 'tilewright.db'}"


@pytest.fixture
def settings(tmp_path: Path, url: str) -> Settings:
    """Settings with small limits and no waiting."""
    return Settings(
        data_dir=tmp_path,
        database_url=url,
        max_model_bytes=100_000,
        max_queued_per_owner=5,
        reconcile_every_s=3600.0,
        sse_keepalive_s=0.2,
        probes_stand_s=0.0,
        events_poll_s=0.01,
    )


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.dispose()


@pytest.fixture
def blobs(settings: Settings) -> LocalBlobs:
    return LocalBlobs(settings.blob_root)


@pytest.fixture
def ring() -> RecordingRing:
    return RecordingRing()


@pytest.fixture
def owner(db: Database) -> uuid.UUID:
    with db.write() as session:
        return owners.named(session, "ada")


@pytest.fixture
def queued(db: Database, blobs: LocalBlobs, owner: uuid.UUID) -> Callable[..., Job]:
    """Makes a queued job; its model's bytes, options and more may be given."""

    def make(model: bytes = b"model", *, priority: int = 0, fresh: bool = True, **options: object) -> Job:
        submission = Submission(
            owner=owner,
            model=models.keep(db, owner, blobs.put_bytes(model)).digest,
            options=CompileOptions.from_json(options),
            fresh=fresh,
            priority=priority,
        )
        return submit(db, submission, limits=UNLIMITED).job

    return make


@pytest.fixture
def claimed(db: Database) -> Callable[..., lease.Claim]:
    """Claims the best job of the queue `cpu`, which must exist."""

    def take(worker: str = "w1", lease_s: float = 60.0) -> lease.Claim:
        claim = lease.claim(db, worker, ["cpu"], lease_s)
        assert claim is not None
        return claim

    return take


@pytest.fixture
def expire(db: Database) -> Callable[[lease.Claim], None]:
    """Puts the end of a lease into the past."""

    def put(claim: lease.Claim) -> None:
        with db.write() as session:
            session.execute(sa.update(Job).where(Job.id == claim.job_id).values(lease_until=1.0))

    return put


@pytest.fixture
def record() -> dict[str, object]:
    """A tuning record as a worker writes it."""
    return {
        "kind": "kernel",
        "workload": "b7c4f1",
        "operator": "Conv",
        "description": "Conv 1x64x56x56, 3x3",
        "target": "cpu:x86-64-v4",
        "hardware": "hw-1",
        "variant": {"algorithm": "direct", "tile": [14, 32]},
        "threads": 4,
        "seconds": 2e-4,
        "p10": 1.9e-4,
        "p90": 2.3e-4,
        "samples": 31,
        "compiler": "0.1.0",
    }


@pytest.fixture
def finish(db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]) -> Callable[..., lease.Claim]:
    """Brings the best queued job to SUCCEEDED with these bytes as its artifact."""

    def end(data: bytes = b"artifact", records: tuple[dict[str, object], ...] = ()) -> lease.Claim:
        claim = claimed()
        stored = blobs.put_bytes(data)
        assert lease.succeed(
            db,
            claim,
            made=stored,
            report={"kernels": 3},
            circumstances={"latency_s": 0.5},
            measured=lease.Measured(records),
        )
        return claim

    return end


@pytest.fixture
def client(db: Database, settings: Settings, ring: RecordingRing) -> Iterator[TestClient]:
    """A client of owner `ada` with the scopes read and compile."""
    with client_with(["read", "compile"], db, settings, ring) as made:
        yield made


@contextlib.contextmanager
def client_with(scopes: Sequence[str], db: Database, settings: Settings, ring: RecordingRing) -> Iterator[TestClient]:
    """A client of owner `ada` with these scopes."""
    key = access.make_key(db, "ada", scopes, "test")
    with TestClient(
        create_app(settings, ring=ring, inspector=Inspector(ready=0)), headers={"Authorization": f"Bearer {key}"}
    ) as made:
        yield made


@pytest.fixture
def stranger(db: Database) -> dict[str, str]:
    """Headers of another owner."""
    return {"Authorization": f"Bearer {access.make_key(db, 'eve', ['admin'], 'test')}"}


@pytest.fixture(scope="session")
def zipped() -> Callable[..., bytes]:
    """Makes a zip of files by name; `method` packs them."""

    def make(files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(name), data, method)
        return file.getvalue()

    return make
