from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from compiler.contract import BenchmarkOptions
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import kept, snapshot
from service.db.engine import Database
from service.db.models import Blob, Job, JobState
from service.errors import ArtifactLost, BlobDamaged, BlobLost, StorageUnavailable
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.lifecycle import find
from service.jobs.operations import removal, retention, statistics
from service.jobs.operations.retention import Rules
from service.jobs.scheduling import lease
from service.jobs.storage import integrity, models
from service.jobs.storage.integrity import Scrubbed, Watched, scrub, scrub_all
from service.jobs.submission import runs
from tests.service.databases import any_database

ROOT = Path(__file__).parents[4]
DATA = b"the artifact"
NEVER = Rules(jobs_s=0, uploads_s=1e12, inferences_s=1e12, grace_s=1e9)


@pytest.fixture
def made(queued: Callable[..., Job], finish: Callable[..., lease.Claim], blobs: LocalBlobs) -> tuple[Job, str]:
    """A job that succeeded, and the key of its artifact."""
    job = queued(b"model", fresh=False)
    finish(DATA)
    return job, blobs.put_bytes(DATA).key


def spoil(blobs: LocalBlobs, key: str, data: bytes | None) -> None:
    """Puts other bytes under a key; None: takes them away."""
    if data is None:
        (blobs.root / key).unlink()
    else:
        (blobs.root / key).write_bytes(data)


def key_of(digest: str) -> str:
    return f"{digest[:2]}/{digest}"


def notices(db: Database, owner: uuid.UUID, job: Job) -> list[str]:
    lines, ended = find.log(db, owner, job.id, 0)
    assert ended
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    return [line.data["message"] for line in lines if line.kind == "notice"]


