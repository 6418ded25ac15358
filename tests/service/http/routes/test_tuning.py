"""`GET /jobs/{id}/tuning`: what searches told of themselves, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from compiler.contract import Event
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database


def said(elapsed_s: float, best_s: float, *tried: tuple[str, int, float, float, bool], **more: Any) -> Event:
    names = ("kernel", "candidate", "predicted_s", "measured_s", "again")
    plain = [{**dict(zip(names, one, strict=True)), "name": f"op {one[0]}", "uses": 2} for one in tried]
    data = {
        "elapsed_s": elapsed_s,
        "spent": 0.5,
        "measured": 3,
        "legal": 9,
        "kernels": 2,
        "unmeasured_kernels": 0,
        "best_s": best_s,
        "promising": None,
        "expected_gain_s": None,
        "exhausted": False,
        "tried": plain,
        **more,
    }
    return Event("tuning", "tile", 0.4, data=data)


@any_database
def test_points_and_candidates_are_those_that_were_told(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim], stranger: dict[str, str]
) -> None:
    job = client.post("/compile", files={"model": b"m"}).json()
    path = f"/jobs/{job['id']}/tuning"
    empty = client.get(path).json()
    assert (empty["points"], empty["kernels"], empty["legal"], empty["state"]) == ([], [], 0, "QUEUED")
    events = [
        said(1.0, 5.0, ("k", 0, 1.0, 2.0, False), ("k", 1, 1.0, 1.5, False)),
        said(2.0, 4.0, ("l", 0, 3.0, 3.5, False), promising=4, expected_gain_s=0.25),
        said(2.5, 4.5, ("k", 1, 1.0, 1.75, True)),
        said(0.5, 9.0, ("k", 0, 1.0, 1.6, False), exhausted=True),
    ]
    assert lease.heartbeat(db, claimed(), events) == "ok"
    found = client.get(path).json()
    assert [point["best_s"] for point in found["points"]] == [5.0, 4.0, 4.5, 9.0]
    assert [point["attempt_began_again"] for point in found["points"]] == [False, False, False, True]
    assert [point["expected_gain_s"] for point in found["points"]] == [None, 0.25, None, None]
    assert [point["exhausted"] for point in found["points"]] == [False, False, False, True]
    first, second = found["kernels"]
    assert (first["workload"], first["operator"], first["uses"]) == ("k", "op k", 2)
    assert [one["point"] for one in first["candidates"]] == [0, 0, 2, 3]
    assert [one["candidate"] for one in first["candidates"]] == [0, 1, 1, 0]
    assert first["best_s"] == 1.6, "of candidate 1 the second measurement counts, of 0 that of the next search"
    assert second["best_s"] == 3.5
    assert client.get(path, headers=stranger).status_code == 404


@any_database
def test_the_forecast_goes_from_the_last_point_to_the_end_of_the_budget(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    job = client.post("/compile", files={"model": b"m"}).json()
    path = f"/jobs/{job['id']}/tuning"
    assert client.get(path).json()["forecast"] is None
    rest = {"promising": 2, "expected_gain_s": 2.0, "gains": [[1, 1.5], [2, 2.0]]}
    rest |= {"budget_s": 20.0, "left_s": 5.0, "each_s": 1.0}
    events = [said(1.0, 5.0), said(2.0, 4.0, **rest)]
    assert lease.heartbeat(db, claimed(), events) == "ok"
    found = client.get(path).json()
    assert [point["expected_s"] for point in found["points"]] == [None, 2.0]
    assert found["forecast"] == [
        {"elapsed_s": 2.0, "measured": 3, "best_s": 4.0},
        {"elapsed_s": 3.0, "measured": 4, "best_s": 2.5},
        {"elapsed_s": 4.0, "measured": 5, "best_s": 2.0},
        {"elapsed_s": 12.0, "measured": 5, "best_s": 2.0},
    ]


@any_database
def test_plans_that_the_job_ran_stand_beside_its_search(
    client: TestClient, finish: Callable[..., lease.Claim], record: dict[str, Any]
) -> None:
    job = client.post("/compile", files={"model": b"m"}).json()
    compared = {"scheduler": "early_start", "ratio": 0.5, "low": 0.4, "high": None}
    plan = {**record, "kind": "plan", "threads": 2, "seconds": 0.25, "variant": compared}
    finish(records=(record, plan))
    (reported,) = client.get(f"/jobs/{job['id']}/tuning").json()["plans"]
    assert reported.pop("at") is not None
    assert reported == {"elapsed_s": None, "lanes": 2, "measured_s": 0.25, **compared}
