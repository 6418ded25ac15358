"""Names, notes, tags and limits of time: given with a request, changed afterwards, looked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database

SAID = {"name": "Nightly 50%", "note": "before\nthe rewrite", "tags": ["ci", "main"], "max_queue_s": 60, "max_run_s": 5}


def submit(client: TestClient, **said: Any) -> dict[str, Any]:
    digest = client.post("/models", content=b"m").json()["digest"]
    answer = client.post("/compile", json={"model": digest, "fresh": True, **said})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


def reported(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in SAID}


@any_database
def test_a_job_is_called_what_the_request_says_in_json_and_in_the_query(client: TestClient) -> None:
    job = submit(client, **SAID)
    assert reported(job) == reported(client.get(f"/jobs/{job['id']}").json()) == SAID
    query = {**SAID, "tag": SAID["tags"]}
    del query["tags"]
    sent = client.post("/compile", files={"model": b"m"}, params={**query, "fresh": True})
    assert reported(sent.json()) == SAID
    artifact = sent.json()["artifact_id"]
    benchmark = client.post("/benchmarks", json={"artifacts": [artifact], **SAID}).json()
    inference = client.post("/inferences", params={"artifact": artifact, **query}, content=b"npz").json()
    clone = client.post(f"/jobs/{job['id']}/clone", json=SAID).json()
    for one in (benchmark, inference, clone):
        assert reported(client.get(f"/jobs/{one['id']}").json()) == SAID


@any_database
def test_a_repeated_request_that_says_something_else_is_another_request(client: TestClient) -> None:
    digest = client.post("/models", content=b"m").json()["digest"]
    key = {"Idempotency-Key": "k"}
    first = client.post("/compile", json={"model": digest, "tags": ["a"]}, headers=key)
    again = client.post("/compile", json={"model": digest, "tags": ["a"]}, headers=key)
    other = client.post("/compile", json={"model": digest, "tags": ["b"]}, headers=key)
    assert first.json()["id"] == again.json()["id"]
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@any_database
def test_labels_have_no_part_in_the_cache(client: TestClient, finish: Callable[..., lease.Claim]) -> None:
    made = submit(client, name="first")
    finish()
    again = client.post("/compile", json={"model": made["model"], "name": "second", "max_run_s": 9}).json()
    assert (again["cached"], again["artifact_id"], again["name"]) == (True, made["artifact_id"], "second")


@any_database
@pytest.mark.parametrize(
    "said",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"note": "\0"},
        {"tags": ["a b"]},
        {"tags": [""]},
        {"tags": ["a"] * 33},
        {"max_queue_s": 0},
        {"max_run_s": -1},
        {"max_run_s": "5"},
    ],
    ids=str,
)
def test_what_nobody_could_look_for_or_keep_to_is_refused(client: TestClient, said: dict[str, Any]) -> None:
    digest = client.post("/models", content=b"m").json()["digest"]
    assert client.post("/compile", json={"model": digest, **said}).status_code in (400, 422)
    if "max" not in next(iter(said)):
        assert client.patch(f"/models/{digest}", json=said).status_code == 400


def test_jobs_are_found_by_what_they_are_called_and_when_they_were_made(
    client: TestClient, stranger: dict[str, str]
) -> None:
    ids = {
        "a": submit(client, name="Nightly 50%", tags=["ci", "main"])["id"],
        "b": submit(client, note="a nightly_run", tags=["ci"])["id"],
        "c": submit(client, options={"target": "cpu:x86-64-v3"}, tags=["ci/main"])["id"],
    }
    first, second = (datetime.fromisoformat(client.get(f"/jobs/{ids[n]}").json()["created_at"]) for n in "ab")
    middle = (first + (second - first) / 2).isoformat()

    def found(**where: Any) -> str:
        listed = {job["id"] for job in client.get("/jobs", params=where).json()["jobs"]}
        return "".join(name for name, id in ids.items() if id in listed)

    assert found(tag="ci") == "ab"
    assert found(tag=["ci", "main"]) == "a"
    assert found(tag="CI") == ""
    assert found(query="NIGHTLY") == "ab"
    assert found(query="50%") == "a"
    assert found(query="y_r") == "b", "no pattern: _ stands for itself"
    assert found(query="nightly", tag="main") == "a"
    assert found(queue="cpu:x86-64-v3") == "c"
    assert found(model="0" * 64) == ""
    assert (found(since=middle), found(until=middle)) == ("bc", "a")
    assert client.get("/jobs?tag=ci", headers=stranger).json()["jobs"] == []
    for wrong in ({"tag": "a b"}, {"query": ""}, {"since": "yesterday"}, {"model": "x"}):
        assert client.get("/jobs", params=wrong).status_code == 400


def test_a_job_and_a_model_are_called_otherwise_afterwards(client: TestClient, stranger: dict[str, str]) -> None:
    job = submit(client, **SAID)
    for path in (f"/jobs/{job['id']}", f"/models/{job['model']}"):
        changed = client.patch(path, json={"name": "best", "tags": ["x", "y", "x"]}).json()
        assert (changed["name"], changed["tags"]) == ("best", ["x", "y"])
        assert client.patch(path, json={"tags": None}).json()["tags"] == []
        kept = client.get(path).json()
        assert (kept["name"], kept["tags"]) == ("best", [])
        assert client.patch(path, json={"name": "hers"}, headers=stranger).status_code == 404
        assert client.get(path).json()["name"] == "best"
    assert client.get(f"/jobs/{job['id']}").json()["note"] == SAID["note"], "what is left out stays"


def test_models_are_found_by_what_they_are_called(client: TestClient) -> None:
    digests = [client.post("/models", content=bytes([n])).json()["digest"] for n in range(3)]
    client.patch(f"/models/{digests[0]}", json={"name": "ResNet", "tags": ["vision"]})
    client.patch(f"/models/{digests[1]}", json={"note": "a resnet too", "tags": ["vision", "old"]})

    def found(query: str) -> list[int]:
        return sorted(digests.index(one["digest"]) for one in client.get(f"/models?{query}").json()["models"])

    assert found("tag=vision") == [0, 1]
    assert found("tag=vision&tag=old") == [1]
    assert found("query=resnet") == [0, 1]
    assert found("query=resnet&tag=old&limit=1") == [1]
    assert found("") == [0, 1, 2]


def test_a_claim_says_how_long_the_attempt_may_take(client: TestClient, claimed: Callable[..., lease.Claim]) -> None:
    submit(client, max_run_s=7.5)
    assert claimed().max_run_s == 7.5


@any_database
def test_of_several_jobs_each_is_called_the_same(client: TestClient, db: Database) -> None:
    options = json.dumps([{"threads": 1}, {"threads": 2}])
    made = client.post("/compile", files={"model": b"m"}, data={"options": options}, params={"tag": ["a", "b"]}).json()
    assert [job["tags"] for job in made["jobs"]] == [["a", "b"]] * 2
