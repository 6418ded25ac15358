from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.jobs import lease


@pytest.fixture
def jobs(client: TestClient, finish: Callable[..., lease.Claim], record: dict[str, Any]) -> list[dict[str, Any]]:
    made = []
    for number in range(2):
        made.append(client.post("/compile", files={"model": f"m{number}"}).json())
        measured = (
            {**record, "seconds": number + 0.5, "workload": f"w{number}"},
            {**record, "kind": "model", "operator": "Gemm", "hardware": f"hw-{number}", "target": f"cpu:t{number}"},
        )
        finish(records=measured)
    return made


def test_a_record_comes_back_as_it_was_measured(
    client: TestClient, jobs: list[dict[str, Any]], record: dict[str, Any]
) -> None:
    found = client.get("/tuning-records", params={"workload": "w0"}).json()["records"][0]
    assert {name: found[name] for name in record} == {**record, "seconds": 0.5, "workload": "w0"}
    assert (found["job"], found["model"]) == (jobs[0]["id"], jobs[0]["model"])
    assert client.get(f"/tuning-records/{found['id']}").json() == found


def test_every_filter_filters(client: TestClient, jobs: list[dict[str, Any]]) -> None:
    filters = {
        "kind": ("model", 2),
        "operator": ("Conv", 2),
        "workload": ("w1", 1),
        "target": ("cpu:t0", 1),
        "hardware": ("hw-1", 3),
        "device": ("hw-0", 1),
        "job": (jobs[0]["id"], 2),
        "model": (jobs[1]["model"], 2),
    }
    assert len(client.get("/tuning-records").json()["records"]) == 4
    for name, (value, count) in filters.items():
        answer = client.get("/tuning-records", params={name: value}).json()["records"]
        assert len(answer) == count, name
        assert client.get("/tuning-records", params={name: value, "operator": "Nothing"}).json()["records"] == []


def test_hardware_and_device_that_differ_are_refused(client: TestClient) -> None:
    assert client.get("/tuning-records?hardware=a&device=b").status_code == 400


def test_pages_are_joined_by_cursors(client: TestClient, jobs: list[dict[str, Any]]) -> None:
    everything = [found["id"] for found in client.get("/tuning-records").json()["records"]]
    seen, params = [], {"limit": "3"}
    while True:
        page = client.get("/tuning-records", params=params).json()
        seen += [found["id"] for found in page["records"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == everything == sorted(everything, reverse=True)
    assert len(seen) == 4
