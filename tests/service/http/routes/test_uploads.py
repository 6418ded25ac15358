from __future__ import annotations

import asyncio
import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db.engine import Database
from service.http.app import create_app
from service.jobs.storage import uploads
from tests.service.databases import any_database

RAW = "application/octet-stream"
ZIP = "application/zip"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert body["fix"]
    return body


def begin(client: TestClient, size: int, **more: Any) -> str:
    answer = client.post("/uploads", json={"bytes": size, **more})
    assert answer.status_code == 201, answer.json()
    assert (answer.headers["upload-offset"], answer.headers["upload-length"]) == ("0", str(size))
    return str(answer.headers["location"])


def send(client: TestClient, path: str, offset: int, data: bytes, **params: str) -> Any:
    return client.patch(path, content=data, headers={"Upload-Offset": str(offset), "Content-Type": RAW}, params=params)


@pytest.fixture
def second(settings: Settings, client: TestClient, ring: Any) -> Iterator[TestClient]:
    """Another app on the same database and blobs, for the same owner."""
    with TestClient(create_app(settings, ring=ring), headers=client.headers) as made:
        yield made


def test_pieces_become_the_model_that_the_whole_would_have_been(client: TestClient) -> None:
    path = begin(client, 10, sha256=sha256(b"0123456789"))
    first = send(client, path, 0, b"0123")
    assert (first.status_code, first.json()["received"], first.json()["model"]) == (200, 4, None)
    assert (first.headers["upload-offset"], first.headers["upload-length"]) == ("4", "10")
    looked = client.head(path)
    assert (looked.status_code, looked.headers["upload-offset"], looked.headers["upload-length"]) == (200, "4", "10")
    last = send(client, path, 4, b"456789").json()
    assert (last["received"], last["model"]["digest"]) == (10, sha256(b"0123456789"))
    again = client.post("/models", content=b"0123456789", headers={"Content-Type": RAW})
    assert (again.status_code, again.json()) == (200, last["model"])
    assert client.get(path).json() == last
    assert client.get(last["model"]["links"]["file"]).content == b"0123456789"


def test_an_upload_goes_on_in_another_process(client: TestClient, second: TestClient) -> None:
    path = begin(client, 6)
    assert send(second, path, 0, b"abc").json()["received"] == 3
    assert send(client, path, 3, b"def").json()["model"]["digest"] == sha256(b"abcdef")
    assert second.head(f"/models/{sha256(b'abcdef')}").status_code == 200


def test_a_zip_in_pieces_is_unpacked(client: TestClient, zipped: Callable[..., bytes]) -> None:
    body = zipped({"m.onnx": b"onnx", "w/a.bin": bytes(5000)})
    path = begin(client, len(body), media_type=ZIP, sha256=sha256(body))
    for at in range(0, len(body), 1000):
        answer = send(client, path, at, body[at : at + 1000])
    made = answer.json()["model"]
    whole = client.post("/models", content=body, headers={"Content-Type": ZIP})
    assert (whole.status_code, whole.json()) == (200, made)


def test_a_zip_that_needs_a_name_waits_for_it(client: TestClient, zipped: Callable[..., bytes]) -> None:
    body = zipped({"a.onnx": b"a", "b.onnx": b"b"})
    path = begin(client, len(body), media_type=ZIP)
    problem(send(client, path, 0, body), 400, "bad_request")
    assert client.head(path).headers["upload-offset"] == str(len(body))
    assert send(client, path, len(body), b"", model="a.onnx").json()["model"]["files"][0]["path"] == "b.onnx"


def test_a_wrong_offset_is_answered_with_the_right_one(client: TestClient, blobs: LocalBlobs) -> None:
    path = begin(client, 6)
    send(client, path, 0, b"abc")
    for offset in (0, 2, 4, 6):
        answer = send(client, path, offset, b"xyz")
        assert problem(answer, 409, "wrong_offset")["details"] == {"received": 3, "bytes": 6}
        assert answer.headers["upload-offset"] == "3"
    problem(client.patch(path, content=b"x"), 400, "bad_request")
    problem(client.patch(path, content=b"x", headers={"Upload-Offset": "-1"}), 400, "bad_request")
    assert list(blobs.temporary.iterdir()) == []


def test_more_than_was_announced_is_refused(client: TestClient) -> None:
    def streamed() -> Iterator[bytes]:
        yield b"abcd"
        yield b"efgh"

    path = begin(client, 6)
    problem(send(client, path, 0, b"abcdefg"), 400, "bad_request")
    answer = client.patch(path, content=streamed(), headers={"Upload-Offset": "0"})
    problem(answer, 400, "bad_request")
    assert client.head(path).headers["upload-offset"] == "0"
    problem(client.post("/uploads", json={"bytes": 100_001}), 413, "body_too_large")


