from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.config import Settings
from service.db.engine import Database
from service.http.app import create_app
from service.jobs.operations import health
from service.jobs.scheduling import lease
from tests.service.databases import any_database


def failing(client: TestClient) -> list[str]:
    answer = client.get("/readyz")
    body = answer.json()
    assert [check["name"] for check in body["checks"]] == ["database", "broker", "blobs", "workers"]
    assert (answer.status_code == 200) == body["ready"] == all(check["ok"] for check in body["checks"])
    return [check["name"] for check in body["checks"] if not check["ok"]]


def test_alive_without_a_key(client: TestClient) -> None:
    del client.headers["Authorization"]
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/").headers["content-type"].startswith("text/html")


def test_each_part_that_is_missing_is_listed(client: TestClient, db: Database, ring: Any, settings: Settings) -> None:
    assert failing(client) == ["workers"]
    lease.seen(db, "w1", ["cpu"], {"cores": 2}, "0.1.0")
    assert failing(client) == []
    ring.broken = True
    assert failing(client) == ["broker"]
    shutil.rmtree(settings.blob_root)
    assert failing(client) == ["broker", "blobs"]


def test_a_worker_that_went_silent_does_not_count(client: TestClient, db: Database, settings: Settings) -> None:
    lease.seen(db, "w1", ["cpu"], {"cores": 2}, "0.1.0")
    workers = client.get("/workers").json()["workers"]
    assert [(worker["name"], worker["busy"]) for worker in workers] == [("w1", False)]
    with db.write() as session:
        session.connection().exec_driver_sql("UPDATE workers SET last_seen = last_seen - 3600")
    assert failing(client) == ["workers"]
    assert client.get("/workers").json() == {"workers": []}


def test_a_database_that_is_not_migrated_or_gone_is_not_ready(tmp_path: Path, ring: Any) -> None:
    with TestClient(create_app(Settings(data_dir=tmp_path, reconcile_every_s=3600), ring=ring)) as client:
        assert failing(client) == ["database", "workers"]
        answer = client.get("/jobs", headers={"Authorization": "Bearer x"})
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert "retry-after" in answer.headers


@any_database
def test_however_often_readiness_is_asked_for_the_parts_are_tried_once(
    settings: Settings, db: Database, ring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    genuine = health.checks

    def counted(*arguments: Any) -> Any:
        tried.append(1)
        return genuine(*arguments)

    monkeypatch.setattr(health, "checks", counted)
    lasting = settings.model_copy(update={"probes_stand_s": 3600.0})
    with TestClient(create_app(lasting, ring=ring)) as client:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: failing(client), range(40)))
        assert answers == [["workers"]] * 40
    assert tried == [1]
