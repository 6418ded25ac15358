"""What a benchmark is asked for by: JSON, or a form with the same and a sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.jobs.scheduling import lease

SAMPLE = ("samples", ("a.npz", b"one"))


@pytest.fixture
def asked(client: TestClient, finish: Callable[..., lease.Claim]) -> str:
    made: dict[str, Any] = client.post("/compile", files={"model": "m"}).json()
    finish()
    return json.dumps({"artifacts": [made["artifact_id"]]})


def test_a_form_brings_a_sample_to_the_worker(client: TestClient, asked: str, db: Database, blobs: LocalBlobs) -> None:
    answer = client.post("/benchmarks", files=[("benchmark", (None, asked, "application/json")), SAMPLE])
    assert answer.status_code == 202, answer.text
    claim = lease.claim(db, "w1", [answer.json()["queue"]], 60.0)
    assert claim is not None
    assert [blobs.path(one.key).read_bytes() for one in claim.samples] == [b"one"]


def test_more_samples_than_one_other_types_and_what_is_no_json_are_refused(client: TestClient, asked: str) -> None:
    form = ("benchmark", (None, asked, "application/json"))
    for given in (
        {"files": [form, SAMPLE, SAMPLE]},
        {"content": asked, "headers": {"Content-Type": "text/plain"}},
        {"content": "{", "headers": {"Content-Type": "application/json"}},
        {"files": [("benchmark", (None, "{", "application/json")), SAMPLE]},
    ):
        answer = client.post("/benchmarks", **given)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
