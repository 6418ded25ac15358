"""`POST /quantizations`: what becomes of the request, and of what a worker hands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from tests.service.http.routes.test_compile import problem


def sent(client: TestClient, options: str = "{}", **others: Any) -> Any:
    files = [("model", ("m.onnx", b"onnx")), ("samples", ("a.npz", b"one")), ("samples", ("b.npz", b"two"))]
    return client.post("/quantizations", files=files, data={"options": options}, **others)


@any_database
def test_a_model_its_samples_and_options_reach_a_worker(
    client: TestClient, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    answer = sent(client, '{"ranges": "entropy", "snr_db": 25}')
    assert answer.status_code == 202
    said = answer.json()
    assert (said["kind"], said["state"], said["queue"]) == ("quantization", "QUEUED", "cpu")
    assert answer.headers["Location"] == f"/jobs/{said['id']}"
    assert (said["options"]["ranges"], said["options"]["snr_db"], said["artifact_id"]) == ("entropy", 25, None)
    claim = claimed()
    assert (claim.kind, claim.options) == ("quantization", said["options"])
    assert [one.name for one in claim.inputs] == ["model"]
    assert [blobs.path(one.key).read_bytes() for one in claim.samples] == [b"one", b"two"]


def test_what_was_made_is_a_model_of_the_owner(
    client: TestClient, db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    job = sent(client).json()["id"]
    made = blobs.put_bytes(b"quantised")
    report = {"layers": [{"node": "a", "precision": "int8"}], "outputs": [{"name": "y", "snr_db": None}]}
    claim = claimed()
    assert lease.succeed(db, claim, made=made, report=report)
    assert lease.succeed(db, claim, made=made, report=report), "an answer that was lost"
    found = client.get(f"/jobs/{job}").json()
    assert found["state"] == "SUCCEEDED"
    assert found["links"]["quantized"] == f"/models/{made.sha256}/file"
    assert client.get(found["links"]["quantized"]).content == b"quantised"
    assert client.get(f"/jobs/{job}/report").json()["report"] == {**report, "quantized_model": made.sha256}
    assert client.get(f"/models/{made.sha256}").json()["bytes"] == len(b"quantised")
    assert [one["id"] for one in client.get("/jobs?kind=quantization").json()["jobs"]] == [job]


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
def test_a_model_that_was_uploaded_is_named_by_its_digest(client: TestClient) -> None:
    digest = client.post("/models", content=b"onnx").json()["digest"]
    answer = client.post("/quantizations", json={"model": digest, "options": {"dims": {"n": 2}}, "tags": ["edge"]})
    assert answer.status_code == 202
    assert (answer.json()["model"], answer.json()["tags"]) == (digest, ["edge"])
    problem(client.post("/quantizations", json={"model": "0" * 64}), 404, "not_found")


@any_database
def test_the_same_request_with_the_same_key_makes_one_job(client: TestClient) -> None:
    key = {"Idempotency-Key": "k"}
    first, again = sent(client, headers=key), sent(client, headers=key)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    problem(sent(client, '{"seed": 1}', headers=key), 422, "idempotency_key_reused")


@any_database
def test_options_out_of_range_are_refused_by_name(client: TestClient) -> None:
    for options, name in (
        ('{"ranges": "widest"}', "ranges"),
        ('{"snr_db": 0}', "snr_db"),
        ('{"threads": 2}', "threads"),
    ):
        said = problem(sent(client, options), 422, "invalid_options")
        assert name in said["detail"]
    digest = client.post("/models", content=b"onnx").json()["digest"]
    problem(client.post("/quantizations", json={"model": digest, "fresh": True}), 400, "bad_request")
    assert not client.get("/jobs").json()["jobs"]
