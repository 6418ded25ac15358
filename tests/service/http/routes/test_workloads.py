"""Named workloads: kept by model and owner, and what jobs take of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.jobs.scheduling import lease
from service.jobs.storage import named_workloads
from tests.service.databases import any_database
from tests.service.http.test_roles import headers

SIZES = {"batch": 1, "seq": 32}


@pytest.fixture
def model(client: TestClient) -> str:
    return str(client.post("/models", content=b"a model").json()["digest"])


def named(client: TestClient, model: str, name: str = "chat-short", **dims: int) -> dict[str, Any]:
    answer = client.put(f"/models/{model}/workloads/{name}", json={"dims": dims or SIZES})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_workload_is_made_changed_listed_and_deleted(client: TestClient, model: str) -> None:
    made = named(client, model)
    assert (made["name"], made["model"], made["dims"]) == ("chat-short", model, SIZES)
    assert client.get(made["links"]["self"]).json() == made
    changed = named(client, model, seq=64)
    assert (changed["dims"], changed["created_at"]) == ({"seq": 64}, made["created_at"])
    named(client, model, "a-batch", batch=8)
    listed = client.get(f"/models/{model}/workloads").json()["workloads"]
    assert [one["name"] for one in listed] == ["a-batch", "chat-short"]
    assert client.delete(made["links"]["self"]).status_code == 204
    assert client.get(made["links"]["self"]).status_code == 404
    assert client.delete(made["links"]["self"]).status_code == 404


def test_workloads_are_their_owners_alone(client: TestClient, db: Database, model: str) -> None:
    named(client, model)
    other = headers(db, "bob", "compiler")
    assert client.post("/models", content=b"a model", headers=other).json()["digest"] == model
    assert client.get(f"/models/{model}/workloads", headers=other).json() == {"workloads": []}
    assert client.get(f"/models/{model}/workloads/chat-short", headers=other).status_code == 404
    assert client.delete(f"/models/{model}/workloads/chat-short", headers=other).status_code == 404
    assert client.get(f"/models/{model}/workloads/chat-short").status_code == 200


def test_a_workload_goes_with_its_model(client: TestClient, model: str) -> None:
    named(client, model)
    assert client.delete(f"/models/{model}").status_code == 200
    assert client.post("/models", content=b"a model").json()["digest"] == model
    assert client.get(f"/models/{model}/workloads").json() == {"workloads": []}


@any_database
@pytest.mark.parametrize("dims", [{}, {"seq": 0}, {"seq": "32"}, {"": 1}, {"seq": 2**31}], ids=str)
def test_sizes_that_are_none_are_refused(client: TestClient, model: str, dims: dict[str, Any]) -> None:
    answer = client.put(f"/models/{model}/workloads/w", json={"dims": dims})
    assert answer.status_code == 400
    assert client.get(f"/models/{model}/workloads").json() == {"workloads": []}


@any_database
def test_a_model_has_no_more_workloads_than_it_may(
    client: TestClient, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_workloads, "MOST", 1)
    named(client, model)
    assert client.put(f"/models/{model}/workloads/more", json={"dims": SIZES}).json()["code"] == "quota_exceeded"
    assert named(client, model, seq=8)["dims"] == {"seq": 8}, "what is there can still be changed"


@any_database
def test_a_compilation_takes_sizes_of_a_workload_as_opt_of_ranges_and_else_as_they_are(
    client: TestClient, model: str
) -> None:
    named(client, model)
    options = [{"dims": {"seq": {"min": 1, "max": 128}}}, {"dims": {"other": 4, "seq": 32}}]
    answer = client.post("/compile?workload=chat-short", json={"model": model, "options": options})
    assert answer.status_code == 202, answer.text
    assert [job["options"]["dims"] for job in answer.json()["jobs"]] == [
        {"batch": 1, "seq": {"min": 1, "opt": 32, "max": 128}},
        {"batch": 1, "other": 4, "seq": 32},
    ]


@any_database
@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"seq": 64}, "workload chat-short has seq=32"),
        ({"seq": {"min": 64, "max": 128}}, "workload chat-short has seq=32"),
        ([{"seq": 32}, {"seq": 64}], "several bindings"),
    ],
    ids=str,
)
def test_a_workload_that_the_options_exclude_is_refused(client: TestClient, model: str, dims: Any, said: str) -> None:
    named(client, model)
    answer = client.post("/compile?workload=chat-short", json={"model": model, "options": {"dims": dims}})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_options")
    assert said in answer.json()["detail"]
    assert client.get("/jobs").json()["jobs"] == []


@any_database
def test_a_benchmark_is_timed_at_the_sizes_of_a_workload(
    client: TestClient, finish: Callable[..., lease.Claim], model: str
) -> None:
    job = client.post("/compile", json={"model": model}).json()
    finish()
    named(client, model)
    asked = {"artifacts": [job["artifact_id"]], "workload": "chat-short"}
    assert client.post("/benchmarks", json=asked).json()["options"]["dims"] == SIZES
    both = client.post("/benchmarks", json={**asked, "options": {"dims": {"seq": 1}}})
    assert (both.status_code, both.json()["code"]) == (422, "invalid_options")
    unknown = client.post("/benchmarks", json={**asked, "workload": "other"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


@any_database
def test_models_whose_workloads_differ_are_not_timed_against_each_other(
    client: TestClient, finish: Callable[..., lease.Claim], model: str
) -> None:
    second = client.post("/models", content=b"another").json()["digest"]
    artifacts = [client.post("/compile", json={"model": one}).json()["artifact_id"] for one in (model, second)]
    named(client, model)
    asked = {"artifacts": artifacts, "workload": "chat-short"}
    assert client.post("/benchmarks", json=asked).status_code == 202, "one of the two says the sizes"
    named(client, second, seq=8)
    answer = client.post("/benchmarks", json=asked)
    assert answer.status_code == 422
    assert "different sizes" in answer.json()["detail"]
