from __future__ import annotations

import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from service.blobs import s3
from service.blobs.open_blobs import open_blobs
from service.blobs.s3 import PART, S3Blobs
from service.blobs.store import KEY_PATTERN
from service.config import Settings
from service.errors import BlobDamaged, BlobLost, StorageUnavailable
from tests.servers import GUARD_S
from tests.service.s3_server import S3Server


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
def boto(s3_server: S3Server) -> Any:
    return s3_server.client()


@pytest.fixture
def store(s3_server: S3Server, bucket: str, tmp_path: Path) -> S3Blobs:
    opened = open_blobs(s3_server.settings(tmp_path, bucket))
    assert isinstance(opened, S3Blobs)
    return opened


def test_another_client_reads_the_same_bytes_below_the_prefix(store: S3Blobs, bucket: str, boto: Any) -> None:
    data = random.Random(1).randbytes(3 * PART + 5)
    stored = store.put_bytes(data)
    kept = boto.get_object(Bucket=bucket, Key=f"deep/blobs/{stored.key}")
    assert hashlib.sha256(kept["Body"].read()).hexdigest() == stored.sha256
    assert kept["ETag"].strip('"').endswith("-4"), "more than one part goes up as a multipart upload"
    assert boto.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


def test_what_others_keep_in_the_bucket_is_not_ours(store: S3Blobs, bucket: str, boto: Any) -> None:
    boto.put_object(Bucket=bucket, Key="ab/ab" + "0" * 62, Body=b"outside the prefix")
    boto.put_object(Bucket=bucket, Key="deep/blobs/notes.txt", Body=b"no key")
    stored = store.put_bytes(b"ours")
    assert list(dict(store.keys())) == [stored.key]


def test_more_keys_than_one_answer_holds_are_all_listed(store: S3Blobs, bucket: str, boto: Any) -> None:
    names = sorted(hashlib.sha256(b"%d" % number).hexdigest() for number in range(1100))
    for name in names:
        boto.put_object(Bucket=bucket, Key=f"deep/blobs/{name[:2]}/{name}", Body=b"")
    assert list(dict(store.keys())) == [f"{name[:2]}/{name}" for name in names]


def test_bytes_that_are_not_those_of_the_key_are_refused_and_not_cached(store: S3Blobs, bucket: str, boto: Any) -> None:
    stored = store.put_bytes(b"true")
    boto.put_object(Bucket=bucket, Key=f"deep/blobs/{stored.key}", Body=b"fals")
    with pytest.raises(BlobDamaged, match="other bytes"), store.local(stored.key):
        pass
    assert [path for path in store.cache.root.rglob("*") if path.is_file()] == []
    store.put_bytes(b"true")
    with store.local(stored.key) as path:
        assert path.read_bytes() == b"true"


