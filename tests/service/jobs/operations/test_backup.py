from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import snapshot
from service.db.engine import Database
from service.db.models import Job
from service.errors import BlobDamaged, NotReady
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from service.jobs.lifecycle import find
from service.jobs.operations import backup, removal
from service.jobs.scheduling import lease
from service.jobs.storage import models
from tests.service.conftest import RecordingRing
from tests.service.databases import any_database
from tests.service.s3_server import S3Server

ROOT = Path(__file__).parents[4]
DATA = b"the artifact" * 1000


@pytest.fixture
def saving(db: Database, blobs: LocalBlobs, tmp_path: Path) -> Callable[[], backup.Saved]:
    """Backs up into the folder `saved`."""
    return lambda: backup.backup(db, blobs, tmp_path / "saved", key_file=tmp_path / "api_key", grace_s=3600)


@pytest.fixture
def made(queued: Callable[..., Job], finish: Callable[..., lease.Claim]) -> Job:
    """A job with an artifact."""
    job = queued(b"model")
    finish(DATA)
    return job


def restored(folder: Path, saved: Path) -> backup.Saved:
    """Puts it back into a data folder."""
    folder.mkdir(exist_ok=True)
    return backup.restore(
        saved, LocalBlobs(folder / "blobs"), database=folder / "tilewright.db", key_file=folder / "api_key"
    )


