from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from compiler.contract import BenchmarkOptions, CompileOptions
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import owners as rows
from service.db import workloads
from service.db.engine import Database
from service.db.models import Blob, JobState, Owner, Row
from service.errors import (
    BadRequest,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    OwnerExists,
    OwnerSuspended,
)
from service.jobs.accounts import access, audit
from service.jobs.accounts.access import Caller
from service.jobs.accounts.audit import Asking
from service.jobs.accounts.quotas import UNLIMITED, Limits
from service.jobs.lifecycle import find
from service.jobs.operations import owners
from service.jobs.operations.retention import Rules, sweep
from service.jobs.scheduling import lease
from service.jobs.storage import models, uploads
from service.jobs.submission import runs
from service.jobs.submission.submit import Submission, submit

SECRET = "the-secrets-of-ada"
"""Stands in everything that ada stores, so that it can be looked for afterwards."""
AT_ONCE = Rules(jobs_s=0.0, uploads_s=1e9, inferences_s=1e9, grace_s=0.0)


@pytest.fixture
def operator(db: Database) -> Caller:
    return access.Door(db).enter(access.make_key(db, "ops", access.SCOPES, "operator"))


def name_of(db: Database, owner: uuid.UUID) -> str:
    with db.read() as session:
        return session.get_one(Owner, owner).name


def mentions(db: Database, blobs: Path, *words: str) -> dict[str, int]:
    """Rows of each table, and names and bytes of files below the blobs, in which one of the words stands."""
    found: dict[str, int] = {}
    with db.read() as session:
        for table in Row.metadata.sorted_tables:
            for row in session.execute(sa.select(table)):
                text = " ".join(str(value).replace("-", "") for value in row).lower()
                if any(word.replace("-", "").lower() in text for word in words):
                    found[table.name] = found.get(table.name, 0) + 1
    for folder, _, files in os.walk(blobs):
        for file in files:
            if any(word.encode() in (Path(folder) / file).read_bytes() for word in words):
                found["files"] = found.get("files", 0) + 1
    return found


@pytest.fixture
def rich(
    db: Database,
    blobs: LocalBlobs,
    owner: uuid.UUID,
    queued: Callable[..., object],
    finish: Callable[..., lease.Claim],
    record: dict[str, object],
) -> lease.Claim:
    """An owner with rows in all tables that owners have rows in; two jobs wait. The claim of the one that ran."""
    stored = SECRET.encode()
    queued(b"model " + stored)
    claim = finish(b"artifact " + stored, ({**record, "description": SECRET},))
    made = find.job(db, owner, claim.job_id).job.artifact_id
    assert made is not None
    with db.write() as session:
        workloads.keep_all(session, owner, {"b7c4f1": SECRET})
    runs.infer(db, owner, made, blobs.put_bytes(b"inputs " + stored), limits=UNLIMITED)
    runs.benchmark(db, owner, [made], BenchmarkOptions(), limits=UNLIMITED)
    upload = uploads.begin(db, owner, size=1000, media_type="application/onnx", sha256=None, limit=1000)
    with uploads.Appender(db, blobs, upload, 0) as appender:
        appender.write(b"piece " + stored)
        appender.end()
    access.make_key(db, name_of(db, owner), ["read"], SECRET)
    token = audit.asking.set(Asking("r", SECRET, "POST", "/", owner))
    with db.write() as session:
        audit.note(session, "create", "/things")
    audit.asking.reset(token)
    return claim


def test_an_owner_is_deleted_with_everything_and_nothing_of_others(
    db: Database, blobs: LocalBlobs, settings: Settings, owner: uuid.UUID, operator: Caller, rich: lease.Claim
) -> None:
    with db.write() as session:
        eve = rows.named(session, "eve")
    shared = models.keep(db, eve, blobs.put_bytes(b"model " + SECRET.encode()))
    hers = submit(db, Submission(eve, shared.digest, CompileOptions()), limits=UNLIMITED).job
    with db.read() as session:
        known = len(session.scalars(sa.select(Blob.key)).all())
    assert known >= 4, "model, artifact, inputs, piece"
    before = mentions(db, settings.blob_root, SECRET, str(owner))
    assert before.keys() >= {
        "owners", "api_keys", "models", "jobs", "artifacts", "uploads", "workloads", "tuning_records", "audit", "usage",
        "shares", "files", "record_operators",
    }  # fmt: skip
    removed = owners.remove(db, operator, "ada", "ada")
    assert (removed.stopping, removed.deleted.jobs, removed.deleted.artifacts) == (0, 3, 1)
    sweep(db, blobs, AT_ONCE)
    assert mentions(db, settings.blob_root, SECRET, str(owner), str(rich.job_id)) == {"files": 1}
    with db.read() as session:
        assert session.scalars(sa.select(Blob.key)).all() == [shared.blob_key], "no digest of what was ada's alone"
    assert blobs.size(shared.blob_key) == len(SECRET) + 6, "eve has the same model"
    assert find.job(db, eve, hers.id).job.state == JobState.QUEUED
    assert owners.make(db, UNLIMITED, "ada", {}).row.id != owner