@pytest.mark.parametrize(("data", "fault"), [(None, "lost"), (b"shorter", "damaged")])
def test_an_artifact_that_cannot_be_opened_is_told_counted_and_compiled_again(
    client: TestClient,
    db: Database,
    blobs: LocalBlobs,
    owner: uuid.UUID,
    made: tuple[Job, str],
    finish: Callable[..., lease.Claim],
    monkeypatch: pytest.MonkeyPatch,
    data: bytes | None,
    fault: str,
) -> None:
    job, key = made
    logged: list[str] = []
    monkeypatch.setattr(integrity, "log", SimpleNamespace(error=lambda said, **_: logged.append(said)))
    ask: dict[str, Any] = {"json": {"model": job.model_digest, "options": {}}}
    hit = client.post("/compile", **ask).json()
    assert (hit["cached"], hit["artifact_id"]) == (True, str(job.artifact_id))
    spoil(blobs, key, data)
    for path in (f"/artifacts/{job.artifact_id}", f"/artifacts/{job.artifact_id}/manifest"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (507, f"blob_{fault}")
        assert answer.json()["fault"] == "machine"
        assert "compile it again" in answer.json()["fix"]
    assert logged == ["bytes are not as they were kept"]
    for one in (job.id, uuid.UUID(hit["id"])):
        said = client.get(f"/jobs/{one}").json()
        assert (said["state"], said["problem"]["code"]) == ("SUCCEEDED", "artifact_lost")
    assert notices(db, owner, job) == [f"the bytes of its artifact are {fault}"]
    counted = {(one.name, one.labels.get("fault")): one.value for one in statistics.numbers(db, 1.0)}
    assert (counted["blob_faults", fault], counted["blobs_faulty", fault]) == (1, 1)
    with pytest.raises(ArtifactLost):
        runs.benchmark(db, owner, [uuid.UUID(str(job.artifact_id))], BenchmarkOptions(), limits=UNLIMITED)

    again = client.post("/compile", **ask).json()
    assert (again["cached"], again["state"]) == (False, "QUEUED")
    finish(DATA)  # the same bytes
    assert client.get(f"/artifacts/{job.artifact_id}").content == DATA
    assert client.get(f"/jobs/{job.id}").json()["problem"] is None
    assert client.post("/compile", **ask).json()["cached"]
    counted = {(one.name, one.labels.get("fault")): one.value for one in statistics.numbers(db, 1.0)}
    assert (counted["blob_faults", fault], counted["blobs_faulty", fault]) == (1, 0)


def test_an_artifact_that_comes_out_otherwise_answers_from_now_on_and_the_old_one_stays_lost(
    client: TestClient, blobs: LocalBlobs, made: tuple[Job, str], finish: Callable[..., lease.Claim]
) -> None:
    job, key = made
    spoil(blobs, key, None)
    assert client.get(f"/artifacts/{job.artifact_id}").status_code == 507
    ask: dict[str, Any] = {"json": {"model": job.model_digest, "options": {}}}
    again = client.post("/compile", **ask).json()
    finish(b"other bytes")
    hit = client.post("/compile", **ask).json()
    assert (hit["cached"], hit["artifact_id"]) == (True, again["artifact_id"])
    assert client.get(f"/artifacts/{again['artifact_id']}").content == b"other bytes"
    assert client.get(f"/jobs/{job.id}").json()["problem"]["code"] == "artifact_lost"


@pytest.mark.parametrize("data", [None, b"MODEL", b""])
def test_a_model_whose_bytes_are_lost_or_damaged_is_whole_again_when_it_is_sent_again(
    client: TestClient, db: Database, blobs: LocalBlobs, data: bytes | None
) -> None:
    digest = client.post("/models", content=b"model", headers={"Content-Type": "application/octet-stream"}).json()[
        "digest"
    ]
    spoil(blobs, f"{digest[:2]}/{digest}", data)
    scrub_all(db, blobs)
    assert client.head(f"/models/{digest}").status_code == 404
    refused = client.post("/compile", json={"model": digest, "options": {}})
    assert (refused.status_code, refused.json()["code"]) == (507, "blob_lost")
    again = client.post("/models", content=b"model", headers={"Content-Type": "application/octet-stream"})
    assert again.status_code == 200
    assert client.head(f"/models/{digest}").status_code == 200
    assert client.get(f"/models/{digest}/file").content == b"model"
    assert client.post("/compile", json={"model": digest, "options": {}}).status_code == 202
    assert scrub_all(db, blobs).damaged == ()


@pytest.mark.parametrize("data", [None, b"shorter than it was"])
def test_samples_whose_bytes_are_lost_or_damaged_are_whole_again_when_they_are_sent_again(
    client: TestClient, db: Database, blobs: LocalBlobs, data: bytes | None
) -> None:
    files = [("model", ("m.onnx", b"model")), ("samples", ("a.npz", b"a sample of inputs"))]
    made = client.post("/compile", files=files).json()
    (sample,) = made["samples"]
    assert snapshot.named(db)[key_of(sample["sha256"])] == len(b"a sample of inputs")
    spoil(blobs, key_of(sample["sha256"]), data)
    scrub_all(db, blobs)
    refused = client.post(f"/jobs/{made['id']}/clone", json={"options": {"seed": 2}})
    assert (refused.status_code, refused.json()["code"]) == (507, "blob_lost")
    assert "samples 'a.npz' are " in refused.json()["detail"]
    assert client.post("/compile", files=files, params={"fresh": "true"}).status_code == 202
    assert client.post(f"/jobs/{made['id']}/clone", json={"options": {"seed": 2}}).status_code == 202
    assert scrub_all(db, blobs).damaged == ()


def test_what_was_checked_longest_ago_is_checked_first_and_some_at_a_time(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    keys = [models.keep(db, owner, blobs.put_bytes(bytes([n]) * 10)).blob_key for n in range(5)]
    with db.write() as session:
        for number, key in enumerate(keys):
            session.execute(sa.update(Blob).where(Blob.key == key).values(checked_at=float(number)))
    spoil(blobs, keys[3], b"x" * 10)
    assert scrub(db, blobs, 25) == Scrubbed(2, 20)
    assert scrub(db, blobs, 25) == Scrubbed(2, 20, damaged=(keys[3],))
    assert scrub(db, blobs, 1) == Scrubbed(1, 10)
    with db.read() as session:
        first = session.scalars(sa.select(Blob.key).order_by(Blob.checked_at).limit(2)).all()
    assert set(first) == set(keys[:2])


@any_database
def test_small_blobs_are_checked_until_the_bytes_are_spent(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(7):
        models.keep(db, owner, blobs.put_bytes(bytes([n])))
    monkeypatch.setattr(integrity, "AT_ONCE", 2)
    assert scrub(db, blobs, 5) == Scrubbed(5, 5)
    assert scrub(db, blobs, 99) == Scrubbed(7, 7)


@any_database
def test_more_keys_than_one_statement_names_are_forgotten_but_none_that_is_named_anew(db: Database) -> None:
    many = [f"{n:02x}/{n:064x}" for n in range(2 * kept.BATCH + 3)]
    with db.write() as session:
        kept.name(session, dict.fromkeys(many, 1))
        session.execute(sa.update(Blob).values(named_at=5.0))
        kept.name(session, {many[7]: 1})
        kept.forget(session, many, 60.0)
        assert session.scalars(sa.select(Blob.key)).all() == [many[7]]


def test_bytes_that_are_whole_again_are_found_and_the_job_says_no_more_of_them(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, made: tuple[Job, str]
) -> None:
    job, key = made
    spoil(blobs, key, None)
    found = scrub_all(db, blobs)
    assert (found.lost, found.mended) == ((key,), ())
    assert find.job(db, owner, job.id).job.problem is not None
    (blobs.root / key).write_bytes(DATA)  # out of a backup
    assert scrub_all(db, blobs).mended == (key,)
    assert find.job(db, owner, job.id).job.problem is None
    assert scrub_all(db, blobs) == Scrubbed(2, len(DATA) + len(b"model"))


def test_a_sweep_checks_as_much_as_the_setting_says(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, made: tuple[Job, str]
) -> None:
    _, key = made
    spoil(blobs, key, b"THE ARTIFACT")
    retention.sweep(db, blobs, NEVER)
    with db.read() as session:
        assert kept.faults(session, [key]) == {}
    rules = Rules.of(Settings(scrub_bytes=1000))
    retention.sweep(db, blobs, Rules(**{**vars(NEVER), "scrub_bytes": rules.scrub_bytes}))
    with db.read() as session:
        assert kept.faults(session, [key]) == {key: "damaged"}


def test_a_key_that_no_row_names_any_more_is_not_missed(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, made: tuple[Job, str]
) -> None:
    job, key = made
    removal.remove(db, owner, str(job.model_digest), cancel=False)
    spoil(blobs, key, None)
    assert scrub_all(db, blobs).lost == ()
    with db.read() as session:
        assert session.get(Blob, key) is None


def test_what_was_set_aside_goes_with_the_last_row_that_names_it(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, made: tuple[Job, str]
) -> None:
    job, key = made
    spoil(blobs, key, b"THE ARTIFACT")
    assert scrub_all(db, blobs).damaged == (key,)
    retention.sweep(db, blobs, NEVER)
    assert [one for _, one in blobs.set_aside()] == [key]
    removal.remove(db, owner, str(job.model_digest), cancel=False)
    retention.sweep(db, blobs, NEVER)
    assert list(blobs.set_aside()) == []


def test_a_watched_store_marks_what_it_cannot_open_and_nothing_that_no_row_names(
    db: Database, blobs: LocalBlobs, made: tuple[Job, str]
) -> None:
    _, key = made
    watched = Watched(blobs, db)
    with watched.local(key, len(DATA)) as path:
        assert path.read_bytes() == DATA
    assert b"".join(watched.read(key, 4, length=len(DATA))) == DATA[4:]
    with pytest.raises(BlobLost):
        watched.size("ab/ab" + "0" * 62)
    with pytest.raises(BlobDamaged), watched.local(key, 5):
        pass
    with db.read() as session:
        assert session.scalars(sa.select(Blob.key).where(Blob.fault.is_not(None))).all() == [key]


@any_database
def test_the_chore_prints_what_is_damaged_and_ends_with_1(
    db: Database, blobs: LocalBlobs, settings: Settings, made: tuple[Job, str]
) -> None:
    _, key = made
    where = {"TILEWRIGHT_DATA_DIR": str(settings.data_dir), "TILEWRIGHT_DATABASE_URL": settings.sqlalchemy_url}

    def chore(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "service", "scrub", *words]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **where}, capture_output=True, text=True, check=False
        )

    whole = chore()
    assert (whole.returncode, whole.stdout.splitlines()) == (0, ["blobs 2", f"bytes {len(DATA) + len(b'model')}"])
    spoil(blobs, key, b"THE ARTIFACT")
    found = chore("--json")
    assert (found.returncode, json.loads(found.stdout)["damaged"]) == (1, [key])
    again = chore()
    assert (again.returncode, f"lost {key}" in again.stdout) == (1, True)


def test_a_job_that_has_not_ended_says_nothing_of_an_artifact(
    db: Database, blobs: LocalBlobs, made: tuple[Job, str], queued: Callable[..., Job]
) -> None:
    _, key = made
    waiting = queued(b"other")
    integrity.note(db, key, BlobLost("gone"))
    with db.read() as session:
        row = session.get_one(Job, waiting.id)
    assert (row.state, row.problem) == (JobState.QUEUED, None)


def test_a_model_that_changed_at_the_same_length_is_not_there_for_whoever_asks_before_sending_it(
    client: TestClient, db: Database, blobs: LocalBlobs
) -> None:
    files = [("model", ("m.onnx", b"model")), ("data", ("w.bin", b"weights"))]
    model = client.post("/models", files=files).json()
    digest, weights = model["digest"], key_of(model["files"][0]["sha256"])
    assert client.head(f"/models/{digest}").status_code == 200
    with db.write() as session:  # a while later
        session.execute(sa.update(Blob).values(checked_at=Blob.checked_at - models.CHECKED_S - 1))
    spoil(blobs, weights, b"WEIGHTS")
    assert client.head(f"/models/{digest}").status_code == 404
    with db.read() as session:
        assert kept.faults(session, [weights]) == {weights: "damaged"}
    assert client.post("/models", files=files).status_code == 200
    assert client.head(f"/models/{digest}").status_code == 200
    assert client.get(f"/models/{digest}/file", params={"path": "w.bin"}).content == b"weights"


def test_files_are_not_read_at_each_question_whether_they_are_there(
    client: TestClient, db: Database, blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = client.post("/models", files={"model": b"model"}).json()["digest"]
    read: list[str] = []
    verify = LocalBlobs.verify

    def noted(self: LocalBlobs, key: str, length: int) -> None:
        read.append(key)
        verify(self, key, length)

    monkeypatch.setattr(LocalBlobs, "verify", noted)
    for _ in range(3):
        assert client.head(f"/models/{digest}").status_code == 200
    assert read == [key_of(digest)]


@pytest.mark.parametrize("whole_again", ["written again", "found by its length alone"])
def test_the_same_bytes_sent_again_mend_what_nobody_had_seen(
    client: TestClient, db: Database, blobs: LocalBlobs, whole_again: str
) -> None:
    digest = client.post("/models", files={"model": b"model"}).json()["digest"]
    spoil(blobs, key_of(digest), b"MODEL" if whole_again == "written again" else b"MOD")
    assert client.post("/models", files={"model": b"model"}).status_code == 200
    assert client.get(f"/models/{digest}/file").content == b"model"
    assert scrub_all(db, blobs).damaged == ()


def test_what_a_broken_check_did_not_come_to_is_still_to_be_checked(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [models.keep(db, owner, blobs.put_bytes(bytes([n]))).blob_key for n in range(4)]
    with db.write() as session:
        session.execute(sa.update(Blob).values(checked_at=7.0))
    seen: list[str] = []

    def away(self: LocalBlobs, key: str, length: int) -> None:
        seen.append(key)
        if len(seen) == 2:
            raise StorageUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(LocalBlobs, "verify", away)
        with pytest.raises(StorageUnavailable):
            scrub_all(db, blobs)
    with db.read() as session:
        checked = session.scalars(sa.select(Blob.key).where(Blob.checked_at > 7.0)).all()
    assert checked == seen[:1]
    assert scrub(db, blobs, 3) == Scrubbed(3, 3)
    with db.read() as session:
        assert set(session.scalars(sa.select(Blob.key).where(Blob.checked_at > 7.0))) == set(keys)


def test_the_age_of_what_waits_longest_to_be_checked_is_counted(
    client: TestClient, db: Database, blobs: LocalBlobs, owner: uuid.UUID
) -> None:
    def age() -> float:
        (line,) = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
        return float(line.split()[1])

    name = "tilewright_blob_unchecked_seconds"
    assert age() == 0.0
    keys = [models.keep(db, owner, blobs.put_bytes(bytes([n]))).blob_key for n in range(3)]
    with db.write() as session:
        session.execute(sa.update(Blob).values(named_at=Blob.named_at - 5000))
        session.execute(sa.update(Blob).where(Blob.key == keys[0]).values(checked_at=kept.now(session) - 9000))
    assert 9000 <= age() < 9900
    scrub(db, blobs, 2)
    assert 9000 <= age() < 9900, "those that never were checked went first"
    scrub(db, blobs, 1)
    assert age() < 900
