from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.blobs import copies, local
from service.blobs.local import LocalBlobs
from service.errors import BlobDamaged, BlobLost, StorageUnavailable


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
    with pytest.raises(BlobLost):
        store.path(key)


def test_the_same_bytes_again_replace_the_file_and_renew_its_time_and_who_reads_the_old_one_reads_on(
    tmp_path: Path,
) -> None:
    blobs = LocalBlobs(tmp_path)
    path = blobs.path(blobs.put_bytes(b"same").key)
    path.write_bytes(b"s\0me")
    os.utime(path, (1.0, 1.0))
    with path.open("rb") as reading:
        blobs.put_bytes(b"same")
        assert reading.read() == b"s\0me"
    assert path.read_bytes() == b"same"
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


def test_a_file_that_is_written_anew_while_the_damaged_one_is_set_aside_stays(
    store: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store.put_bytes(b"whole")
    store.path(stored.key).write_bytes(b"WHOLE")
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        self.unlink()
        store.put_bytes(b"whole")  # after the damaged one was read
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(BlobDamaged):
        store.verify(stored.key, 5)
    assert store.path(stored.key).read_bytes() == b"whole"


def test_a_file_whose_remover_was_killed_is_put_back(store: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store.put_bytes(b"kept")
    os.utime(store.path(stored.key), (1.0, 1.0))

    def killed(self: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            store.delete(stored.key, unless_written_since=1000.0)
    assert list(store.keys()) == []
    assert store.sweep(1e9) == 0
    monkeypatch.setattr(local, "REMOVING_S", -1.0)
    store.sweep(1e9)
    assert store.path(stored.key).read_bytes() == b"kept"


def test_a_file_that_is_between_two_names_is_looked_for_once_more(
    store: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.path(store.put_bytes(b"kept").key)
    aside = path.with_name("aside")
    path.rename(aside)
    monkeypatch.setattr(time, "sleep", lambda _: aside.rename(path))
    assert store.path(f"{path.parent.name}/{path.name}") == path


def test_what_was_read_otherwise_than_it_is_kept_is_not_taken_for_damaged(
    store: LocalBlobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = store.put_bytes(b"whole")
    monkeypatch.setattr(local, "_chunks", lambda file, *_: iter([file.read().upper(), file.close() or b""]))
    monkeypatch.setattr(copies, "_copy", lambda _, path: path.write_bytes(b"WHOLE"))
    for use in (lambda: b"".join(store.read(stored.key)), lambda: store.copy_to(stored.key, tmp_path / "copy")):
        with pytest.raises(StorageUnavailable, match="other bytes than it has") as caught:
            use()
        assert type(caught.value) is StorageUnavailable, "so that it is tried again"
    assert list(store.set_aside()) == []
    assert not (tmp_path / "copy").exists()