@any_database
def test_an_artifact_is_downloaded_from_what_was_restored(
    db: Database, settings: Settings, made: Job, tmp_path: Path
) -> None:
    access.ensure_local_key(db, settings.api_key_file)
    key = access.make_key(db, "ada", ["read"], "")

    def chore(*words: str, **where: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TILEWRIGHT_DATABASE_URL": "", "TILEWRIGHT_DATA_DIR": str(tmp_path), **where}
        command = [sys.executable, "-m", "service", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    saved = chore("backup", str(tmp_path / "saved"))
    assert (saved.returncode, saved.stdout.splitlines()[0]) == (0, "blobs 2"), saved.stderr
    back = chore("restore", str(tmp_path / "saved"), TILEWRIGHT_DATA_DIR=str(tmp_path / "new"))
    assert (back.returncode, "copied 2" in back.stdout) == (0, True), back.stderr
    assert (tmp_path / "new" / "api_key").read_text() == settings.api_key_file.read_text()
    elsewhere = create_app(Settings(data_dir=tmp_path / "new"), ring=RecordingRing(), inspector=Inspector(ready=0))
    with TestClient(elsewhere, headers={"Authorization": f"Bearer {key}"}) as client:
        assert client.get(f"/artifacts/{made.artifact_id}").content == DATA
        assert client.get(f"/models/{made.model_digest}/file").content == b"model"
    refused = chore("restore", str(tmp_path / "saved"), TILEWRIGHT_DATA_DIR=str(tmp_path / "new"))
    assert (refused.returncode, "there is a database already" in refused.stderr) == (1, True)


@any_database
def test_what_is_uploaded_and_removed_while_the_backup_is_made_is_whole_or_not_in_it(
    db: Database,
    blobs: LocalBlobs,
    owner: uuid.UUID,
    made: Job,
    saving: Callable[[], backup.Saved],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take, looks = snapshot.take, []

    def busy(source: Database, target: Path) -> None:
        looks.append(1)
        models.keep(source, owner, blobs.put_bytes(b"came late"))
        take(source, target)
        if len(looks) == 1:  # after the copy of the database retention removes what it names
            late = models.keep(source, owner, blobs.put_bytes(b"came late")).digest
            removal.remove(source, owner, late, cancel=False)
            blobs.delete(f"{late[:2]}/{late}")

    monkeypatch.setattr(snapshot, "take", busy)
    saved = saving()
    assert (saved.missing, len(looks)) == ((), 2)
    assert restored(tmp_path / "new", tmp_path / "saved").blobs == 3


@any_database
def test_the_next_backup_copies_what_is_new_and_drops_what_is_gone(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, made: Job, saving: Callable[[], backup.Saved]
) -> None:
    assert (saving().copied, saving().copied) == (2, 0)
    removal.remove(db, owner, str(made.model_digest), cancel=False)
    models.keep(db, owner, blobs.put_bytes(b"new"))
    again = saving()
    assert (again.copied, again.blobs, again.bytes) == (1, 1, 3)


@any_database
def test_a_backup_that_broke_off_is_none_and_goes_on_where_it_stopped(
    db: Database,
    blobs: LocalBlobs,
    made: Job,
    saving: Callable[[], backup.Saved],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "take", killed)
        with pytest.raises(KeyboardInterrupt):
            saving()
    with pytest.raises(NotReady, match="no whole backup"):
        restored(tmp_path / "new", tmp_path / "saved")
    assert saving().copied == 0
    assert restored(tmp_path / "new", tmp_path / "saved").copied == 2


@any_database
def test_bytes_that_are_damaged_are_named_and_the_rest_is_saved(
    db: Database, blobs: LocalBlobs, made: Job, saving: Callable[[], backup.Saved], tmp_path: Path
) -> None:
    key = blobs.put_bytes(DATA).key
    blobs.path(key).write_bytes(DATA[::-1])
    saved = saving()
    assert (saved.missing, saved.blobs) == ((key,), 1)
    assert restored(tmp_path / "new", tmp_path / "saved").missing == (key,)


@any_database
def test_a_backup_that_is_damaged_is_not_restored(
    db: Database, blobs: LocalBlobs, made: Job, saving: Callable[[], backup.Saved], tmp_path: Path
) -> None:
    saving()
    key = blobs.put_bytes(DATA).key
    (tmp_path / "saved" / "blobs" / key).write_bytes(DATA[::-1])
    with pytest.raises(BlobDamaged, match=key):
        restored(tmp_path / "new", tmp_path / "saved")
    assert not (tmp_path / "new" / "tilewright.db").exists()


def test_of_postgresql_the_blobs_are_saved_alone(
    db: Database, blobs: LocalBlobs, made: Job, saving: Callable[[], backup.Saved], tmp_path: Path
) -> None:
    if db.engine.dialect.name == "sqlite":
        pytest.skip("SQLite is saved whole")
    saved = saving()
    assert (saved.blobs, saved.database) == (2, False)
    target = LocalBlobs(tmp_path / "elsewhere")
    back = backup.restore(tmp_path / "saved", target, database=None, key_file=tmp_path / "api_key")
    assert (back.copied, len(list(target.keys()))) == (2, 2)
    with pytest.raises(NotReady, match="holds no database"):
        restored(tmp_path / "new", tmp_path / "saved")


@any_database
def test_a_bucket_is_saved_and_restored_into_another(
    db: Database, owner: uuid.UUID, s3_server: S3Server, tmp_path: Path
) -> None:
    from service.blobs.open_blobs import open_blobs

    near, far = (open_blobs(s3_server.settings(tmp_path / name, s3_server.bucket())) for name in ("near", "far"))
    kept = models.keep(db, owner, near.put_bytes(b"model"))
    saved = backup.backup(db, near, tmp_path / "saved", key_file=tmp_path / "api_key", grace_s=3600)
    assert (saved.blobs, saved.missing) == (1, ())
    backup.restore(tmp_path / "saved", far, database=tmp_path / "new.db", key_file=tmp_path / "api_key")
    assert b"".join(far.read(kept.blob_key)) == b"model"


@any_database
def test_the_copy_is_of_one_moment_and_a_file_by_itself(
    db: Database, made: Job, tmp_path: Path, saving: Callable[[], Any], owner: uuid.UUID
) -> None:
    saving()
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert names == {"tilewright.db", "blobs", "backup.json"}
    with sqlite3.connect(tmp_path / "saved" / "tilewright.db") as copy:
        assert copy.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    copy.close()
    assert find.job(db, owner, made.id).job.id == made.id
