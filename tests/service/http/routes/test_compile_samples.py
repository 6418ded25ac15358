"""Samples that are sent with a model: what of them a job has, and what is refused."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from compiler.contract import MOST_SAMPLES
from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.operations.retention import collect
from service.jobs.scheduling import lease
from tests.service.http.routes.test_compile import problem

Part = tuple[str, tuple[str, bytes]]


def sample(content: bytes = b"arrays", name: str = "a.npz") -> Part:
    return ("samples", (name, content))


def sent(client: TestClient, *samples: Part, model: bytes = b"onnx", **others: Any) -> Any:
    return client.post("/compile", files=[("model", ("m.onnx", model)), *samples], **others)


def test_samples_reach_the_worker_in_their_order_and_the_job_tells_them(
    client: TestClient, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    answer = sent(client, sample(b"one"), sample(b"two", "folder/b.npz"), data={"options": '{"seed": 7}'})
    assert answer.status_code == 202
    assert answer.json()["samples"] == [
        {"name": "a.npz", "sha256": hashlib.sha256(b"one").hexdigest(), "bytes": 3},
        {"name": "b.npz", "sha256": hashlib.sha256(b"two").hexdigest(), "bytes": 3},
    ]
    assert client.get(f"/jobs/{answer.json()['id']}").json()["samples"] == answer.json()["samples"]
    claim = claimed()
    assert [(one.name, blobs.path(one.key).read_bytes()) for one in claim.samples] == [
        ("a.npz", b"one"),
        ("b.npz", b"two"),
    ]
    assert [one.name for one in claim.inputs] == ["model"]
    assert claim.options["seed"] == 7


def test_samples_may_come_with_the_digest_of_a_model_that_is_there(
    client: TestClient, claimed: Callable[..., lease.Claim]
) -> None:
    digest = client.post("/models", content=b"onnx", headers={"Content-Type": "application/octet-stream"}).json()[
        "digest"
    ]
    files = [("digest", (None, digest)), sample()]
    made = client.post("/compile", files=files, params={"fresh": "true", "priority": -2}).json()
    assert (made["model"], made["priority"], len(made["samples"])) == (digest, -2, 1)
    assert len(claimed().samples) == 1


def test_only_the_same_samples_are_answered_from_the_cache(
    client: TestClient, finish: Callable[..., lease.Claim]
) -> None:
    made = sent(client, sample(b"one")).json()
    finish()
    again = sent(client, sample(b"one", "another name.npz")).json()
    assert (again["cached"], again["artifact_id"]) == (True, made["artifact_id"])
    for others in ((), (sample(b"two"),), (sample(b"one"), sample(b"two", "b"))):
        assert sent(client, *others).json()["cached"] is False


def test_a_repeated_request_with_other_samples_is_another_request(client: TestClient) -> None:
    key = {"Idempotency-Key": "k"}
    first = sent(client, sample(b"one"), headers=key).json()
    assert sent(client, sample(b"one"), headers=key).json()["id"] == first["id"]
    problem(sent(client, sample(b"two"), headers=key), 422, "idempotency_key_reused")
    problem(sent(client, headers=key), 422, "idempotency_key_reused")


def test_a_clone_has_the_samples_of_its_source(client: TestClient, finish: Callable[..., lease.Claim]) -> None:
    made = sent(client, sample(b"one")).json()
    finish()
    clone = client.post(f"/jobs/{made['id']}/clone", json={"options": {"seed": 2}}).json()
    assert (clone["state"], clone["samples"]) == ("QUEUED", made["samples"])


def test_samples_stay_while_a_job_names_them_and_go_with_it(
    client: TestClient,
    db: Database,
    blobs: LocalBlobs,
    finish: Callable[..., lease.Claim],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = sent(client, sample(b"private")).json()["model"]
    (key,) = (one.key for one in finish().samples)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7200)
    assert collect(db, blobs, 3600) == 0
    assert client.delete(f"/models/{digest}").is_success
    assert collect(db, blobs, 3600) >= 2
    listed = blobs.keys()
    assert key not in {key for key, _ in listed}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([("model", ("m", b"m")), *[sample(name=f"{at}.npz") for at in range(MOST_SAMPLES + 1)]], "more than 16 parts"),
        ([("model", ("m", b"m")), sample(), sample()], "sample 'a.npz' was sent twice"),
        ([("model", ("m", b"m")), ("digest", (None, "0" * 64))], "a model and a digest were sent"),
        ([("digest", (None, "XYZ")), sample()], "the part 'digest' is no SHA-256"),
        ([("digest", (None, "0" * 64)), ("digest", (None, "0" * 64))], "part 'digest' was sent twice"),
        ([sample()], "the model is missing"),
    ],
)
def test_forms_that_mean_nothing_are_refused(client: TestClient, files: list[Any], said: str) -> None:
    assert said in problem(client.post("/compile", files=files), 400, "bad_request")["detail"]


def test_a_digest_that_is_unknown_is_not_found(client: TestClient) -> None:
    problem(client.post("/compile", files=[("digest", (None, "0" * 64)), sample()]), 404, "not_found")


def test_samples_count_towards_the_limit_of_a_request(client: TestClient) -> None:
    problem(sent(client, sample(b"x" * 60_000), sample(b"y" * 60_000, "b")), 413, "body_too_large")


@pytest.mark.parametrize("path", ["/models", "/preflight"])
def test_who_compiles_nothing_takes_no_samples(client: TestClient, path: str) -> None:
    answer = client.post(path, files=[("model", ("m", b"m")), sample()])
    assert "unknown part 'samples'" in problem(answer, 400, "bad_request")["detail"]