def test_running_jobs_are_stopped_before_anything_goes(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, operator: Caller, queued: Callable[..., object]
) -> None:
    key = access.make_key(db, "ada", ["read", "compile"], "")
    queued(b"1"), queued(b"2")
    claim = lease.claim(db, "w", ["cpu"], 60.0)
    assert claim is not None
    removed = owners.remove(db, operator, "ada", "ada")
    assert (removed.stopping, removed.deleted.jobs) == (1, 0)
    with pytest.raises(NotAuthenticated):
        access.Door(db).enter(key)
    with pytest.raises(NotAuthenticated):
        submit(db, Submission(owner, "0" * 64, CompileOptions()), limits=UNLIMITED)
    assert lease.claim(db, "w2", ["cpu"], 60.0) is None, "what waited was cancelled"
    assert sweep(db, blobs, AT_ONCE).owners == 0
    assert lease.heartbeat(db, claim, []) == "cancel"
    assert lease.cancelled(db, claim)
    assert sweep(db, blobs, AT_ONCE).owners == 1
    with db.read() as session:
        assert rows.by_name(session, "ada") is None
    with pytest.raises(NotFound):
        owners.remove(db, operator, "ada", "ada")


def test_a_deletion_that_is_not_confirmed_or_of_the_own_owner_deletes_nothing(
    db: Database, owner: uuid.UUID, operator: Caller
) -> None:
    for confirm in ("", "Ada", "eve"):
        with pytest.raises(BadRequest, match="not confirmed"):
            owners.remove(db, operator, "ada", confirm)
    with pytest.raises(NotAllowed):
        owners.remove(db, operator, "ops", "ops")
    assert [seen.row.deleted_at for seen in owners.page(db, UNLIMITED, after=None, limit=9)[0]] == [None, None]


def test_jobs_of_a_suspended_owner_are_not_started_until_it_is_let_in_again(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, operator: Caller, queued: Callable[..., object]
) -> None:
    queued(b"1"), queued(b"2")
    running = lease.claim(db, "w", ["cpu"], 60.0)
    assert running is not None
    digest = models.keep(db, owner, blobs.put_bytes(b"m")).digest
    assert owners.change(db, operator, UNLIMITED, "ada", True, {}).row.suspended_at is not None
    assert lease.claim(db, "w2", ["cpu"], 60.0) is None
    assert lease.heartbeat(db, running, []) == "ok", "what runs goes on"
    with pytest.raises(OwnerSuspended):
        submit(db, Submission(owner, digest, CompileOptions()), limits=UNLIMITED)
    with pytest.raises(OwnerSuspended):
        uploads.begin(db, owner, size=1, media_type="application/onnx", sha256=None, limit=9)
    assert owners.change(db, operator, UNLIMITED, "ada", False, {}).row.suspended_at is None
    assert lease.claim(db, "w2", ["cpu"], 60.0) is not None


def test_an_operator_does_not_lock_itself_out(db: Database, operator: Caller) -> None:
    with pytest.raises(NotAllowed, match="own owner"):
        owners.change(db, operator, UNLIMITED, "ops", True, {})


def test_a_grant_is_kept_until_it_is_taken_back(db: Database, owner: uuid.UUID, operator: Caller) -> None:
    settings = Limits(stored_bytes=10, queued_jobs=20)
    seen = owners.change(db, operator, settings, "ada", None, {"stored_bytes": 99, "device_s": 1.5})
    assert seen.limits == Limits(stored_bytes=99, queued_jobs=20, device_s=1.5)
    assert owners.change(db, operator, settings, "ada", None, {"concurrent_jobs": 0}).limits == seen.limits
    back = owners.change(db, operator, settings, "ada", None, {"stored_bytes": None})
    assert back.limits == Limits(stored_bytes=10, queued_jobs=20, device_s=1.5)


def test_an_owner_is_made_once(db: Database, operator: Caller) -> None:
    made = owners.make(db, UNLIMITED, "bob", {"queued_jobs": 3})
    assert (made.row.name, made.limits.queued_jobs) == ("bob", 3)
    with pytest.raises(OwnerExists):
        owners.make(db, UNLIMITED, "bob", {})
    with pytest.raises(BadRequest):
        owners.make(db, UNLIMITED, "no/path", {})


def test_owners_are_listed_by_name_in_pages(db: Database, operator: Caller) -> None:
    for name in ("cyd", "bob", "ada"):
        owners.make(db, UNLIMITED, name, {})
    first, after = owners.page(db, UNLIMITED, after=None, limit=3)
    second, end = owners.page(db, UNLIMITED, after=after, limit=3)
    assert [seen.row.name for seen in (*first, *second)] == ["ada", "bob", "cyd", "ops"]
    assert end is None