def test_an_object_that_the_store_cut_short_is_noticed(
    store: S3Blobs, bucket: str, boto: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def short(kept: Any, key: str, _: Path, **how: Any) -> Any:
        return put(kept, key, b"sho", **how)

    monkeypatch.setattr(obstore, "put", short)
    with pytest.raises(StorageUnavailable, match="kept with 3"):
        store.put_bytes(b"short")


def test_a_bucket_that_does_not_exist_is_named_as_unavailable(s3_server: S3Server, tmp_path: Path) -> None:
    store = open_blobs(s3_server.settings(tmp_path, "tilewright-no-such-bucket"))
    for attempt in (store.check, lambda: store.put_bytes(b"x"), lambda: list(store.keys())):
        with pytest.raises(StorageUnavailable) as caught:
            attempt()
        assert "TILEWRIGHT_BLOB_" in caught.value.fix
        assert "test-secret" not in str(caught.value)
        assert s3_server.endpoint not in str(caught.value)


def test_a_store_that_does_not_answer_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "RETRIES", 0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = S3Server(f"http://127.0.0.1:{closed.getsockname()[1]}")
        store = open_blobs(server.settings(tmp_path, "bucket"))
        with pytest.raises(StorageUnavailable):
            store.check()


@pytest.fixture
def unwell(s3_server: S3Server) -> Iterator[tuple[S3Server, list[bytes]]]:
    """The same store behind a door that answers the first two requests with 503, and what came through it."""
    seen: list[bytes] = []
    target = int(s3_server.endpoint.rsplit(":", 1)[1])
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            with near, near.makefile("rb") as lines:
                head = b""
                while (line := lines.readline()) not in (b"\r\n", b""):
                    head += b"connection: close\r\n" if line.lower().startswith(b"connection:") else line
                seen.append(head)
                if len(seen) <= 2:
                    near.sendall(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    continue
                size = next(
                    (int(x.split(b":")[1]) for x in head.lower().splitlines() if x[:15] == b"content-length:"), 0
                )
                with socket.create_connection(("127.0.0.1", target)) as far:
                    far.sendall(head + b"connection: close\r\n\r\n" + lines.read(size))
                    while chunk := far.recv(1 << 16):
                        near.sendall(chunk)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield S3Server(f"http://127.0.0.1:{listener.getsockname()[1]}"), seen
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_store_that_is_unwell_for_a_moment_is_asked_again(
    unwell: tuple[S3Server, list[bytes]], bucket: str, tmp_path: Path
) -> None:
    server, seen = unwell
    store = open_blobs(server.settings(tmp_path, bucket))
    stored = store.put_bytes(b"in the end")
    assert b"".join(store.read(stored.key)) == b"in the end"
    assert len(seen) > 4


def test_credentials_are_taken_from_the_environment_when_the_settings_name_none(
    s3_server: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    settings = Settings(data_dir=tmp_path, blob_url=f"s3://{bucket}", blob_endpoint=s3_server.endpoint)
    store = open_blobs(settings)
    assert isinstance(store, S3Blobs)
    stored = store.put_bytes(b"x")
    assert s3_server.client().head_object(Bucket=bucket, Key=stored.key)["ContentLength"] == 1


def test_a_missing_object_is_not_found_and_not_unavailable(store: S3Blobs) -> None:
    with pytest.raises(BlobLost):
        store.size("ab/ab" + "0" * 62)


def test_uploads_leave_nothing_on_the_local_disk(store: S3Blobs) -> None:
    store.put_bytes(os.urandom(100))
    assert [path for path in store.cache.root.rglob("*") if path.is_file()] == []


class Gate:
    """Holds one thread before its call of a function of obstore until another has come far enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, held: str) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        real = getattr(obstore, name)

        def gated(kept: Any, path: str, *further: Any, **more: Any) -> Any:
            if threading.current_thread().name == held and KEY_PATTERN.fullmatch(path):
                self.reached.set()
                assert self.open.wait(GUARD_S)
            return real(kept, path, *further, **more)

        monkeypatch.setattr(obstore, name, gated)


@pytest.mark.parametrize("moment", ["put", "announced", "between"])
def test_what_is_put_again_while_it_is_removed_is_there_when_the_writer_is_done(
    store: S3Blobs, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The remover has looked, and found it old, before the writer puts it, and deletes it after that."""
    stored = store.put_bytes(b"renewed")
    later = time.time() + 1000
    gate = Gate(monkeypatch, "delete", "remover")
    put = threading.Event()
    look = S3Blobs._is_being_removed

    def looks(self: S3Blobs, key: str) -> bool:
        put.set()
        if moment == "between":
            gate.open.set()
            remover.join(GUARD_S)
        return look(self, key)

    monkeypatch.setattr(S3Blobs, "_is_being_removed", looks)
    remover = threading.Thread(
        target=store.delete, args=(stored.key,), kwargs={"unless_written_since": later}, name="remover"
    )
    remover.start()
    assert gate.reached.wait(GUARD_S)
    if moment == "put":
        gate.open.set()
        remover.join(GUARD_S)
    writer = threading.Thread(target=store.put_bytes, args=(b"renewed",), name="writer")
    writer.start()
    assert put.wait(GUARD_S)
    if moment == "announced":
        writer.join(0.5)
        assert writer.is_alive(), "it waits for the removal"
        gate.open.set()
    for thread in (writer, remover):
        thread.join(GUARD_S)
        assert not thread.is_alive()
    assert b"".join(store.read(stored.key)) == b"renewed"
    assert list(store._below(s3.REMOVING)) == []


def test_a_removal_that_took_too_long_to_decide_is_left_to_the_next_round(
    store: S3Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store.put_bytes(b"old")
    monkeypatch.setattr(s3, "DECIDE_WITHIN_S", 0.0)
    store.delete(stored.key)
    assert store.size(stored.key) == 3


def test_a_removal_whose_process_was_killed_is_waited_for_a_while_and_swept(
    store: S3Blobs, bucket: str, boto: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store.put_bytes(b"old")
    boto.put_object(Bucket=bucket, Key=f"deep/blobs/{s3.REMOVING}/{stored.key}/left", Body=b"")
    monkeypatch.setattr(s3, "STALE_S", 0.3)
    store.put_bytes(b"old")
    assert store.size(stored.key) == 3
    store.sweep(1000)
    assert len(list(store._below(s3.REMOVING))) == 1
    store.sweep(-10)
    assert list(store._below(s3.REMOVING)) == []


def test_a_copy_that_this_disk_damaged_is_fetched_anew(store: S3Blobs) -> None:
    stored = store.put_bytes(b"whole")
    with store.local(stored.key, 5) as path:
        pass
    path.write_bytes(b"")
    with store.local(stored.key, 5) as again:
        assert again.read_bytes() == b"whole"


def test_a_copy_that_this_disk_changed_at_the_same_length_is_fetched_anew(store: S3Blobs, tmp_path: Path) -> None:
    stored = store.put_bytes(b"whole")
    with store.local(stored.key, 5) as path:
        pass
    path.write_bytes(b"WHOLE")
    store.copy_to(stored.key, tmp_path / "copy", 5)
    assert (tmp_path / "copy").read_bytes() == b"whole"
    assert list(store.set_aside()) == []