@any_database
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"bytes": 0},
        {"bytes": 5, "media_type": "text/html"},
        {"bytes": 5, "sha256": "abc"},
        {"bytes": 5, "shar256": "0" * 64},
        {"bytes": 2**70},
    ],
)
def test_an_announcement_that_is_malformed_is_refused(client: TestClient, wanted: dict[str, Any]) -> None:
    problem(client.post("/uploads", json=wanted), 400, "bad_request")


def test_other_bytes_than_announced_end_the_upload(client: TestClient, zipped: Callable[..., bytes]) -> None:
    for media, body in ((RAW, b"onmx"), (ZIP, zipped({"m.onnx": b"m"}))):
        for pieces in (1, 2):
            path = begin(client, len(body), media_type=media, sha256=sha256(b"onnx"))
            if pieces == 2:
                assert send(client, path, 0, body[:2]).status_code == 200
                answer = send(client, path, 2, body[2:])
            else:
                answer = send(client, path, 0, body)
            assert problem(answer, 422, "digest_mismatch")["details"]["found"] == sha256(body)
            problem(client.get(path), 404, "not_found")
    assert client.get("/models").json()["models"] == []


def test_an_upload_can_be_given_up_and_is_its_owners_alone(client: TestClient, stranger: dict[str, str]) -> None:
    path = begin(client, 6)
    for call in (client.get, client.delete, client.head):
        assert call(path, headers=stranger).status_code == 404
    answer = client.patch(path, content=b"abc", headers={"Upload-Offset": "0", **stranger})
    problem(answer, 404, "not_found")
    assert client.delete(path).status_code == 204
    problem(send(client, path, 0, b"abc"), 404, "not_found")
    problem(client.delete(path), 404, "not_found")


def test_of_two_who_send_the_same_bytes_at_once_one_wins(client: TestClient, second: TestClient) -> None:
    for attempt in range(5):
        path = begin(client, 4)
        start = threading.Barrier(2)

        def race(which: TestClient, data: bytes, path: str = path, start: threading.Barrier = start) -> Any:
            start.wait()
            return send(which, path, 0, data)

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(race, (client, second), (b"aa", b"bb")))
        assert sorted(answer.status_code for answer in answers) == [200, 409], attempt
        winner = b"aa" if answers[0].status_code == 200 else b"bb"
        assert send(client, path, 2, b"cc").json()["model"]["digest"] == sha256(winner + b"cc")


def test_asking_again_at_the_end_gives_the_same_model(client: TestClient, second: TestClient) -> None:
    path = begin(client, 3)
    model = send(client, path, 0, b"abc").json()["model"]
    assert send(second, path, 3, b"").json()["model"] == model
    client.delete(f"/models/{model['digest']}")
    problem(send(client, path, 3, b""), 404, "not_found")


@pytest.mark.parametrize(("arrived", "kept"), [(3 << 20, 3 << 20), ((1 << 20) - 1, 0)])
def test_of_a_broken_connection_stays_what_is_worth_a_piece(
    settings: Settings, ring: Any, client: TestClient, arrived: int, kept: int
) -> None:
    roomy = create_app(settings.model_copy(update={"max_model_bytes": 8 << 20}), ring=ring)
    body = bytes(range(256)) * ((4 << 20) // 256)
    with TestClient(roomy, headers=client.headers) as other:
        path = begin(other, len(body))
        asyncio.run(_broken_patch(roomy, path, str(client.headers["authorization"]), body[:arrived]))
        offset = int(other.head(path).headers["upload-offset"])
        assert kept - (2 << 20) < offset <= kept  # the last block may not have been handed on when it broke
        assert (offset > 0) == (kept > 0)
        assert send(other, path, offset, body[offset:]).json()["model"]["digest"] == sha256(body)


async def _broken_patch(app: Any, path: str, key: str, arrived: bytes) -> None:
    """One PATCH whose body ends with the connection."""
    messages: list[Message] = [
        {"type": "http.request", "body": arrived[at : at + 65536], "more_body": True}
        for at in range(0, len(arrived), 65536)
    ]

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send_(message: Message) -> None:
        pass

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "PATCH",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"authorization", key.encode()), (b"upload-offset", b"0"), (b"content-length", b"4194304")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send_)


