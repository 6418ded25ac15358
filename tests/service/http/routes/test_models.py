from __future__ import annotations

import base64
import gzip
import hashlib
import json
import struct
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.http.responses import cursors
from service.jobs.accounts import access
from service.jobs.scheduling import lease
from tests.service.databases import any_database

RAW = {"Content-Type": "application/octet-stream"}
ZIP = {"Content-Type": "application/zip"}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content_digest(data: bytes) -> dict[str, str]:
    return {"Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"}


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert body["fix"]
    return body


def test_a_raw_model_is_kept_once_under_its_sha256(client: TestClient, blobs: LocalBlobs) -> None:
    first = client.post("/models", content=b"onnx", headers=RAW)
    again = client.post("/models", content=b"onnx", headers=RAW)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.headers["location"] == f"/models/{sha256(b'onnx')}" == first.json()["links"]["self"]
    assert (first.json()["bytes"], first.json()["files"]) == (4, [])
    assert len(list(blobs.keys())) == 1


def test_a_model_is_its_owners_alone(client: TestClient, stranger: dict[str, str]) -> None:
    path = client.post("/models", content=b"onnx", headers=RAW).headers["location"]
    assert client.head(path).status_code == 200
    assert client.head(path, headers=stranger).status_code == 404
    for call in (client.get, client.delete):
        problem(call(path, headers=stranger), 404, "not_found")
    problem(client.get(f"{path}/file", headers=stranger), 404, "not_found")
    assert client.get("/models", headers=stranger).json() == {"models": [], "next_cursor": None}
    assert client.post("/models", content=b"onnx", headers={**RAW, **stranger}).status_code == 201


def test_a_model_that_is_not_there_needs_to_be_sent(client: TestClient) -> None:
    assert client.head(f"/models/{'0' * 64}").status_code == 404
    problem(client.get("/models/latest"), 400, "bad_request")
    problem(client.get(f"/models/{'0' * 63}%00"), 400, "bad_request")


def test_an_announced_digest_is_checked(client: TestClient, blobs: LocalBlobs) -> None:
    right = {**RAW, **content_digest(b"onnx")}
    assert client.post("/models", content=b"onnx", headers=right).status_code == 201
    assert client.post("/models", content=b"onnx", params={"sha256": sha256(b"onnx")}, headers=RAW).status_code == 200
    before = set(blobs.keys())
    said = problem(client.post("/models", content=b"onmx", headers=right), 422, "digest_mismatch")
    assert said["details"] == {"announced": sha256(b"onnx"), "found": sha256(b"onmx")}
    wrong = {"params": {"sha256": sha256(b"onnx")}, "headers": {**RAW, **content_digest(b"onmx")}}
    problem(client.post("/models", content=b"onmx", **wrong), 422, "digest_mismatch")
    assert set(blobs.keys()) == before
    assert list(blobs.temporary.iterdir()) == []
    assert client.head(f"/models/{sha256(b'onmx')}").status_code == 404


@any_database
@pytest.mark.parametrize(
    "header", ["sha-512=:AAAA:", "sha-256=:AAAA:", "sha-256=abc", "", "sha-256=:" + "*" * 44 + ":"]
)
def test_a_digest_that_cannot_be_checked_is_refused(client: TestClient, header: str) -> None:
    answer = client.post("/models", content=b"onnx", headers={**RAW, "Content-Digest": header})
    assert "Content-Digest" in problem(answer, 400, "bad_request")["detail"]


def test_the_digest_of_a_zip_or_a_form_is_that_of_the_body(client: TestClient, zipped: Callable[..., bytes]) -> None:
    body = zipped({"m.onnx": b"onnx"})
    assert client.post("/models", content=body, headers={**ZIP, **content_digest(body)}).status_code == 201
    problem(client.post("/models", content=body, headers={**ZIP, **content_digest(b"")}), 422, "digest_mismatch")
    problem(client.post("/models", files={"model": b"m"}, headers=content_digest(b"m")), 422, "digest_mismatch")


def test_a_bundle_is_the_same_as_parts_and_as_a_zip(client: TestClient, zipped: Callable[..., bytes]) -> None:
    files = [
        ("data", ("weights/a.bin", b"aa")),
        ("model", b"onnx"),
        ("data", ("./b ü.bin", b"")),
        ("data", ("c", b"c")),
    ]
    made = client.post("/models", files=files)
    assert made.status_code == 201, made.json()
    bundle = made.json()
    manifest = {
        "model": sha256(b"onnx"),
        "data": {"b ü.bin": sha256(b""), "c": sha256(b"c"), "weights/a.bin": sha256(b"aa")},
    }
    assert bundle["digest"] == sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())
    assert [file["path"] for file in bundle["files"]] == ["b ü.bin", "c", "weights/a.bin"]
    assert bundle["bytes"] == 7
    inside = {"p/m.onnx": b"onnx", "p/weights/": b"", "p/weights/a.bin": b"aa", "p/b ü.bin": b"", "p/./c": b"c"}
    finder = {"__MACOSX/p/._m.onnx": b"junk", "p/.DS_Store": b"junk"}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packed = client.post("/models", content=zipped({**inside, **finder}, method), headers=ZIP)
        assert (packed.status_code, packed.json()["digest"]) == (200, bundle["digest"])


