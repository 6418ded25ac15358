from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.conftest import RecordingRing


@pytest.fixture
def source(client: TestClient, finish: Callable[..., lease.Claim]) -> dict[str, Any]:
    options = '{"seed": 3, "threads": 2, "dims": {"n": 1}}'
    made: dict[str, Any] = client.post("/compile", files={"model": "m", "options": options}).json()
    finish()
    return made


def test_a_clone_compiles_the_same_model_with_the_options_that_were_not_changed(
    client: TestClient, source: dict[str, Any], ring: RecordingRing
) -> None:
    rung = len(ring.rung)
    wanted = {"options": {"threads": 1, "dims": {"m": 2}}, "priority": -2}
    answer = client.post(f"/jobs/{source['id']}/clone", json=wanted)
    made = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/jobs/{made['id']}")
    assert (made["model"], made["cloned_from"], made["state"]) == (source["model"], source["id"], "QUEUED")
    assert made["options"] == {**source["options"], "threads": 1, "dims": {"m": 2}}
    assert made["priority"] == -2
    assert made["artifact_id"] != source["artifact_id"]
    assert len(ring.rung) == rung + 1


def test_a_clone_without_a_change_is_answered_from_the_cache_unless_fresh(
    client: TestClient, source: dict[str, Any]
) -> None:
    made = client.post(f"/jobs/{source['id']}/clone", json={}).json()
    assert (made["state"], made["cached"], made["artifact_id"]) == ("SUCCEEDED", True, source["artifact_id"])
    assert made["cloned_from"] == source["id"]
    fresh = client.post(f"/jobs/{source['id']}/clone", json={"fresh": True}).json()
    assert (fresh["state"], fresh["cached"]) == ("QUEUED", False)


def test_one_key_makes_one_clone(client: TestClient, source: dict[str, Any]) -> None:
    path, key = f"/jobs/{source['id']}/clone", {"Idempotency-Key": "k"}
    first = client.post(path, json={"fresh": True}, headers=key).json()
    assert client.post(path, json={"fresh": True}, headers=key).json()["id"] == first["id"]


def test_what_cannot_be_cloned_is_refused(client: TestClient, source: dict[str, Any], stranger: dict[str, str]) -> None:
    path = f"/jobs/{source['id']}/clone"
    answer = client.post(path, json={"options": {"threads": 0}})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_options")
    assert client.post(path, json={"options": {"thread": 1}}).status_code == 422
    for name in ("a\0", "\ud800"):  # a database would keep another name than the one that was asked for
        body = json.dumps({"options": {"dims": {name: 1}}})
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_options")
    deep = '{"options": {"dims": ' + "[" * 600 + "]" * 600 + "}}"
    assert client.post(path, content=deep, headers={"Content-Type": "application/json"}).status_code in (400, 422)
    assert client.post(path, json={"priority": 3}).status_code == 403
    assert client.post(path, json={}, headers=stranger).status_code == 404
    assert client.post(f"/jobs/{uuid.uuid4()}/clone", json={}).status_code == 404
    benchmark = client.post("/benchmarks", json={"artifacts": [source["artifact_id"]]}).json()["id"]
    answer = client.post(f"/jobs/{benchmark}/clone", json={})
    assert (answer.status_code, answer.json()["code"]) == (422, "wrong_kind")


def test_finishing_is_asked_of_compilations_that_have_not_ended(
    client: TestClient, db: Database, source: dict[str, Any], claimed: Callable[..., lease.Claim]
) -> None:
    job = client.post(f"/jobs/{source['id']}/clone", json={"fresh": True}).json()["id"]
    claim = claimed()
    assert lease.heartbeat(db, claim, []) == "ok"
    for _ in range(2):
        answer = client.post(f"/jobs/{job}/finish")
        assert (answer.status_code, answer.json()["finish_requested"]) == (202, True)
    assert lease.heartbeat(db, claim, []) == "finish"
    assert client.get(f"/jobs/{job}/log").text.count("best found so far") == 1
    ended = client.post(f"/jobs/{source['id']}/finish")
    assert (ended.status_code, ended.json()["code"]) == (409, "job_finished")
