from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.blobs.local import LocalBlobs
from service.db import attempts, events
from service.db.engine import Database
from service.db.models import Artifact, Attempt, Event, Job, JobState, Model, Owner
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.submission import runs
from tests.processes import alive
from tests.servers import GUARD_S
from tests.worker.valkey import Valkey
from worker.attempt.context import WorkerContext
from worker.lease.status import StatusThread
from worker.limits import Limits
from worker.processes.watch import Watch

ROOT = Path(__file__).parents[2]

PRELUDE = """
import json, os, signal, struct, subprocess, sys, threading, time
spec_descriptor, out = map(int, sys.argv[1:])
os.set_inheritable(out, False)
spec = json.loads(os.fdopen(spec_descriptor, "rb").read()[4:])
def send(**message):
    body = json.dumps(message).encode()
    os.write(out, struct.pack(">I", len(body)) + body)
def event(phase, fraction, kind="phase", message="", data={}):
    send(kind="event", event=dict(kind=kind, phase=phase, fraction=fraction, message=message, data=data))
def succeed(content=b"artifact"):
    open(spec["output"], "wb").write(content)
    send(kind="report", report={"kernels": 3, "artifact_digest": "claimed by the child"})
def given(name="model"):
    return dict(spec["inputs"])[name]
def here():  # proof that this process ran, for the test to find
    open(os.environ["HOME"] + "/../pid", "w").write(str(os.getpid()))
"""

RECORD = {
    "kind": "kernel",
    "workload": "w",
    "operator": "Conv",
    "description": "d",
    "target": "cpu",
    "hardware": "h",
    "variant": {"tile": 4},
    "threads": 1,
    "seconds": 1e-3,
    "p10": 9e-4,
    "p90": 2e-3,
    "samples": 9,
    "compiler": "0",
}


@dataclass
class Office:
    """A database with one owner and one model, a blob store, and the means to queue jobs and look at them."""

    folder: Path
    url: str
    db: Database
    blobs: LocalBlobs
    owner: uuid.UUID
    model: str

    def submit(self, queue: str = "cpu", **options: Any) -> uuid.UUID:
        with self.db.write() as session:
            job = Job(
                owner_id=self.owner,
                artifact_id=uuid.uuid4(),
                model_digest=self.model,
                options={"target": queue, **options},
                cache_key="k",
                body_hash="b",
                queue=queue,
                state=JobState.QUEUED,
            )
            session.add(job)
            session.flush()
            return job.id

    def made(self, content: bytes = b"artifact") -> uuid.UUID:
        """An artifact, and the compilation that made it."""
        job_id = self.submit()
        blob = self.blobs.put_bytes(content)
        with self.db.write() as session:
            job = session.get_one(Job, job_id)
            job.state = JobState.SUCCEEDED
            assert job.artifact_id is not None
            fields = {"sha256": blob.sha256, "bytes": blob.bytes, "blob_key": blob.key, "receipt": {}}
            session.add(Artifact(id=job.artifact_id, owner_id=self.owner, job_id=job_id, **fields))
            return job.artifact_id

    def run_of(self, kind: str) -> uuid.UUID:
        """A queued benchmark or inference of one artifact."""
        inputs = self.blobs.put_bytes(b"arrays") if kind == "inference" else None
        wanted = runs.Run(self.owner, [self.made()], {}, inputs)
        return runs.run(self.db, wanted, limits=UNLIMITED).job.id

    def job(self, job_id: uuid.UUID) -> Job:
        with self.db.read() as session:
            job = session.get(Job, job_id)
            assert job is not None
            return job

    def attempts(self, job_id: uuid.UUID) -> list[Attempt]:
        with self.db.read() as session:
            return list(attempts.of(session, job_id))

    def events(self, job_id: uuid.UUID) -> list[Event]:
        with self.db.read() as session:
            return list(events.after(session, job_id, 0, 1000))

    def said(self, job_id: uuid.UUID) -> list[str]:
        return [entry.data.get("state", entry.data.get("phase", "")) for entry in self.events(job_id)]