def test_the_onnx_file_in_a_zip_can_be_named(client: TestClient, zipped: Callable[..., bytes]) -> None:
    body = zipped({"a.onnx": b"a", "b.onnx": b"b"})
    said = problem(client.post("/models", content=body, headers=ZIP), 400, "bad_request")
    assert "a.onnx, b.onnx" in said["detail"]
    assert "?model=" in said["fix"]
    named = client.post("/models", content=body, params={"model": "b.onnx"}, headers=ZIP).json()
    assert [file["path"] for file in named["files"]] == ["a.onnx"]
    assert client.get(f"{named['links']['file']}").content == b"b"
    problem(client.post("/models", content=body, params={"model": "c.onnx"}, headers=ZIP), 400, "bad_request")


@any_database
@pytest.mark.parametrize(
    ("files", "named"),
    [
        ([("data", ("a", b"a"))], "missing or empty"),
        ([("model", b"m"), ("data", b"a")], "'data'"),
        ([("model", b"m"), ("data", ("../a", b"a"))], "leads upwards"),
        ([("model", b"m"), ("data", ("/etc/passwd", b"a"))], "absolute"),
        ([("model", b"m"), ("data", ("x" * 300, b"a"))], "longer"),
        ([("model", b"m"), ("data", ("a", b"a")), ("data", ("./a", b"b"))], "twice"),
        ([("model", b"m"), ("data", ("a", b"a")), ("data", ("a/b", b"b"))], "folder of another"),
        ([("model", b"m"), ("model", b"m")], "twice"),
        ([("model", b"m"), ("options", b"{}")], "'options'"),
    ],
)
def test_a_form_that_is_no_model_is_refused_with_its_reason(
    client: TestClient, blobs: LocalBlobs, files: Any, named: str
) -> None:
    answer = client.post(
        "/models", files=[(name, part if isinstance(part, tuple) else ("", part)) for name, part in files]
    )
    assert named in problem(answer, 400, "bad_request")["detail"]
    assert list(blobs.temporary.iterdir()) == []
    assert client.get("/models").json()["models"] == []


def test_the_size_limit_is_that_of_all_files_together(client: TestClient, zipped: Callable[..., bytes]) -> None:
    files = [("model", ("m", bytes(60_000))), ("data", ("a", bytes(40_001)))]
    answer = client.post("/models", files=files)
    assert problem(answer, 413, "body_too_large")["details"] == {"limit_bytes": 100_000}
    body = zipped({"m.onnx": bytes(60_000), "a": bytes(40_001)}, zipfile.ZIP_DEFLATED)
    answer = client.post("/models", content=body, headers=ZIP)
    assert problem(answer, 413, "body_too_large")["details"] == {"limit_bytes": 100_000}

    def endless() -> Iterator[bytes]:
        for _ in range(101):
            yield bytes(1000)

    problem(client.post("/models", content=endless(), headers=RAW), 413, "body_too_large")


