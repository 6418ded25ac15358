from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.jobs import lease

DATA = bytes(range(256)) * 40
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'


@pytest.fixture
def artifact(client: TestClient, finish: Callable[..., lease.Claim]) -> str:
    job = client.post("/compile", files={"model": b"m"}).json()
    finish(DATA)
    return f"/artifacts/{job['artifact_id']}"


def test_the_file_comes_with_its_digest_as_etag_and_its_name(client: TestClient, artifact: str) -> None:
    answer = client.get(artifact)
    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["etag"] == ETAG
    name = artifact.rsplit("/", 1)[1]
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}.tw"'
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize("tags", [ETAG, f"W/{ETAG}", f'"other", {ETAG}', "*"])
def test_a_copy_that_is_current_is_not_sent_again(client: TestClient, artifact: str, tags: str) -> None:
    answer = client.get(artifact, headers={"If-None-Match": tags})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", ETAG)


def test_another_copy_is_replaced(client: TestClient, artifact: str) -> None:
    assert client.get(artifact, headers={"If-None-Match": '"other"'}).content == DATA


def test_ranges_continue_a_download(client: TestClient, artifact: str) -> None:
    answer = client.get(artifact, headers={"Range": "bytes=1000-", "If-Range": ETAG})
    assert (answer.status_code, answer.content) == (206, DATA[1000:])
    assert answer.headers["content-range"] == f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"
    assert client.get(artifact, headers={"Range": "bytes=5-9"}).content == DATA[5:10]


def test_a_range_of_another_file_gets_the_whole(client: TestClient, artifact: str) -> None:
    answer = client.get(artifact, headers={"Range": "bytes=1000-", "If-Range": '"other"'})
    assert (answer.status_code, answer.content) == (200, DATA)


def test_a_range_past_the_end_is_refused(client: TestClient, artifact: str) -> None:
    assert client.get(artifact, headers={"Range": f"bytes={len(DATA)}-"}).status_code == 416


def test_before_the_job_is_done_the_caller_is_told_to_wait(client: TestClient) -> None:
    job = client.post("/compile", files={"model": b"m"}).json()
    for path in (f"/artifacts/{job['artifact_id']}", f"/artifacts/{job['artifact_id']}/receipt"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (409, "job_not_finished")
        assert int(answer.headers["retry-after"]) > 0


def test_a_failed_job_has_no_artifact_and_its_failure_is_named(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim]
) -> None:
    job = client.post("/compile", files={"model": b"m"}).json()
    failure = {"code": "malformed_model", "fault": "caller", "message": "not ONNX", "fix": "export it again"}
    lease.fail(db, claimed(), failure)
    answer = client.get(f"/artifacts/{job['artifact_id']}")
    said: dict[str, Any] = answer.json()
    assert (answer.status_code, said["code"], said["fix"]) == (410, "artifact_never_made", "export it again")
    assert "not ONNX" in said["detail"]
    assert said["details"]["problem"] == failure


def test_a_cancelled_job_has_no_artifact(client: TestClient) -> None:
    job = client.post("/compile", files={"model": b"m"}).json()
    client.delete(f"/jobs/{job['id']}")
    answer = client.get(f"/artifacts/{job['artifact_id']}")
    assert (answer.status_code, "cancelled" in answer.json()["detail"]) == (410, True)


def test_the_receipt_is_served_beside_it(client: TestClient, artifact: str) -> None:
    body = client.get(f"{artifact}/receipt").json()
    assert (body["receipt"], body["bytes"]) == ({"latency_s": 0.5}, len(DATA))
    assert f'"{body["sha256"]}"' == ETAG
