from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.accounts import access
from service.jobs.scheduling import lease
from tests.service.conftest import RecordingRing

REPORT = {
    "rounds": 6,
    "artifacts": [{"artifact": "a", "samples_s": [0.1, 0.2], "median_s": 0.15}, {"artifact": "b", "samples_s": [0.3]}],
    "comparisons": [{"a": "a", "b": "b", "verdict": "a is faster by 2.00x ± 0.10"}],
    "notices": [],
}


@pytest.fixture
def artifacts(client: TestClient, finish: Callable[..., lease.Claim]) -> list[str]:
    """Two artifacts that are made."""
    made = []
    for model in ("m1", "m2"):
        made.append(client.post("/compile", files={"model": model}).json()["artifact_id"])
        finish(data=model.encode())
    return made


def run(db: Database, queue: str = "run:cpu") -> lease.Claim:
    claim = lease.claim(db, "w1", [queue], 60.0)
    assert claim is not None
    return claim


def test_a_benchmark_is_a_job_that_ends_in_a_report_and_a_verdict(
    client: TestClient, db: Database, artifacts: list[str], ring: RecordingRing
) -> None:
    options = {"seconds": 1.5, "profile": False}
    answer = client.post("/benchmarks", json={"artifacts": artifacts, "options": options})
    made = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/benchmarks/{made['id']}")
    assert (made["state"], made["artifacts"], made["queue_position"]) == ("QUEUED", artifacts, 0)
    assert made["options"] == {"threads": None, "seed": 0, "binding": None, "dims": {}, **options}
    assert (made["verdict"], made["report"]) == (None, None)
    assert ring.rung[-1] == "run:cpu"
    claim = run(db)
    assert [given.name for given in claim.inputs] == artifacts
    assert client.get(f"/benchmarks/{made['id']}").json()["state"] == "LEASED"
    assert lease.succeed(db, claim, REPORT)
    ended = client.get(f"/benchmarks/{made['id']}").json()
    assert (ended["state"], ended["fraction"], ended["report"]) == ("SUCCEEDED", 1.0, REPORT)
    assert ended["verdict"] == "a is faster by 2.00x ± 0.10"
    short = client.get(f"/benchmarks/{made['id']}?samples=false").json()["report"]
    assert short["artifacts"] == [{"artifact": "a", "median_s": 0.15}, {"artifact": "b"}]
    assert short["comparisons"] == REPORT["comparisons"]
    assert ended["links"]["job"] == f"/jobs/{made['id']}"
    assert client.get(f"/jobs/{made['id']}").json()["kind"] == "benchmark"


def test_a_benchmark_waits_for_artifacts_in_the_making_and_rings_for_nobody(
    client: TestClient, finish: Callable[..., lease.Claim], ring: RecordingRing
) -> None:
    promised = client.post("/compile", files={"model": "m"}).json()["artifact_id"]
    rung = len(ring.rung)
    made = client.post("/benchmarks", json={"artifacts": [promised]}).json()
    assert (made["blocked_by"], len(ring.rung)) == (1, rung)
    finish()
    assert client.get(f"/benchmarks/{made['id']}").json()["blocked_by"] == 0