def test_models_are_listed_newest_first_page_by_page(client: TestClient) -> None:
    sent = [client.post("/models", content=f"m{number}", headers=RAW).json()["digest"] for number in range(5)]
    found, cursor = [], None
    while True:
        page = client.get("/models", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [model["digest"] for model in page["models"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(found) == sorted(sent)
    times = [client.get(f"/models/{digest}").json()["created_at"] for digest in found]
    assert times == sorted(times, reverse=True)


@any_database
@pytest.mark.parametrize("moment", ["x", "", "AAAA"])
def test_a_cursor_that_was_never_given_out_is_refused(client: TestClient, moment: str) -> None:
    problem(client.get("/models", params={"cursor": moment}), 400, "bad_request")


def test_a_cursor_holds_no_time_that_is_none() -> None:
    text = base64.urlsafe_b64encode(struct.pack(">d32s", float("nan"), bytes(32))).decode().rstrip("=")
    with pytest.raises(Exception, match="malformed"):
        cursors.decode_moment(text)
    assert cursors.decode_moment(cursors.encode_moment((1.5, "ab" * 32))) == (1.5, "ab" * 32)


def test_one_model_tells_how_many_compilations_it_has(client: TestClient) -> None:
    path = client.post("/models", content=b"m", headers=RAW).headers["location"]
    assert client.get(path).json()["jobs"] == 0
    client.post("/compile", content=b"m", headers=RAW)
    assert client.get(path).json()["jobs"] == 1


def test_files_of_a_model_are_downloaded_with_ranges_and_etags(client: TestClient) -> None:
    files = [("model", ("m", b"onnx bytes")), ("data", ("w/a.bin", b"0123456789"))]
    link = client.post("/models", files=files).json()["links"]["file"]
    whole = client.get(link)
    assert (whole.content, whole.headers["etag"]) == (b"onnx bytes", f'"{sha256(b"onnx bytes")}"')
    part = client.get(link, params={"path": "w/a.bin"}, headers={"Range": "bytes=3-5"})
    assert (part.status_code, part.content) == (206, b"345")
    etag = {"If-None-Match": f'"{sha256(b"0123456789")}"'}
    assert client.get(link, params={"path": "w/a.bin"}, headers=etag).status_code == 304
    problem(client.get(link, params={"path": "w/b.bin"}), 404, "not_found")
    problem(client.get(link, params={"path": "../a"}), 400, "bad_request")


def test_deleting_a_model_deletes_what_hangs_on_it_and_says_so(
    client: TestClient, finish: Callable[..., lease.Claim], record: dict[str, object]
) -> None:
    job = client.post("/compile", content=b"m", headers=RAW).json()
    finish(records=(record,))
    benchmark = client.post("/benchmarks", json={"artifacts": [job["artifact_id"]]})
    assert benchmark.status_code == 202, benchmark.json()
    other = client.post("/compile", content=b"other", headers=RAW).json()
    path = f"/models/{job['model']}"
    said = problem(client.delete(path), 409, "model_in_use")
    assert said["details"] == {"queued": 1, "running": 0}
    gone = client.delete(path, params={"cancel": True})
    assert gone.status_code == 200
    assert gone.json()["deleted"] == {"jobs": 2, "artifacts": 1, "benchmarks": 1, "inferences": 0}
    assert gone.json()["kept"] == {"tuning_records": 1}
    problem(client.get(f"/jobs/{job['id']}"), 404, "not_found")
    problem(client.get(f"/artifacts/{job['artifact_id']}"), 404, "not_found")
    problem(client.get(f"/benchmarks/{benchmark.json()['id']}"), 404, "not_found")
    problem(client.delete(path), 404, "not_found")
    (kept,) = client.get("/tuning-records").json()["records"]
    assert (kept["job"], kept["model"]) == (None, job["model"])
    assert [one["id"] for one in client.get("/jobs").json()["jobs"]] == [other["id"]]
    assert client.post("/compile", content=b"m", headers=RAW).json()["state"] == "QUEUED"


def test_a_model_whose_job_runs_is_deleted_once_it_has_stopped(
    client: TestClient, claimed: Callable[..., lease.Claim], db: Any
) -> None:
    job = client.post("/compile", content=b"m", headers=RAW).json()
    claim = claimed()
    path = f"/models/{job['model']}"
    assert problem(client.delete(path), 409, "model_in_use")["details"] == {"queued": 0, "running": 1}
    for _ in range(2):
        answer = client.delete(path, params={"cancel": True})
        assert (answer.status_code, answer.json()["stopping"]) == (202, 1)
        assert int(answer.headers["retry-after"]) > 0
    assert lease.heartbeat(db, claim, []) == "cancel"
    assert lease.cancelled(db, claim)
    assert client.delete(path).json()["deleted"]["jobs"] == 1
    assert client.get("/jobs").json()["jobs"] == []


def test_reading_needs_another_scope_than_sending(client: TestClient, db: Any) -> None:
    reader = {"Authorization": f"Bearer {access.make_key(db, 'ada', ['read'], 'test')}"}
    problem(client.post("/models", content=b"m", headers={**RAW, **reader}), 403, "not_allowed")
    problem(client.delete(f"/models/{sha256(b'm')}", headers=reader), 403, "not_allowed")
    assert client.get("/models", headers=reader).status_code == 200
    assert uuid.UUID(client.post("/uploads", json={"bytes": 1}).json()["id"]).version == 7


@pytest.mark.parametrize("path", ["/models", "/compile", "/preflight", "/inferences", "/quantizations"])
@pytest.mark.parametrize("encoding", ["gzip", "GZip", "deflate", "br", "gzip, identity"])
def test_a_compressed_body_is_not_taken_for_a_model(
    client: TestClient, blobs: LocalBlobs, path: str, encoding: str
) -> None:
    headers = {**RAW, "Content-Encoding": encoding}
    answer = client.post(path, content=gzip.compress(b"onnx"), headers=headers)
    assert encoding.lower() in problem(answer, 415, "encoding_unsupported")["detail"]
    assert answer.headers["accept-encoding"] == "identity"
    assert list(blobs.keys()) == []


def test_a_body_that_is_said_not_to_be_compressed_is_taken(client: TestClient) -> None:
    headers = {**RAW, "Content-Encoding": "identity"}
    assert client.post("/models", content=b"onnx", headers=headers).status_code == 201


def test_two_files_of_one_name_are_told_how_to_keep_their_folders(client: TestClient) -> None:
    files = [("model", ("m.onnx", b"onnx")), ("data", ("w.bin", b"1")), ("data", ("w.bin", b"2"))]
    assert ";filename=a/w.bin" in problem(client.post("/models", files=files), 400, "bad_request")["fix"]
