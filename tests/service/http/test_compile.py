from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import Blobs
from service.jobs import lease

RAW = {"Content-Type": "application/octet-stream"}


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["status"] == status
    assert {"type", "title", "detail", "instance", "fault", "fix", "refusals", "details"} <= set(body)
    assert body["fix"]
    return body


def test_a_multipart_request_is_accepted_with_the_id_of_its_artifact(
    client: TestClient, ring: Any, blobs: Blobs, claimed: Callable[..., lease.Claim]
) -> None:
    answer = client.post("/compile", files={"model": b"onnx bytes"}, data={"options": '{"threads": 2}'})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}" == job["links"]["self"]
    assert (job["state"], job["options"]["threads"], job["cached"]) == ("QUEUED", 2, False)
    assert uuid.UUID(job["artifact_id"]).version == 7
    assert ring.rung == ["cpu"]
    claim = claimed()
    assert str(claim.job_id) == job["id"]
    assert blobs.path(claim.model_key).read_bytes() == b"onnx bytes"
    assert claim.model_digest == job["model"]


def test_a_raw_body_takes_its_options_from_the_query(client: TestClient) -> None:
    answer = client.post("/compile", content=b"m", params={"options": '{"seed": 7}'}, headers=RAW)
    assert answer.status_code == 202
    assert answer.json()["options"]["seed"] == 7


def test_options_may_be_left_out(client: TestClient) -> None:
    assert client.post("/compile", files={"model": b"m"}).json()["options"]["target"] == "cpu"
    assert client.post("/compile", content=b"m2", headers=RAW).status_code == 202


def test_a_streamed_body_arrives_whole(client: TestClient, blobs: Blobs, claimed: Callable[..., lease.Claim]) -> None:
    def chunks() -> Iterator[bytes]:
        for number in range(90):
            yield bytes([number]) * 1000

    assert client.post("/compile", content=chunks(), headers=RAW).status_code == 202
    assert blobs.path(claimed().model_key).read_bytes() == b"".join(chunks())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ('{"threads": 0}', "threads"),
        ('{"target": "tpu"}', "target"),
        ('{"thread": 1}', "'thread'"),
        ('{"inputs": {"x": "big"}}', "inputs['x']"),
        ('{"dims": {"n": -1}}', "dims['n']"),
        ('{"tuning_budget_s": NaN}', "JSON"),
        ('{"tolerance": 1e999}', "infinite"),
        ('{"dims": {"a\\u0000": 1}}', "U+0000"),
        ('{"dims": {"\\ud800": 1}}', "surrogate"),
        ("[]", "object"),
        ("{", "JSON"),
    ],
)
@pytest.mark.parametrize("form", ["multipart", "raw"])
def test_bad_options_are_refused_at_once_and_named(
    client: TestClient, ring: Any, options: str, named: str, form: str
) -> None:
    if form == "raw":
        answer = client.post("/compile", content=b"m", params={"options": options}, headers=RAW)
    else:
        answer = client.post("/compile", files={"model": b"m"}, data={"options": options})
    said = problem(answer, 422, "invalid_options")
    assert named in said["detail"]
    assert said["fault"] == "caller"
    assert client.get("/jobs").json()["jobs"] == []
    assert ring.rung == []


def test_options_nested_too_deeply_are_refused(client: TestClient) -> None:
    answer = client.post("/compile", files={"model": b"m"}, data={"options": "[" * 100_000})
    assert "JSON" in problem(answer, 422, "invalid_options")["detail"]


def test_a_model_that_is_no_model_is_accepted_here(client: TestClient) -> None:
    assert client.post("/compile", files={"model": b"\0garbage"}).status_code == 202


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"files": {"model": b""}}, "missing or empty"),
        ({"files": {"modle": b"m"}}, "'modle'"),
        ({"files": [("model", b"a"), ("model", b"b")]}, "twice"),
        ({"content": b"", "headers": RAW}, "missing or empty"),
        ({"json": {"model": "x"}}, "application/json"),
        ({"content": b"--b\r\nbroken", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, "multipart"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, "boundary"),
        (
            {
                "content": b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nhalf a mod',
                "headers": {"Content-Type": "multipart/form-data; boundary=b"},
            },
            "cut off",
        ),
        ({"files": {"model": b"m"}, "data": {"options": "{}"}, "params": {"options": "{}"}}, "twice"),
    ],
)
def test_a_body_of_another_form_is_refused_with_its_reason(
    client: TestClient, blobs: Blobs, request_: dict[str, Any], named: str
) -> None:
    assert named in problem(client.post("/compile", **request_), 400, "bad_request")["detail"]
    assert list(blobs.temporary.iterdir()) == []


def test_the_size_limit_holds_for_announced_streamed_and_multipart_bodies(client: TestClient, blobs: Blobs) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(101):
            yield bytes(1000)

    big = bytes(100_001)
    for request_ in (
        {"content": big, "headers": RAW},
        {"content": chunks(), "headers": RAW},
        {"files": {"model": big}},
    ):
        answer = client.post("/compile", **request_)
        assert problem(answer, 413, "body_too_large")["details"] == {"limit_bytes": 100_000}
    assert list(blobs.temporary.iterdir()) == []
    assert client.post("/compile", content=bytes(100_000), headers=RAW).status_code == 202


def test_an_idempotency_key_is_honoured(client: TestClient, stranger: dict[str, str]) -> None:
    key = {"Idempotency-Key": "k1"}
    first = client.post("/compile", files={"model": b"m"}, headers=key)
    again = client.post("/compile", content=b"m", headers={**RAW, **key})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    problem(client.post("/compile", files={"model": b"other"}, headers=key), 422, "idempotency_key_reused")
    elsewhere = client.post("/compile", files={"model": b"other"}, headers={**key, **stranger})
    assert elsewhere.status_code == 202, "keys belong to their owner"


def test_the_cache_answers_at_once_unless_fresh(
    client: TestClient, finish: Callable[..., lease.Claim], ring: Any, stranger: dict[str, str]
) -> None:
    first = client.post("/compile", files={"model": b"m"}).json()
    finish()
    hit = client.post("/compile", files={"model": b"m"}).json()
    assert (hit["state"], hit["cached"], hit["artifact_id"]) == ("SUCCEEDED", True, first["artifact_id"])
    assert client.get(f"/artifacts/{hit['artifact_id']}").content == b"artifact"
    assert ring.rung == ["cpu"]
    assert client.post("/compile?fresh=1", files={"model": b"m"}).json()["state"] == "QUEUED"
    assert client.post("/compile", files={"model": b"m"}, headers=stranger).json()["state"] == "QUEUED"


def test_a_full_queue_answers_429(client: TestClient) -> None:
    for number in range(5):
        assert client.post("/compile", files={"model": f"m{number}"}).status_code == 202
    answer = client.post("/compile", files={"model": "one more"})
    problem(answer, 429, "queue_full")
    assert int(answer.headers["retry-after"]) > 0


def test_a_broken_broker_does_not_fail_the_request(client: TestClient, ring: Any) -> None:
    ring.broken = True
    assert client.post("/compile", files={"model": b"m"}).status_code == 202


def test_a_full_disk_is_said_to_be_one(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    said = problem(client.post("/compile", files={"model": b"m"}), 507, "storage_unavailable")
    assert "No space left" in said["detail"]
    monkeypatch.undo()
    assert json.loads(client.get("/jobs").content)["jobs"] == []
