"""Two releases side by side on one database: this one, and the next one, which is made of it.

The next one has a step of the history that is for this one too, a column that it reads and writes, a further field in
its reports, and another version. It runs from a folder of its own, as processes; this one is what the test itself has
loaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from fastapi.testclient import TestClient

from compiler.contract import COMPILER_VERSION, CompileOptions
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import migrate
from service.db.engine import Database
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from service.jobs.scheduling import lease
from tests.end_to_end import models
from tests.end_to_end.house import ROOT, eventually
from tests.servers import Redis, free_port

NEWEST = ScriptDirectory(str(ROOT / "migrations")).get_current_head() or ""
OWN = NEWEST[:4]
NEXT = f"{int(OWN) + 1:04}_for_{OWN}"
VERSION = "0.99.0"
OPEN = ("QUEUED", "LEASED", "RUNNING")
OPTIONS = {"threads": 1, "tuning_budget_s": 0}
STEP = f'''
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{NEXT}", "{NEWEST}", None, None


def upgrade():
    op.add_column("jobs", sa.Column("mood", sa.Text()))
    op.create_table("dreams", sa.Column("id", sa.BigInteger(), primary_key=True))


def downgrade():
    raise NotImplementedError
'''
CHANGES = (
    ("compiler/contract/version.py", f'"{COMPILER_VERSION}"', f'"{VERSION}"'),
    (
        "service/db/models.py",
        "    body_hash: Mapped[str] = mapped",
        '    mood: Mapped[str | None] = mapped_column(sa.Text, default="calm")\n    body_hash: Mapped[str] = mapped',
    ),
    (
        "compiler/contract/report.py",
        '"compiler_version": COMPILER_VERSION}',
        '"compiler_version": COMPILER_VERSION, "joules": 7.0}',
    ),
)
"""What the next release has of its own: a file, what stands there once, what stands there instead."""


def next_release(folder: Path) -> Path:
    """The packages of this one with the changes and the step, in a folder of their own."""
    for package in ("compiler", "migrations", "service", "tilewright", "worker"):
        shutil.copytree(ROOT / package, folder / package)
    (folder / "migrations" / "versions" / f"{NEXT}_next.py").write_text(STEP)
    for name, before, after in CHANGES:
        text = (folder / name).read_text()
        assert text.count(before) == 1, (name, before)
        (folder / name).write_text(text.replace(before, after))
    return folder


@dataclass
class Site:
    """A database, a broker, a blob folder, and the processes of the next release that work with them."""

    folder: Path
    url: str
    broker: str
    next: Path
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def settings(self, **more: Any) -> Settings:
        """What all processes are given."""
        return Settings(data_dir=self.folder, database_url=self.url, broker_url=self.broker, **more)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "PYTHON"))}
        return {
            **kept,
            "PYTHONPATH": str(self.next),
            "TILEWRIGHT_DATA_DIR": str(self.folder),
            "TILEWRIGHT_DATABASE_URL": self.url,
            "TILEWRIGHT_BROKER_URL": self.broker,
            "TILEWRIGHT_PORT": str(self.port),
            "TILEWRIGHT_SCRATCH_DIR": str(self.folder / "scratch"),
        }

    def start(self, *module: str) -> None:
        """A process of the next release."""
        command = [sys.executable, "-P", "-m", *module]
        with (self.folder / f"{module[0]}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(command, cwd=self.folder, env=self.environment(), stdout=log, stderr=log)
            )

    def log(self) -> str:
        """What they printed."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))


@pytest.fixture
def site(empty_postgres_url: str, redis_server: Redis, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "next").mkdir()
    site = Site(tmp_path / "data", empty_postgres_url, redis_server.url, next_release(tmp_path / "next"))
    site.folder.mkdir(mode=0o700)
    migrate.upgrade(site.url)
    yield site
    for process in site.processes:
        process.terminate()
    for process in site.processes:
        process.wait(60)


def compiled(client: httpx.Client, version: str) -> dict[str, Any]:
    """A job for workers of this version."""
    model = client.post("/models", content=models.relu([2, 8])).json()["digest"]
    answer = client.post("/compile", json={"model": model, "options": OPTIONS, "compiler": version, "fresh": True})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def test_releases_work_side_by_side_during_an_upgrade(site: Site, tmp_path: Path) -> None:
    db = Database(site.url)
    key = {"Authorization": f"Bearer {access.make_key(db, 'ada', ['read', 'compile'], 'test')}"}
    with TestClient(create_app(site.settings(), inspector=Inspector(ready=0)), headers=key) as before:
        waiting = compiled(before, COMPILER_VERSION)
        for _ in range(8):  # the connections of the pool have prepared their statements
            assert before.get(f"/jobs/{waiting['id']}").json()["state"] == "QUEUED"

        site.start("service")  # which migrates
        after = httpx.Client(base_url=f"http://127.0.0.1:{site.port}", headers=key, trust_env=False)
        eventually(lambda: _answers(after, site), "the next release's API")
        with db.read() as session:
            assert session.scalar(sa.text("SELECT version_num FROM alembic_version")) == NEXT
        assert after.get("/version").json()["version"] == VERSION
        assert _database(before) == _database(after) == {"name": "database", "ok": True, "detail": "postgresql"}

        # What the one accepted the worker of the other does, both ways.
        site.start("worker", "--queue", "cpu")
        theirs = compiled(before, VERSION)
        while (done := before.get(f"/jobs/{theirs['id']}", headers={"Prefer": "wait=60"}).json())["state"] in OPEN:
            assert all(process.poll() is None for process in site.processes), site.log()
        assert done["state"] == "SUCCEEDED", (done, site.log())
        report = before.get(f"/jobs/{theirs['id']}/report").json()["report"]
        assert (report["compiler_version"], report["joules"]) == (VERSION, 7.0)
        assert before.get(f"/artifacts/{theirs['artifact_id']}").content[:2] == b"PK"
        assert [worker["compiler"] for worker in before.get("/workers").json()["workers"]] == [VERSION]

        ours = compiled(after, COMPILER_VERSION)
        for job in (waiting, ours):
            claim = lease.claim(db, "this release's", ["cpu"], 60.0)
            assert claim is not None
            assert str(claim.job_id) == job["id"]
            assert CompileOptions.from_json(claim.options).threads == 1
            stored = LocalBlobs(site.settings().blob_root).put_bytes(job["id"].encode())
            assert lease.succeed(db, claim, made=stored, report={"kernels": 1}, circumstances={})
            for client in (before, after):
                assert client.get(f"/jobs/{job['id']}").json()["state"] == "SUCCEEDED"
                assert client.get(f"/artifacts/{job['artifact_id']}").content == job["id"].encode()
        with db.read() as session:
            moods = {row.id: row.mood for row in session.execute(sa.text("SELECT CAST(id AS text), mood FROM jobs"))}
        assert moods == {waiting["id"]: None, theirs["id"]: None, ours["id"]: "calm"}
        after.close()

    # Whatever of this release starts anew meanwhile finds the step good, and does not change it.
    migrate.upgrade(site.url)
    migrate.require_usable(db)
    db.dispose()


def _answers(client: httpx.Client, site: Site) -> bool:
    assert all(process.poll() is None for process in site.processes), site.log()
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def _database(client: httpx.Client) -> dict[str, Any]:
    """What `/readyz` says of the database."""
    checks = client.get("/readyz").json()["checks"]
    return dict(next(check for check in checks if check["name"] == "database"))
