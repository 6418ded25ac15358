from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from service import reserve
from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db.engine import Database
from service.errors import StorageUnavailable
from service.reserve import NAME, Reserve

BYTES = 1 << 20


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What is free of the disk."""
    left = SimpleNamespace(bytes=100 * BYTES)
    monkeypatch.setattr(reserve, "_free", lambda folder: left.bytes)
    return left


def state(held: Reserve) -> tuple[int, bool]:
    """How large it is, and whether it was freed."""
    path = held.folders[0] / NAME
    return path.stat().st_size if path.exists() else 0, held.is_freed


def test_it_is_freed_on_a_full_disk_alone_and_filled_when_there_is_room_for_twice_as_much(
    tmp_path: Path, left: SimpleNamespace
) -> None:
    held = Reserve((tmp_path,), BYTES)
    assert state(held) == (0, False), "what was never set aside was not needed"
    assert held.fill()
    held.make_room()
    assert state(held) == (BYTES, False)
    left.bytes = BYTES - 1
    held.make_room()
    assert state(held) == (0, True)
    left.bytes = 2 * BYTES - 1
    assert not held.fill()
    left.bytes = 2 * BYTES
    assert held.fill()
    assert state(held) == (BYTES, False)


def test_one_disk_has_one_reserve_of_a_twentieth_at_most(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    held = Reserve.of(Settings(data_dir=tmp_path, reserve_bytes=1 << 60))
    assert held.folders == (tmp_path, blobs)
    disks = held._disks()
    assert disks == [tmp_path]
    assert held._wanted(tmp_path) < 1 << 60
    elsewhere = Settings(data_dir=tmp_path, database_url="postgresql://x/y", blob_url="s3://bucket")
    assert Reserve.of(elsewhere).folders == ()


def test_what_deletes_frees_it_and_no_blob_takes_what_it_left(tmp_path: Path, left: SimpleNamespace) -> None:
    held = Reserve((tmp_path,), BYTES)
    held.fill()
    db, blobs = Database(f"sqlite:///{tmp_path / 'x.db'}", reserve=held), LocalBlobs(tmp_path / "blobs", held)
    left.bytes = 0
    with db.write():
        pass
    assert state(held) == (BYTES, False), "what only adds has none of it"
    with db.delete():
        pass
    assert state(held) == (0, True)
    with pytest.raises(StorageUnavailable, match="for deletions"):
        blobs.put_bytes(b"more")
    with pytest.raises(StorageUnavailable):
        blobs.check()
    left.bytes = 100 * BYTES
    blobs.put_bytes(b"more")
    assert state(held) == (BYTES, False)
    db.dispose()


def test_without_a_reserve_nothing_is_held_or_refused(tmp_path: Path, left: SimpleNamespace) -> None:
    held = Reserve((tmp_path,), 0)
    left.bytes = 0
    held.make_room()
    assert held.fill()
    assert not held.is_freed
    assert not (tmp_path / NAME).exists()
