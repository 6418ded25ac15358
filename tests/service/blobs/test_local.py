from __future__ import annotations

import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.blobs.local import Blobs
from service.errors import BodyTooLarge, NotFound, StorageUnavailable


@pytest.fixture
def store(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def test_what_is_written_in_pieces_is_read_back_whole(store: Blobs) -> None:
    with store.writer() as writer:
        writer.write(b"ab")
        writer.write(memoryview(b"cd"))
        stored = writer.commit()
    assert store.path(stored.key).read_bytes() == b"abcd"
    assert (stored.sha256, stored.bytes) == (hashlib.sha256(b"abcd").hexdigest(), 4)


def test_the_same_bytes_have_one_home_even_when_written_at_once(store: Blobs) -> None:
    start = threading.Barrier(4)

    def put(_: int) -> str:
        start.wait()
        return store.put_bytes(b"same").key

    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(put, range(4)))
    assert len(keys) == 1
    assert len([path for path in store.root.rglob("*") if path.is_file()]) == 1


def test_an_abandoned_upload_leaves_nothing(store: Blobs) -> None:
    def break_off() -> None:
        with store.writer() as writer:
            writer.write(b"half")
            raise RuntimeError("the client is gone")

    with pytest.raises(RuntimeError, match="gone"):
        break_off()
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_the_limit_is_exact(store: Blobs) -> None:
    with store.writer(3) as writer:
        writer.write(b"abc")
        with pytest.raises(BodyTooLarge):
            writer.write(b"d")


def test_the_file_is_synced_before_it_gets_its_name_and_the_folder_after(
    store: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, rename = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        order.append("sync folder" if os.path.isdir(path) else "sync file")
        sync(descriptor)

    def noted_rename(source: Path, target: Path) -> None:
        order.append("rename")
        rename(source, target)

    store.put_bytes(b"x")  # makes the folder
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_rename)
    store.put_bytes(b"x")
    assert order == ["sync file", "rename", "sync folder"]


def test_a_file_is_copied_in(store: Blobs, tmp_path: Path) -> None:
    (tmp_path / "a.tw").write_bytes(b"z" * 3_000_000)
    stored = store.put_file(tmp_path / "a.tw")
    assert store.path(stored.key).stat().st_size == stored.bytes == 3_000_000
    with pytest.raises(StorageUnavailable):
        store.put_file(tmp_path / "missing")


@pytest.mark.parametrize("key", ["", "../secret", "/etc/passwd", "ab/../../x", "ab/" + "0" * 64])
def test_keys_that_were_never_given_out_name_nothing(store: Blobs, key: str) -> None:
    with pytest.raises(NotFound):
        store.path(key)


def test_only_old_temporary_files_are_swept(store: Blobs) -> None:
    (store.temporary / "old").write_bytes(b"x")
    (store.temporary / "new").write_bytes(b"x")
    long_ago = time.time() - 1000
    os.utime(store.temporary / "old", (long_ago, long_ago))
    assert store.sweep(500) == 1
    assert [path.name for path in store.temporary.iterdir()] == ["new"]
