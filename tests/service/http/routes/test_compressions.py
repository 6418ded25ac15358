"""`POST /compressions`: what becomes of the request, and of what a worker hands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from tests.service.http.routes.test_compile import problem


def sent(client: TestClient, options: str = '{"sparsity": 0.8}', **others: Any) -> Any:
    files = [("model", ("m.onnx", b"onnx")), ("samples", ("a.npz", b"one"))]
    return client.post("/compressions", files=files, data={"options": options}, **others)


@any_database
def test_a_model_its_samples_and_options_reach_a_worker_of_the_target(
    client: TestClient, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    answer = sent(client, '{"largest_error": 0.05, "form": "1x4"}')
    assert answer.status_code == 202
    said = answer.json()
    assert (said["kind"], said["state"], said["queue"]) == ("compression", "QUEUED", "cpu")
    assert (said["options"]["largest_error"], said["options"]["form"], said["artifact_id"]) == (0.05, "1x4", None)
    claim = claimed()
    assert (claim.kind, claim.options) == ("compression", said["options"])
    assert [blobs.path(one.key).read_bytes() for one in claim.samples] == [b"one"]


def test_what_was_made_is_a_model_of_the_owner_alone(
    client: TestClient, db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    job = sent(client).json()["id"]
    made = blobs.put_bytes(b"pruned")
    report = {"layers": [{"node": "a", "sparsity": 0.8}], "curve": [], "error": 0.01}
    claim = claimed()
    assert lease.succeed(db, claim, made=made, report=report)
    assert lease.succeed(db, claim, made=made, report=report), "an answer that was lost"
    found = client.get(f"/jobs/{job}").json()
    assert found["state"] == "SUCCEEDED"
    assert found["links"]["compressed"] == f"/models/{made.sha256}/file"
    assert client.get(found["links"]["compressed"]).content == b"pruned"
    assert client.get(f"/jobs/{job}/report").json()["report"] == {**report, "compressed_model": made.sha256}
    assert [one["id"] for one in client.get("/jobs?kind=compression").json()["jobs"]] == [job]
    client.delete(f"/models/{made.sha256}").raise_for_status()
    assert client.get(f"/models/{made.sha256}").status_code == 404


def test_a_fenced_out_worker_makes_no_model(
    client: TestClient, db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    sent(client)
    claim = claimed()
    lease.release(db, claim)
    claimed()
    made = blobs.put_bytes(b"late")
    assert not lease.succeed(db, claim, made=made, report={})
    assert client.get(f"/models/{made.sha256}").status_code == 404


@any_database
def test_the_same_request_with_the_same_key_makes_one_job(client: TestClient) -> None:
    key = {"Idempotency-Key": "k"}
    first, again = sent(client, headers=key), sent(client, headers=key)
    assert first.json()["id"] == again.json()["id"]
    problem(sent(client, '{"sparsity": 0.7}', headers=key), 422, "idempotency_key_reused")


@any_database
def test_options_that_say_too_little_or_too_much_are_refused_by_name(client: TestClient) -> None:
    for options, said in (
        ("{}", "how far to go"),
        ('{"sparsity": 0.5, "latency_ms": 1}', "given together"),
        ('{"sparsity": 1.5}', "sparsity"),
        ('{"sparsity": 0.5, "form": "3:4"}', "form"),
    ):
        assert said in problem(sent(client, options), 422, "invalid_options")["detail"]
    problem(client.post("/compressions", json={"model": "0" * 64, "options": {"sparsity": 0.5}}), 404, "not_found")
    assert not client.get("/jobs").json()["jobs"]