def test_a_benchmark_of_what_is_never_made_fails_and_one_of_what_failed_is_refused(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    promised = client.post("/compile", files={"model": "m"}).json()["artifact_id"]
    made = client.post("/benchmarks", json={"artifacts": [promised]}).json()
    lease.fail(db, claimed(), {"code": "malformed_model", "fault": "caller", "message": "no", "fix": "x"})
    ended = client.get(f"/benchmarks/{made['id']}").json()
    assert (ended["state"], ended["problem"]["code"]) == ("FAILED", "artifact_never_made")
    answer = client.post("/benchmarks", json={"artifacts": [promised]})
    assert (answer.status_code, answer.json()["code"]) == (410, "artifact_never_made")


def with_sample(client: TestClient, asked: Any, *files: tuple[str, bytes], **others: Any) -> Any:
    """A benchmark's JSON and samples in a form."""
    samples = [("samples", file) for file in files]
    text = asked if isinstance(asked, str) else json.dumps(asked)
    return client.post("/benchmarks", data={"benchmark": text}, files=samples, **others)


def test_a_sample_goes_with_a_benchmark_to_the_worker(
    client: TestClient, db: Database, blobs: LocalBlobs, artifacts: list[str]
) -> None:
    key = {"Idempotency-Key": "s"}
    answer = with_sample(client, {"artifacts": artifacts, "priority": -1}, ("scans/a.npz", b"arrays"), headers=key)
    made = answer.json()
    assert (answer.status_code, made["artifacts"], made["priority"]) == (202, artifacts, -1)
    job = client.get(f"/jobs/{made['id']}").json()
    assert [(one["name"], one["bytes"]) for one in job["samples"]] == [("a.npz", 6)]
    again = with_sample(client, {"artifacts": artifacts, "priority": -1}, ("a.npz", b"arrays"), headers=key)
    assert again.json()["id"] == made["id"]
    other = with_sample(client, {"artifacts": artifacts, "priority": -1}, ("a.npz", b"others"), headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    claim = run(db)
    assert [(one.name, blobs.path(one.key).read_bytes()) for one in claim.samples] == [("a.npz", b"arrays")]


def test_a_form_that_asks_for_no_benchmark_is_refused_by_name(client: TestClient, artifacts: list[str]) -> None:
    sample, asked = ("a.npz", b"arrays"), {"artifacts": artifacts}
    for answer, status, said in (
        (with_sample(client, asked, sample, ("b.npz", b"more")), 400, "2 samples were sent"),
        (with_sample(client, "{", sample), 400, "the part 'benchmark' is not JSON"),
        (with_sample(client, {"artifacts": []}, sample), 400, "malformed"),
        (with_sample(client, {**asked, "options": {"dims": {"n": 3}}}, sample), 422, "whose sizes the sample says"),
        (client.post("/benchmarks", files={"samples": sample}), 400, "the part 'benchmark' is missing"),
        (client.post("/benchmarks", files={"model": sample}), 400, "unknown part 'model'"),
        (client.post("/benchmarks", content=b"x", headers={"Content-Type": "text/plain"}), 400, "'text/plain'"),
    ):
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.json()
        assert answer.json()["fix"]


def test_one_key_makes_one_benchmark(client: TestClient, artifacts: list[str]) -> None:
    key = {"Idempotency-Key": "k"}
    first = client.post("/benchmarks", json={"artifacts": artifacts}, headers=key)
    again = client.post("/benchmarks", json={"artifacts": artifacts}, headers=key)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = client.post("/benchmarks", json={"artifacts": artifacts[::-1]}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"artifacts": []}, 400, "bad_request"),
        ({"artifacts": [str(uuid.UUID(int=n)) for n in range(9)]}, 400, "bad_request"),
        ({"artifacts": [str(uuid.UUID(int=1))] * 2}, 400, "bad_request"),
        ({"artifacts": [str(uuid.UUID(int=1))]}, 404, "not_found"),
        ({"options": {"seconds": 0}}, 422, "invalid_options"),
        ({"options": {"second": 1}}, 422, "invalid_options"),
        ({"priority": 11}, 400, "bad_request"),
        ({"priority": 1}, 403, "not_allowed"),
        ({"more": 1}, 400, "bad_request"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    client: TestClient, artifacts: list[str], change: dict[str, Any], status: int, code: str
) -> None:
    answer = client.post("/benchmarks", json={"artifacts": artifacts, **change})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["fix"]


def test_any_key_may_step_back_and_an_admin_may_push_forward(
    client: TestClient, db: Database, artifacts: list[str]
) -> None:
    low = client.post("/benchmarks", json={"artifacts": artifacts, "priority": -10})
    assert (low.status_code, low.json()["priority"]) == (202, -10)
    admin = {"Authorization": f"Bearer {access.make_key(db, 'ada', ['admin'], 'test')}"}
    high = client.post("/benchmarks", json={"artifacts": artifacts, "priority": 10}, headers=admin)
    assert (high.status_code, high.json()["priority"]) == (202, 10)


def test_benchmarks_are_listed_newest_first_and_are_nobody_elses(
    client: TestClient, artifacts: list[str], stranger: dict[str, str]
) -> None:
    made = [client.post("/benchmarks", json={"artifacts": [artifact]}).json() for artifact in artifacts][::-1]
    page = client.get("/benchmarks?limit=1").json()
    rest = client.get("/benchmarks", params={"limit": 1, "cursor": page["next_cursor"]}).json()
    listed = page["benchmarks"] + rest["benchmarks"]
    assert [one["id"] for one in listed] == [one["id"] for one in made]
    assert [one["artifacts"] for one in listed] == [one["artifacts"] for one in made]
    assert rest["next_cursor"] is None
    compiled = client.get("/jobs?kind=compile").json()["jobs"][0]["id"]
    for path in (f"/benchmarks/{made[0]['id']}", f"/benchmarks/{compiled}"):
        headers = stranger if made[0]["id"] in path else {}
        assert client.get(path, headers=headers).status_code == 404
    assert client.post("/benchmarks", json={"artifacts": artifacts}, headers=stranger).status_code == 404
