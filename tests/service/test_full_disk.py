"""Database, blobs and log on one small disk that is full to its last byte, and then has room again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from fastapi.testclient import TestClient

from service import logs
from service.config import Settings
from service.db.engine import Database
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.scheduling import lease
from tests.servers import GUARD_S

SIZE = 24 << 20
BIG = 6 << 20
WIDE = 128 << 20
"""A disk whose reserve, a twentieth, is more than SQLite's log of writes takes before it is copied back: 4 MiB."""
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, of so many bytes as the test says; skipped where nobody may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root of Linux mounts file systems")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={getattr(request, 'param', SIZE)}", "tilewright-test", folder],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def settings(disk: Path, migrated: Path) -> Settings:
    shutil.copy(migrated, disk / "tilewright.db")
    return Settings(data_dir=disk, retention_every_s=0.1, gc_grace_s=60.0, reconcile_every_s=0.1, probes_stand_s=0.0)


@pytest.fixture
def client(settings: Settings, ring: Any, disk: Path) -> Iterator[TestClient]:
    db = Database.of(settings)
    key = access.make_key(db, "ada", access.SCOPES, "")
    db.dispose()
    with (disk / "log").open("w") as log, contextlib.redirect_stderr(log):
        logs.configure(json_lines=True)
        structlog.configure(cache_logger_on_first_use=False)
        with TestClient(create_app(settings, ring=ring), headers={"Authorization": f"Bearer {key}"}) as client:
            yield client
    logs.reset()


def fill(disk: Path) -> None:
    """A file that takes all that is left, and then the log what the database gives back of its log of writes.

    A sweep that found the disk full meanwhile has freed the reserve, which the file has then taken: it begins anew.
    """
    reserve = (disk / "reserve").stat().st_size
    while True:
        with (disk / "fill").open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        before = logs.lost()
        while logs.lost() == before:
            logs.logger("test").info("x" * 65536)
        if (disk / "reserve").stat().st_size:
            return
        os.truncate(disk / "fill", (disk / "fill").stat().st_size - 3 * reserve)
        until(lambda: (disk / "reserve").stat().st_size)


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + GUARD_S
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)
    return found


def compiled(client: TestClient, model: bytes) -> httpx.Response:
    answer: httpx.Response = client.post(
        "/compile", content=model, params={"options": json.dumps({"threads": 1})}, headers=OCTETS
    )
    return answer


def test_a_full_disk_is_told_as_that_and_room_is_made_through_the_api(
    client: TestClient, settings: Settings, disk: Path
) -> None:
    waiting = compiled(client, b"a model that waits")
    assert waiting.status_code == 202, waiting.text
    big = client.post("/models", content=os.urandom(BIG), headers=OCTETS).json()["digest"]
    for blob in settings.blob_root.glob("??/*"):
        os.utime(blob, (0, 0))  # else its bytes stay for the grace
    assert until(lambda: (disk / "reserve").exists() and (disk / "reserve").stat().st_size)
    fill(disk)

    asked: dict[str, Callable[[], httpx.Response]] = {
        "upload": lambda: client.post("/models", content=os.urandom(4 << 20), headers=OCTETS),
        "upload in pieces": lambda: client.post("/uploads", json={"bytes": 1000}),
        "compile": lambda: compiled(client, os.urandom(50_000)),
        "key": lambda: client.post("/keys", json={"label": "k" * 100}),
        "jobs": lambda: client.get("/jobs"),
        "job": lambda: client.get(waiting.headers["Location"]),
    }
    until(lambda: asked["upload"]().status_code == 507)  # what sweeps of the database gave back meanwhile is taken too
    answers = [(name, ask()) for _ in range(5) for name, ask in asked.items()]
    for name, answer in answers:
        if answer.status_code >= 400:
            assert answer.status_code in (503, 507), (name, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] in ("storage_unavailable", "database_full", "database_unavailable"), name
    assert {answer.status_code for name, answer in answers if name == "upload"} == {507}
    assert client.get("/healthz").status_code == 200
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert "blobs" in {check["name"] for check in ready.json()["checks"] if not check["ok"]}

    assert client.delete(f"/models/{big}").status_code == 200
    until(lambda: client.post("/models", content=b"there is room again", headers=OCTETS).status_code < 300)
    until(lambda: (disk / "reserve").stat().st_size > 0)
    checks = {check["name"]: check["ok"] for check in client.get("/readyz").json()["checks"]}
    assert checks["database"]
    assert checks["blobs"]

    db = Database.of(settings)
    claim = lease.claim(db, "w1", ["cpu"], 60.0)
    assert claim is not None
    assert str(claim.job_id) == waiting.json()["id"]
    assert "log_lines_lost_total" in until(lambda: "log_lines_lost" in (text := client.get("/metrics").text) and text)
    db.dispose()


@pytest.mark.parametrize("disk", [WIDE], ids=["wide"], indirect=True)
def test_a_job_is_removed_and_ended_where_nothing_else_can_be_written(
    client: TestClient, settings: Settings, disk: Path
) -> None:
    waiting = [compiled(client, f"model {number}".encode()).json()["id"] for number in range(20)]
    assert until(lambda: (disk / "reserve").exists() and (disk / "reserve").stat().st_size)
    fill(disk)
    for job in waiting[:10]:
        assert client.post(f"/jobs/{job}/cancel").status_code < 300
    for job in waiting:
        assert client.delete(f"/jobs/{job}").status_code < 300
    assert client.get("/jobs").json()["jobs"] == []