@pytest.fixture(autouse=True)
def spawned_processes_find_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def office(tmp_path: Path, migrated: Path) -> Iterator[Office]:
    url = f"sqlite:///{shutil.copy(migrated, tmp_path / 'tilewright.db')}"
    db = Database(url)
    blobs = LocalBlobs(tmp_path / "blobs")
    model = blobs.put_bytes(b"the model")
    with db.write() as session:
        owner = Owner(name="local")
        session.add(owner)
        session.flush()
        session.add(Model(owner_id=owner.id, digest=model.sha256, bytes=model.bytes, blob_key=model.key, files=[]))
        owner_id = owner.id
    yield Office(tmp_path, url, db, blobs, owner_id, model.sha256)
    db.dispose()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], tuple[str, ...]]:
    """A job's command from the text of a child; the prelude gives it `spec`, `event`, `send`, `succeed`, `here`."""

    def write(text: str) -> tuple[str, ...]:
        path = tmp_path / f"child-{uuid.uuid4().hex}.py"
        path.write_text(PRELUDE + text)
        return (sys.executable, "-P", str(path))

    return write


@pytest.fixture
def limits_count_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a job break its limits in one phase alone: on a busy machine its start may take longer than they allow."""
    broken_limit = Watch.broken_limit

    def only(phase: str) -> None:
        monkeypatch.setattr(
            Watch,
            "broken_limit",
            lambda self, asked_at: broken_limit(self, asked_at) if self.phase == phase else None,
        )

    return only


@pytest.fixture
def context(office: Office) -> WorkerContext:
    return WorkerContext(
        name="tester",
        queues=("cpu", "run:cpu"),
        device="cpu",
        hardware={"fingerprint": "h"},
        db=office.db,
        blobs=office.blobs,
        scratch=office.folder / "scratch",
        status=StatusThread(office.db, "tester", ["cpu"], {}, 1.0),
        limits=Limits(wall_s=GUARD_S, memory_bytes=1 << 30),
        lease_s=5.0,
    )


@pytest.fixture
def context_with(context: WorkerContext, script: Callable[[str], tuple[str, ...]]) -> Callable[..., WorkerContext]:
    """The context with a scripted child, and with other fields on request."""

    def make(child: str, **changes: Any) -> WorkerContext:
        (context.scratch / "jobs").mkdir(parents=True, exist_ok=True)
        return dataclasses.replace(context, command=script(child), **changes)

    return make


@dataclass
class WorkerProcess:
    """A real `python -m worker`, with a scripted child."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture
def start_worker(
    office: Office, script: Callable[[str], tuple[str, ...]], tmp_path: Path
) -> Iterator[Callable[..., WorkerProcess]]:
    """Start `python -m worker` over the office's database and `broker_url`; killed at the end of the test."""
    started: list[WorkerProcess] = []

    def start(
        child: str, broker_url: str, arguments: Sequence[str] = ("--queue", "cpu"), **settings: str
    ) -> WorkerProcess:
        arguments = list(arguments)
        program = (
            f"import sys; from worker.__main__ import main; sys.exit(main({arguments!r}, command={script(child)!r}))"
        )
        log = tmp_path / f"worker-{len(started)}.log"
        environment = {
            **os.environ,
            "TILEWRIGHT_DATA_DIR": str(tmp_path),
            "TILEWRIGHT_DATABASE_URL": office.url,
            "TILEWRIGHT_BLOB_DIR": str(office.blobs.root),
            "TILEWRIGHT_BROKER_URL": broker_url,
            "TILEWRIGHT_SCRATCH_DIR": str(tmp_path / "scratch"),
            "TILEWRIGHT_LOOK_EVERY_S": "0.2",
            "TILEWRIGHT_LEASE_S": "2",
            **settings,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", program], env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        started.append(WorkerProcess(process, log))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.wait()


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server of our own; on a short path, as Unix sockets demand."""
    server = Valkey(Path(tempfile.mkdtemp(prefix="tw-")))
    server.start()
    yield server
    server.kill()
    shutil.rmtree(server.folder)


@pytest.fixture
def broker(valkey: Valkey) -> str:
    return valkey.url


def eventually(condition: Callable[[], Any], within_s: float = GUARD_S) -> Any:
    """The first true answer of `condition`; fails when there is none for a generous time."""
    end = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)
    return answer


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Any]:
    return eventually


@pytest.fixture
def record() -> dict[str, Any]:
    """A measurement as the compiler reports it."""
    return dict(RECORD)


@pytest.fixture(name="running")
def running_fixture() -> Callable[[int], bool]:
    return alive
