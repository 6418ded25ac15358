"""What one request with a list of options asked for: as one thing to look at, to cancel and to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database

SEVERAL = [{"threads": 1}, {"threads": 2}, {"threads": 4}]


def submit(client: TestClient, options: list[dict[str, Any]], **said: Any) -> dict[str, Any]:
    digest = client.post("/models", content=b"m").json()["digest"]
    answer = client.post("/compile", json={"model": digest, "options": options, **said})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/batches/{made['batch']}"
    return made


def test_a_batch_is_listed_and_looked_at_with_its_jobs_in_the_order_of_the_request(
    client: TestClient, claimed: Callable[..., lease.Claim], stranger: dict[str, str]
) -> None:
    older, made = submit(client, SEVERAL[:1]), submit(client, SEVERAL)
    alone = client.post("/compile", json={"model": made["jobs"][0]["model"], "fresh": True}).json()
    assert (alone["batch"], "batch" in alone["links"]) == (None, False)
    claimed()
    shown = client.get(f"/batches/{made['batch']}").json()
    assert [job["id"] for job in shown["jobs"]] == [job["id"] for job in made["jobs"]]
    assert [job["links"]["batch"] for job in shown["jobs"]] == [f"/batches/{made['batch']}"] * 3
    assert (shown["states"], shown["ended"]) == ({"QUEUED": 3}, False), "the older one was claimed"
    first = client.get("/batches?limit=1").json()
    rest = client.get("/batches", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [one["id"] for one in first["batches"] + rest["batches"]] == [made["batch"], older["batch"]]
    assert (rest["batches"][0]["states"], rest["next_cursor"]) == ({"LEASED": 1}, None)
    listed = client.get(shown["links"]["jobs"]).json()["jobs"]
    assert {job["id"] for job in listed} == {job["id"] for job in made["jobs"]}
    for path in (shown["links"]["self"], shown["links"]["comparison"]):
        assert client.get(path, headers=stranger).status_code == 404
    assert client.get("/batches", headers=stranger).json()["batches"] == []


def test_a_batch_is_cancelled_as_one(
    client: TestClient, db: Database, finish: Callable[..., lease.Claim], claimed: Callable[..., lease.Claim]
) -> None:
    made = submit(client, SEVERAL)
    done = str(finish().job_id)
    running = claimed()
    answer = client.post(f"/batches/{made['batch']}/cancel")
    assert (answer.status_code, answer.json()["ended"]) == (202, False)
    states = {job["id"]: (job["state"], job["cancel_requested"]) for job in answer.json()["jobs"]}
    assert states.pop(done) == ("SUCCEEDED", False)
    assert states.pop(str(running.job_id)) == ("LEASED", True)
    assert list(states.values()) == [("CANCELLED", False)]
    lease.cancelled(db, running)
    again = client.post(f"/batches/{made['batch']}/cancel")
    assert (again.status_code, again.json()["states"]) == (200, {"SUCCEEDED": 1, "CANCELLED": 2})


def test_what_failed_of_a_batch_is_tried_again_once_and_the_rest_stays(
    client: TestClient, db: Database, finish: Callable[..., lease.Claim], claimed: Callable[..., lease.Claim]
) -> None:
    made = submit(client, SEVERAL, tags=["nightly"], priority=-2)
    here = f"/batches/{made['batch']}/retry"
    assert finish()
    problem = {"code": "time_limit", "fault": "machine", "message": "m"}
    lease.fail(db, claimed(), problem)
    client.post(f"/jobs/{made['jobs'][2]['id']}/cancel")
    answer = client.post(here)
    assert answer.status_code == 202, answer.text
    said = answer.json()
    assert said["states"] == {"SUCCEEDED": 1, "FAILED": 1, "CANCELLED": 1, "QUEUED": 2}
    tried = [job for job in said["jobs"] if job["cloned_from"]]
    assert [job["cloned_from"] for job in tried] == [job["id"] for job in made["jobs"][1:]]
    for job, old in zip(tried, made["jobs"][1:], strict=True):
        same = ("options", "model", "tags", "priority", "batch")
        assert {name: job[name] for name in same} == {name: old[name] for name in same}
    assert client.post(here).json()["states"] == said["states"], "they wait already"
    lease.fail(db, claimed(), problem)
    again = client.post(here).json()
    assert again["states"] == {"SUCCEEDED": 1, "FAILED": 2, "CANCELLED": 1, "QUEUED": 2}
    assert client.post(f"/batches/{made['jobs'][0]['id']}/retry").status_code == 404


def test_compilations_are_compared_by_what_differs_what_came_of_them_and_what_benchmarks_found(
    client: TestClient, db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    made = submit(client, SEVERAL)
    latencies = [0.004, 0.002]
    for seconds in latencies:
        claim = claimed()
        errors = [{"output": "y", "max_absolute": 1e-6, "max_relative": seconds / 10, "max_ulp": 2.0}]
        report = {"latency_s": seconds, "artifact_bytes": 100, "kernels": 3, "errors": errors, "target": "cpu"}
        assert lease.succeed(
            db, claim, made=blobs.put_bytes(b"a" * 100), report=report, circumstances={}, measured=lease.Measured()
        )
    lease.fail(db, claimed(), {"code": "time_limit", "fault": "machine", "message": "m"})
    artifacts = [job["artifact_id"] for job in made["jobs"][:2]]
    timed = client.post("/benchmarks", json={"artifacts": artifacts}).json()["id"]
    run = lease.claim(db, "w", ["run:cpu"], 60.0)
    assert run is not None
    found = [{"artifact": one, "median_s": median} for one, median in zip(artifacts, (0.003, 0.001), strict=True)]
    assert lease.succeed(db, run, {"artifacts": found})

    compared = client.get(f"/batches/{made['batch']}/comparison").json()
    assert [one["options"] for one in compared["jobs"]] == SEVERAL, "and no option that is the same in all"
    assert [one["figures"].get("latency_s") for one in compared["jobs"]] == [0.004, 0.002, None]
    assert compared["jobs"][0]["figures"] == {
        "latency_s": 0.004,
        "artifact_bytes": 100,
        "kernels": 3,
        "largest_error": 0.0004,
    }
    assert compared["fastest"] == made["jobs"][1]["id"]
    assert compared["jobs"][2]["problem"]["code"] == "time_limit"
    medians = [[(one["benchmark"], one["median_s"]) for one in entry["benchmarks"]] for entry in compared["jobs"]]
    assert medians == [[(timed, 0.003)], [(timed, 0.001)], []]

    asked = [made["jobs"][at]["id"] for at in (1, 0)]
    some = client.get("/comparison", params={"job": asked}).json()
    assert [one["job"] for one in some["jobs"]] == asked
    refused = client.get("/comparison", params={"job": [asked[0], timed]})
    assert (refused.status_code, refused.json()["code"]) == (422, "wrong_kind")


@any_database
def test_a_batch_is_its_jobs_and_gone_with_the_last_of_them(client: TestClient, stranger: dict[str, str]) -> None:
    made = submit(client, SEVERAL[:2])
    assert client.post(f"/batches/{made['batch']}/cancel", headers=stranger).status_code == 404
    first, second = (job["id"] for job in made["jobs"])
    assert client.get("/comparison", params={"job": first}, headers=stranger).status_code == 404
    assert client.post(f"/jobs/{first}/purge").status_code == 200
    assert [job["id"] for job in client.get(f"/batches/{made['batch']}").json()["jobs"]] == [second]
    assert client.post(f"/jobs/{second}/purge").status_code == 200
    assert client.get(f"/batches/{made['batch']}").json()["code"] == "not_found"


@any_database
def test_a_batch_asked_for_again_by_its_key_is_the_same(client: TestClient) -> None:
    digest = client.post("/models", content=b"m").json()["digest"]
    asked: dict[str, Any] = {"json": {"model": digest, "options": SEVERAL}, "headers": {"Idempotency-Key": "k"}}
    first, again = client.post("/compile", **asked), client.post("/compile", **asked)
    assert first.json()["batch"] == again.json()["batch"]
    assert again.headers["idempotent-replayed"] == "true"


@any_database
def test_the_place_in_a_trace_goes_with_a_job(client: TestClient, claimed: Callable[..., lease.Claim]) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    digest = client.post("/models", content=b"m").json()["digest"]
    job = client.post("/compile", json={"model": digest}, headers={"traceparent": trace}).json()
    assert job["traceparent"] == trace
    log = client.get(f"/jobs/{job['id']}/log?format=json").json()
    assert log["events"][0]["traceparent"] == trace
    assert claimed().traceparent == trace
    for unusable in ("", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "01-x", trace + "-more"):
        other = client.post("/compile", json={"model": digest, "fresh": True}, headers={"traceparent": unusable})
        assert other.json()["traceparent"] is None
