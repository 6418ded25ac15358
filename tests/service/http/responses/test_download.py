"""Downloads from each kind of blob store, through the whole API."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.blobs.open_blobs import open_blobs
from service.blobs.store import Blobs, key_of
from service.config import Settings
from service.errors import RangeUnsatisfiable
from service.http.responses.download import single_range
from service.jobs.scheduling import lease
from tests.service.s3_server import S3Server

DATA = random.Random(5).randbytes(9_000_001)  # three requests to S3, nine reads of a file
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'
MULTIPART_RANGE = "bytes=0-9, 20-29"


@pytest.fixture
def url(tmp_path: Path, migrated: Path) -> str:
    """SQLite alone: what is asked here has nothing to do with the database."""
    (tmp_path / "tilewright.db").write_bytes(migrated.read_bytes())
    return f"sqlite:///{tmp_path / 'tilewright.db'}"


@pytest.fixture(params=["local", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> Settings:
    plain: dict[str, Any] = {"database_url": url, "reconcile_every_s": 3600.0}
    if request.param == "local":
        return Settings(data_dir=tmp_path, **plain)
    server: S3Server = request.getfixturevalue("s3_server")
    return server.settings(tmp_path, server.bucket(), **plain)


@pytest.fixture
def blobs(settings: Settings) -> Blobs:
    return open_blobs(settings)


@pytest.fixture
def artifact(client: TestClient, finish: Callable[..., lease.Claim]) -> str:
    job = client.post("/compile", files={"model": b"m"}).json()
    finish(DATA)
    return f"/artifacts/{job['artifact_id']}"


def test_the_whole_file(client: TestClient, artifact: str) -> None:
    answer = client.get(artifact)
    assert (answer.status_code, answer.content == DATA) == (200, True)
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["etag"] == ETAG
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("ranged", [{}, {"Range": "bytes=7-"}])
def test_head_tells_what_get_would_send(client: TestClient, artifact: str, ranged: dict[str, str]) -> None:
    whole, head = client.get(artifact, headers=ranged), client.head(artifact, headers=ranged)
    ours = {"x-request-id", "date"}
    assert head.content == b""
    assert head.status_code == whole.status_code
    assert {k: v for k, v in head.headers.items() if k not in ours} == {
        k: v for k, v in whole.headers.items() if k not in ours
    }


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1000-", 1000, None),
        ("bytes=-5", -5, None),
        ("bytes=4194303-4194304", 4_194_303, 4_194_305),
        ("bytes=5-99999999", 5, None),
    ],
)
def test_one_range_is_sent_without_the_rest(
    client: TestClient, artifact: str, asked: str, start: int, end: int | None
) -> None:
    answer = client.get(artifact, headers={"Range": asked, "If-Range": ETAG})
    first, last, _ = slice(start, end).indices(len(DATA))
    assert (answer.status_code, answer.content == DATA[start:end]) == (206, True)
    assert answer.headers["content-range"] == f"bytes {first}-{last - 1}/{len(DATA)}"
    assert answer.headers["content-length"] == str(last - first)


@pytest.mark.parametrize(
    "headers",
    [
        {"Range": MULTIPART_RANGE},
        {"Range": "bytes=9-3"},
        {"Range": "lines=1-2"},
        {"Range": "bytes=-"},
        {"Range": "bytes=0-9", "If-Range": '"another"'},
        {"Range": "bytes=0-9", "If-Range": f"W/{ETAG}"},
        {"Range": "bytes=0-9", "If-Range": "Sat, 21 Nov 2026 04:00:00 GMT"},
    ],
)
def test_what_is_no_range_of_this_file_gets_the_whole(
    client: TestClient, artifact: str, headers: dict[str, str]
) -> None:
    answer = client.get(artifact, headers=headers)
    assert (answer.status_code, len(answer.content)) == (200, len(DATA))


@pytest.mark.parametrize("asked", [f"bytes={len(DATA)}-", "bytes=-0"])
def test_a_range_past_the_end_is_refused_with_the_size(client: TestClient, artifact: str, asked: str) -> None:
    answer = client.get(artifact, headers={"Range": asked})
    assert (answer.status_code, answer.json()["code"]) == (416, "range_unsatisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"


def test_a_current_copy_is_not_sent_again_whatever_range_is_asked(client: TestClient, artifact: str) -> None:
    answer = client.get(artifact, headers={"If-None-Match": ETAG, "Range": "bytes=0-9"})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", ETAG)


def test_bytes_that_are_gone_are_a_problem_and_not_half_an_answer(
    client: TestClient, artifact: str, blobs: Blobs
) -> None:
    for key, _ in blobs.keys():  # noqa: SIM118 # not a dictionary: pairs of key and time
        blobs.delete(key)
    answer = client.get(artifact)
    assert (answer.status_code, answer.json()["code"]) == (507, "blob_lost")


@pytest.mark.parametrize("size", [0, 1, 10])
def test_every_range_lies_within_the_file_or_is_refused(size: int) -> None:
    for first in ("", *map(str, range(12))):
        for last in ("", *map(str, range(12))):
            try:
                found = single_range(f"bytes={first}-{last}", size)
            except RangeUnsatisfiable:
                continue
            if found is not None:
                assert 0 <= found[0] < found[1] <= size


@pytest.fixture
def flip(settings: Settings, request: pytest.FixtureRequest) -> Callable[[bytes, int], None]:
    """Changes a bit of kept bytes, at this place."""

    def flip(data: bytes, at: int) -> None:
        key = key_of(hashlib.sha256(data).hexdigest())
        flipped = data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :]
        if not settings.blob_url:
            (settings.blob_root / key).write_bytes(flipped)
            return
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = settings.blob_url.split("/")[2]
        server.client().put_object(Bucket=bucket, Key=f"deep/blobs/{key}", Body=flipped)

    return flip


@pytest.mark.parametrize("at", [0, 5_000_000, len(DATA) - 1])
@pytest.mark.parametrize("asked", ["", "bytes=1000-", "bytes=0-99999999", "bytes=-6000000"])
def test_nobody_is_sent_the_end_of_a_file_of_which_a_bit_has_changed(
    client: TestClient, artifact: str, flip: Callable[[bytes, int], None], asked: str, at: int
) -> None:
    flip(DATA, at)
    headers = {"Range": asked} if asked else {}
    broken = client.get(artifact, headers=headers)
    assert broken.status_code in (200, 206)
    assert len(broken.content) < int(broken.headers["content-length"]), "the client sees that it is not whole"
    again = client.get(artifact, headers=headers)
    assert (again.status_code, again.json()["code"]) == (507, "blob_lost")


def test_a_range_before_the_end_is_sent_as_it_is_kept(
    client: TestClient, artifact: str, flip: Callable[[bytes, int], None]
) -> None:
    """Its digest is not known: whoever puts a file together compares the whole with its ETag."""
    flip(DATA, len(DATA) - 1)
    assert client.get(artifact, headers={"Range": "bytes=0-99"}).content == DATA[:100]


def test_a_small_file_of_which_a_bit_has_changed_is_a_problem_at_once(
    client: TestClient, flip: Callable[[bytes, int], None]
) -> None:
    digest = client.post("/models", files={"model": b"onnx"}).json()["digest"]
    flip(b"onnx", 2)
    answer = client.get(f"/models/{digest}/file")
    assert (answer.status_code, answer.json()["code"]) == (507, "blob_damaged")
    assert client.post("/models", files={"model": b"onnx"}).status_code == 200
    assert client.get(f"/models/{digest}/file").content == b"onnx"
