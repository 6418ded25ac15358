"""`POST /legalisations`: what becomes of the request, and of what a worker hands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from tests.service.http.routes.test_compile import problem


def sent(client: TestClient, options: str = '{"profile": "edgetpu"}') -> Any:
    files = [("model", ("m.onnx", b"onnx")), ("samples", ("a.npz", b"one"))]
    return client.post("/legalisations", files=files, data={"options": options})


@any_database
def test_a_model_its_samples_and_options_reach_a_worker(
    client: TestClient, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    answer = sent(client, '{"profile": {"name": "mine", "about": "a"}, "whole": true}')
    assert answer.status_code == 202
    said = answer.json()
    assert (said["kind"], said["state"], said["queue"]) == ("legalisation", "QUEUED", "cpu")
    assert (said["options"]["profile"], said["options"]["terms"]) == ({"name": "mine", "about": "a"}, 32)
    claim = claimed()
    assert (claim.kind, claim.options) == ("legalisation", said["options"])
    assert [blobs.path(one.key).read_bytes() for one in claim.samples] == [b"one"]


def test_what_was_made_is_a_model_of_the_owner(
    client: TestClient, db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim]
) -> None:
    job = sent(client).json()["id"]
    made = blobs.put_bytes(b"legal")
    assert lease.succeed(db, claimed(), made=made, report={"placement": []})
    links = client.get(f"/jobs/{job}").json()["links"]
    assert client.get(links["legalised"]).content == b"legal"
    assert client.get(links["report"]).json()["report"] == {"placement": [], "legalised_model": made.sha256}


@any_database
def test_options_that_are_wrong_are_refused_by_name(client: TestClient) -> None:
    for options, said in (
        ("{}", "profile"),
        ('{"profile": "tpu"}', "no accelerator profile 'tpu'"),
        ('{"profile": ["edgetpu"]}', "is neither a name nor described"),
        ('{"profile": "edgetpu", "terms": 65}', "terms"),
        ('{"profile": "edgetpu", "tolerance": 0}', "tolerance"),
    ):
        assert said in str(problem(sent(client, options), 422, "invalid_options"))
    assert not client.get("/jobs").json()["jobs"]
