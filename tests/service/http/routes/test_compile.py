from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.jobs.scheduling import lease
from tests.service.databases import any_database

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
    client: TestClient, ring: Any, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    answer = client.post("/compile", files={"model": b"onnx bytes"}, data={"options": '{"threads": 2}'})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}" == job["links"]["self"]
    assert (job["state"], job["options"]["threads"], job["cached"]) == ("QUEUED", 2, False)
    assert uuid.UUID(job["artifact_id"]).version == 7
    assert ring.rung == ["cpu"]
    assert [str(one) for one in ring.jobs] == [job["id"]]
    claim = claimed()
    assert str(claim.job_id) == job["id"]
    assert blobs.path(claim.inputs[0].key).read_bytes() == b"onnx bytes"
    assert claim.model_digest == job["model"]


def test_a_raw_body_takes_its_options_from_the_query(client: TestClient) -> None:
    answer = client.post("/compile", content=b"m", params={"options": '{"seed": 7}'}, headers=RAW)
    assert answer.status_code == 202
    assert answer.json()["options"]["seed"] == 7


def test_options_may_be_left_out(client: TestClient) -> None:
    assert client.post("/compile", files={"model": b"m"}).json()["options"]["target"] == "cpu"
    assert client.post("/compile", content=b"m2", headers=RAW).status_code == 202


def test_a_streamed_body_arrives_whole(
    client: TestClient, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    def chunks() -> Iterator[bytes]:
        for number in range(90):
            yield bytes([number]) * 1000

    assert client.post("/compile", content=chunks(), headers=RAW).status_code == 202
    assert blobs.path(claimed().inputs[0].key).read_bytes() == b"".join(chunks())


@any_database
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
        ("[]", "list of 0"),
        ("3", "object"),
        ('[{}, {"threads": 0}]', "options[1]: threads"),
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


@pytest.mark.parametrize("depth", [600, 100_000])
def test_options_nested_too_deeply_are_refused(client: TestClient, depth: int) -> None:
    nested = f'{{"dims": {"[" * depth}{"]" * depth}}}'
    answer = client.post("/compile", files={"model": b"m"}, data={"options": nested})
    problem(answer, 422, "invalid_options")


def test_a_target_has_a_name_of_bounded_length(client: TestClient) -> None:
    options = json.dumps({"target": "cpu:" + "a" * 300})
    answer = client.post("/compile", files={"model": b"m"}, data={"options": options})
    assert "target" in problem(answer, 422, "invalid_options")["detail"]


def test_a_model_that_is_no_model_is_accepted_here(client: TestClient) -> None:
    assert client.post("/compile", files={"model": b"\0garbage"}).status_code == 202


@any_database
@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"files": {"model": b""}}, "missing or empty"),
        ({"files": {"modle": b"m"}}, "'modle'"),
        ({"files": [("model", b"a"), ("model", b"b")]}, "twice"),
        ({"content": b"", "headers": RAW}, "missing or empty"),
        ({"content": b"x", "headers": {"Content-Type": "text/html"}}, "text/html"),
        ({"json": {"model": "x"}}, "model: "),
        ({"json": {"model": "0" * 64, "fesh": True}}, "fesh: "),
        ({"json": {"model": "0" * 64, "priority": 11}}, "priority: "),
        ({"json": {"model": "0" * 64, "options": {}}, "params": {"options": "{}"}}, "twice"),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, "no JSON"),
        ({"content": b"--b\r\nbroken", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, "multipart"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, "boundary"),
        ({"content": b"x", "headers": {"Content-Type": f"multipart/form-data; boundary={'b' * 300}"}}, "multipart"),
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
    client: TestClient, blobs: LocalBlobs, request_: dict[str, Any], named: str
) -> None:
    assert named in problem(client.post("/compile", **request_), 400, "bad_request")["detail"]
    assert list(blobs.temporary.iterdir()) == []


def test_the_size_limit_holds_for_announced_streamed_and_multipart_bodies(
    client: TestClient, blobs: LocalBlobs
) -> None:
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


@pytest.fixture
def digest(client: TestClient) -> str:
    """Of an uploaded model."""
    return str(client.post("/models", content=b"onnx bytes", headers=RAW).json()["digest"])


def test_an_uploaded_model_is_compiled_by_its_digest(
    client: TestClient, digest: str, claimed: Callable[..., lease.Claim], blobs: LocalBlobs
) -> None:
    answer = client.post("/compile", json={"model": digest, "options": {"threads": 2}, "priority": -3})
    job = answer.json()
    assert (answer.status_code, job["model"], job["options"]["threads"], job["priority"]) == (202, digest, 2, -3)
    assert blobs.path(claimed().inputs[0].key).read_bytes() == b"onnx bytes"
    assert client.post("/compile", content=b"onnx bytes", headers=RAW).json()["model"] == digest


