from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.db.engine import Database
from service.db.retention import referenced
from service.jobs.scheduling import lease
from tests.service.databases import any_database

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


@any_database
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
    client.post(f"/jobs/{job['id']}/cancel")
    answer = client.get(f"/artifacts/{job['artifact_id']}")
    assert (answer.status_code, "cancelled" in answer.json()["detail"]) == (410, True)


def test_the_receipt_is_served_beside_it(client: TestClient, artifact: str) -> None:
    body = client.get(f"{artifact}/receipt").json()
    assert (body["receipt"]["latency_s"], body["bytes"]) == (0.5, len(DATA))
    assert f'"{body["sha256"]}"' == ETAG


PARTS = {
    "manifest.json": b'{"format_version": 2}',
    "plan.json": b'{"calls": []}',
    "plans/1.json": b'{"calls": [1]}',
    "graph.json": b'{"steps": []}',
    "trace.json": b'{"traceEvents": []}',
    "plan.svg": b"<svg><script>alert(1)</script></svg>",
    "report.html": b"<!doctype html><p>report",
    "source/kernel_0.c": b"int kernel;\n",
    "source/deep/model.h": "/* naïve */".encode(),
    "model.so": b"\x7fELF",
}


@pytest.fixture
def packed(client: TestClient, finish: Callable[..., lease.Claim]) -> str:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in PARTS.items():
            archive.writestr(name, content)
    job = client.post("/compile", files={"model": b"m"}).json()
    finish(made.getvalue())
    return f"/artifacts/{job['artifact_id']}"


@any_database
@pytest.mark.parametrize(
    ("path", "member", "media"),
    [
        ("manifest", "manifest.json", "application/json"),
        ("plan", "plan.json", "application/json"),
        ("plan?candidate=1", "plans/1.json", "application/json"),
        ("graph", "graph.json", "application/json"),
        ("trace", "trace.json", "application/json"),
        ("plan?format=svg", "plan.svg", "image/svg+xml"),
        ("report.html", "report.html", "text/html; charset=utf-8"),
        ("source/kernel_0.c", "source/kernel_0.c", "text/plain; charset=utf-8"),
        ("source/deep/model.h", "source/deep/model.h", "text/plain; charset=utf-8"),
    ],
)
def test_parts_are_served_without_the_whole_and_cannot_act(
    client: TestClient, packed: str, path: str, member: str, media: str
) -> None:
    answer = client.get(f"{packed}/{path}")
    assert (answer.status_code, answer.content) == (200, PARTS[member])
    assert answer.headers["content-type"] == media
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "sandbox"} <= set(policy)
    assert not any(rule.startswith("script-src") for rule in policy)
    again = client.get(f"{packed}/{path}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_files_are_listed_with_their_sizes(client: TestClient, packed: str) -> None:
    listed = client.get(f"{packed}/files").json()["files"]
    assert listed == [{"name": name, "bytes": len(content)} for name, content in PARTS.items()]


@any_database
@pytest.mark.parametrize(
    "name", ["nothing.c", "", "..%2Fmodel.so", "%2e%2e/model.so", "deep", "deep/", "%2Fetc%2Fpasswd", "kernel_0.c%00"]
)
def test_nothing_but_the_listed_sources_is_served_below_source(client: TestClient, packed: str, name: str) -> None:
    answer = client.get(f"{packed}/source/{name}")
    assert (answer.status_code, b"ELF" in answer.content) == (404, False)


@pytest.mark.parametrize("path", ["manifest", "plan", "graph", "trace", "report.html", "files", "source/kernel_0.c"])
def test_parts_belong_to_the_owner_and_exist_when_the_artifact_does(
    client: TestClient, packed: str, stranger: dict[str, str], path: str
) -> None:
    assert client.get(f"{packed}/{path}", headers=stranger).status_code == 404
    job = client.post("/compile", files={"model": b"another"}).json()
    answer = client.get(f"/artifacts/{job['artifact_id']}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_not_finished")


def test_an_artifact_that_is_no_archive_is_our_fault(client: TestClient, artifact: str) -> None:
    answer = client.get(f"{artifact}/manifest")
    assert (answer.status_code, answer.json()["code"], answer.json()["fault"]) == (500, "artifact_unreadable", "ours")


def test_what_was_made_before_measuring_is_there_until_the_artifact_is(
    client: TestClient, db: Database, blobs: LocalBlobs, claimed: Callable[..., lease.Claim], stranger: dict[str, str]
) -> None:
    job = client.post("/compile", files={"model": b"partial"}, data={"options": '{"tuning_budget_s": 600}'}).json()
    path = f"/artifacts/{job['artifact_id']}"
    claim = claimed()
    assert client.get(f"{path}?partial=true").status_code == 409
    first = blobs.put_bytes(b"an earlier attempt's")
    assert lease.first_made(db, claim, artifact=first, report={})
    assert lease.first_made(db, claim, artifact=blobs.put_bytes(b"first"), report={"errors": []})
    found = client.get(f"{path}?partial=true")
    assert (found.status_code, found.content, found.headers["cache-control"]) == (200, b"first", "private, no-cache")
    assert client.get(path).status_code == 409
    assert client.get(f"{path}?partial=true", headers=stranger).status_code == 404
    with db.read() as session:
        keys = {*referenced(session)}
    assert blobs.put_bytes(b"first").key in keys
    assert first.key not in keys
    assert lease.succeed(db, claim, made=blobs.put_bytes(b"best"), report={}, circumstances={})
    assert client.get(f"{path}?partial=true").content == client.get(path).content == b"best"
    with db.read() as session:
        assert blobs.put_bytes(b"first").key not in {*referenced(session)}
    assert not lease.first_made(db, claim, artifact=first, report={}), "its lease is over"
