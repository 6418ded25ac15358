from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.blobs.local import LocalBlobs
from service.errors import NotFound


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs")


def test_the_same_bytes_have_one_home_even_when_written_at_once(store: LocalBlobs) -> None:
    start = threading.Barrier(4)

    def put(_: int) -> str:
        start.wait()
        return store.put_bytes(b"same").key

    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(put, range(4)))
    assert len(keys) == 1
    assert len([path for path in store.root.rglob("*") if path.is_file()]) == 1


def test_the_file_is_synced_before_it_gets_its_name_and_the_folder_after(
    store: LocalBlobs, monkeypatch: pytest.MonkeyPatch
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

    store.delete(store.put_bytes(b"x").key)  # the folder stays
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_rename)
    store.put_bytes(b"x")
    assert order == ["sync file", "rename", "sync folder"]


@pytest.mark.parametrize("key", ["", "../secret", "/etc/passwd", "ab/../../x", "ab/" + "0" * 64])
def test_keys_that_were_never_given_out_name_nothing(store: LocalBlobs, key: str) -> None:
    with pytest.raises(NotFound):
        store.path(key)


def test_the_same_bytes_again_leave_the_file_and_renew_its_time(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    path = blobs.path(blobs.put_bytes(b"same").key)
    before = path.stat()
    os.utime(path, (1.0, 1.0))
    blobs.put_bytes(b"same")
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime > 1.0
    assert list(blobs.temporary.iterdir()) == []


def test_what_is_renewed_while_it_is_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = LocalBlobs(tmp_path)
    stored = blobs.put_bytes(b"kept")
    path = blobs.path(stored.key)
    os.utime(path, (1.0, 1.0))
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        blobs.put_bytes(b"kept")  # between the look at its time and its removal
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    blobs.delete(stored.key, unless_written_since=1000.0)
    assert path.read_bytes() == b"kept"
    assert list(blobs.temporary.iterdir()) == []