def test_a_digest_that_is_not_there_is_refused_with_where_to_send_it(
    client: TestClient, digest: str, stranger: dict[str, str]
) -> None:
    said = problem(client.post("/compile", json={"model": "0" * 64}), 404, "not_found")
    assert "POST /models" in said["fix"]
    problem(client.post("/compile", json={"model": digest}, headers=stranger), 404, "not_found")


@pytest.mark.parametrize("form", ["json", "raw", "multipart"])
def test_a_list_of_options_makes_a_job_for_each(client: TestClient, digest: str, ring: Any, form: str) -> None:
    several = [{"threads": 1}, {"target": "cpu:x86-64-v3"}]
    if form == "json":
        answer = client.post("/compile", json={"model": digest, "options": several})
    elif form == "raw":
        answer = client.post("/compile", content=b"onnx bytes", params={"options": json.dumps(several)}, headers=RAW)
    else:
        answer = client.post("/compile", files={"model": b"onnx bytes"}, data={"options": json.dumps(several)})
    jobs = answer.json()["jobs"]
    assert answer.status_code == 202
    assert [job["model"] for job in jobs] == [digest, digest]
    assert [job["options"]["threads"] for job in jobs] == [1, None]
    assert ring.rung == ["cpu", "cpu:x86-64-v3"]
    assert len({job["artifact_id"] for job in jobs}) == 2


def test_a_list_of_options_that_does_not_fit_the_queue_makes_no_job(client: TestClient, digest: str, ring: Any) -> None:
    several = [{"seed": seed} for seed in range(6)]
    problem(client.post("/compile", json={"model": digest, "options": several}), 429, "queue_full")
    assert client.get("/jobs").json()["jobs"] == []
    assert ring.rung == []
    many = [{"seed": seed} for seed in range(65)]
    problem(client.post("/compile", json={"model": digest, "options": many}), 422, "invalid_options")


def test_a_list_repeated_with_its_idempotency_key_gives_the_same_jobs(client: TestClient, digest: str) -> None:
    def ask(options: Any) -> Any:
        return client.post("/compile", json={"model": digest, "options": options}, headers={"Idempotency-Key": "k"})

    first = ask([{"threads": 1}, {"threads": 2}])
    again = ask([{"threads": 1}, {"threads": 2}])
    assert [job["id"] for job in again.json()["jobs"]] == [job["id"] for job in first.json()["jobs"]]
    assert again.headers["idempotent-replayed"] == "true"
    for other in ([{"threads": 1}], [{"threads": 1}, {"threads": 3}], {"threads": 1}):
        problem(ask(other), 422, "idempotency_key_reused")


def test_a_list_is_answered_from_the_cache_where_it_can_be(
    client: TestClient, digest: str, finish: Callable[..., lease.Claim]
) -> None:
    client.post("/compile", json={"model": digest})
    finish()
    jobs = client.post("/compile", json={"model": digest, "options": [{}, {"seed": 9}]}).json()["jobs"]
    assert [job["state"] for job in jobs] == ["SUCCEEDED", "QUEUED"]
    assert client.post("/compile", json={"model": digest, "fresh": True}).json()["state"] == "QUEUED"


def test_only_an_admin_raises_the_priority(client: TestClient, digest: str, stranger: dict[str, str]) -> None:
    problem(client.post("/compile", json={"model": digest, "priority": 1}), 403, "not_allowed")
    problem(client.post("/compile?priority=1", content=b"m", headers=RAW), 403, "not_allowed")
    raised = client.post("/compile?priority=10", content=b"m", headers={**RAW, **stranger})
    assert (raised.status_code, raised.json()["priority"]) == (202, 10)


def test_external_data_comes_along_as_parts_or_in_a_zip(
    client: TestClient, claimed: Callable[..., lease.Claim], zipped: Callable[..., bytes]
) -> None:
    files = [("model", b"onnx"), ("data", ("w/a.bin", b"aa")), ("data", ("b.bin", b"b"))]
    parts = client.post("/compile", files=files, data={"options": '{"threads": 3}'})
    assert parts.status_code == 202, parts.json()
    claim = claimed()
    assert [file.name for file in claim.inputs] == ["model", "b.bin", "w/a.bin"]
    body = zipped({"x/m.onnx": b"onnx", "x/w/a.bin": b"aa", "x/b.bin": b"b"})
    packed = client.post("/compile", content=body, headers={"Content-Type": "application/zip"})
    assert packed.json()["model"] == parts.json()["model"]