def test_a_long_body_is_kept_piece_by_piece(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PIECE_BYTES", 10)
    body = bytes(range(45))
    upload = uploads.begin(db, owner, size=45, media_type=RAW, sha256=None, limit=100)
    with uploads.Appender(db, blobs, upload, 0) as appender:
        appender.write(body[:25])
        assert uploads.find(db, owner, upload.id).received == 20
        appender.write(body[25:33])
    assert list(blobs.temporary.iterdir()) == []
    now = uploads.find(db, owner, upload.id)
    assert [part["bytes"] for part in now.parts] == [10, 10, 10]
    with uploads.Appender(db, blobs, now, 30) as appender:
        appender.write(body[30:])
        appender.end()
    kept = uploads.finish(db, blobs, uploads.find(db, owner, upload.id), model=None, limit=100)
    assert kept.model.digest == sha256(body)
    assert uploads.find(db, owner, upload.id).parts == []


def test_too_many_pieces_are_refused(
    db: Database, blobs: LocalBlobs, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MOST_PIECES", 2)
    upload = uploads.begin(db, owner, size=9, media_type=RAW, sha256=None, limit=100)
    for number in range(3):
        upload = uploads.find(db, owner, upload.id)
        with uploads.Appender(db, blobs, upload, number) as appender:
            appender.write(b"x")
            if number < 2:
                appender.end()
                continue
            with pytest.raises(Exception, match="2 pieces"):
                appender.end()


PIECES = st.lists(st.tuples(st.integers(0, 1), st.none() | st.integers(0, 60), st.integers(1, 30)), max_size=12)
"""Which process takes it, where it is misplaced to, and its size."""


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=st.binary(min_size=1, max_size=60), pieces=PIECES)
def test_however_the_pieces_are_cut_and_misplaced_the_bytes_arrive_in_order(
    body: bytes, pieces: list[tuple[int, int | None, int]], client: TestClient, second: TestClient
) -> None:
    path = begin(client, len(body), sha256=sha256(body))
    received, model = 0, None
    for process, misplaced, size in [*pieces, (0, None, len(body))]:
        if model is not None:
            break
        offset = received if misplaced is None else misplaced
        piece = body[offset : offset + size]
        answer = send((client, second)[process], path, offset, piece)
        if offset == received:
            assert answer.status_code == 200, answer.json()
            received += len(piece)
            model = answer.json()["model"]
        else:
            assert answer.status_code == 409
        assert int(answer.headers["upload-offset"]) == received
    assert received == len(body)
    assert model is not None
    assert client.get(model["links"]["file"]).content == body


def test_a_whole_zip_is_hashed_once_however_often_its_model_is_asked_for(
    client: TestClient, second: TestClient, zipped: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    genuine = uploads._hashed

    def counted(*arguments: Any) -> str:
        hashed.append(genuine(*arguments))
        return hashed[-1]

    monkeypatch.setattr(uploads, "_hashed", counted)
    body = zipped({"a.onnx": b"a", "b.onnx": b"b"})
    path = begin(client, len(body), media_type=ZIP, sha256=sha256(body))
    problem(send(client, path, 0, body), 400, "bad_request")
    for which in (client, second, client):
        problem(send(which, path, len(body), b""), 400, "bad_request")
    assert hashed == [sha256(body)]
    assert send(second, path, len(body), b"", model="a.onnx").status_code == 200
    assert hashed == [sha256(body)]


def test_bodies_of_one_owner_beyond_the_limit_are_refused_and_of_another_are_not(
    settings: Settings, ring: Any, client: TestClient, stranger: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go = threading.Semaphore(0), threading.Event()
    genuine = uploads.finish

    def held(*arguments: Any, **named: Any) -> Any:
        entered.release()
        assert go.wait(120.0)
        return genuine(*arguments, **named)

    monkeypatch.setattr(uploads, "finish", held)
    narrow = settings.model_copy(update={"max_uploads_per_owner": 2})
    with TestClient(create_app(narrow, ring=ring), headers=client.headers) as app, ThreadPoolExecutor(4) as pool:
        paths = [begin(app, 1) for _ in range(3)]
        theirs = str(app.post("/uploads", json={"bytes": 1}, headers=stranger).headers["location"])
        sending = {path: pool.submit(send, app, path, 0, b"x") for path in paths[:2]}
        assert entered.acquire(timeout=120.0), "one is finished at a time of each owner; the other one waits"
        refusals: list[Any] = []
        while not refusals or refusals[-1].status_code == 200:  # until the second one has begun too
            for path in [path for path, one in sending.items() if one.done()]:  # refused beside the request below
                problem(sending[path].result(), 429, "too_many_at_once")
                sending[path] = pool.submit(send, app, path, 0, b"x")
            refusals.append(send(app, paths[2], 0, b""))
        refused = refusals[-1]
        assert problem(refused, 429, "too_many_at_once")["details"] == {"limit": 2, "of": "uploads"}
        assert int(refused.headers["retry-after"]) > 0
        assert app.get("/jobs").status_code == 200, "other requests of this owner are no uploads"
        go.set()
        assert [one.result().status_code for one in sending.values()] == [200, 200]
        assert app.patch(theirs, content=b"x", headers={"Upload-Offset": "0", **stranger}).status_code == 200
        assert send(app, paths[2], 0, b"x").status_code == 200
