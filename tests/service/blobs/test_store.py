"""What every blob store promises, asked of each."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.blobs.open_blobs import open_blobs
from service.blobs.store import CHUNK, Blobs, StoredBlob
from service.config import Settings
from service.errors import BlobDamaged, BlobLost, BodyTooLarge, StorageUnavailable
from tests.service.s3_server import S3Server

MISSING = "ab/ab" + "0" * 62
FOREIGN = ["", "../secret", "/etc/passwd", "ab/../../x", "tmp/x", "AB/AB" + "0" * 62]


def noise(count: int) -> bytes:
    """The same bytes for the same count."""
    return random.Random(count).randbytes(count)


@pytest.fixture(params=["local", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "local":
        return Settings(data_dir=tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    return server.settings(tmp_path, server.bucket())


@pytest.fixture
def store(settings: Settings) -> Blobs:
    return open_blobs(settings)


@pytest.fixture
def files_left(tmp_path: Path) -> Callable[[], list[Path]]:
    return lambda: [path for path in tmp_path.rglob("*") if path.is_file()]


def whole(store: Blobs, stored: StoredBlob) -> bytes:
    return b"".join(store.read(stored.key))


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 9 * CHUNK + 17])
def test_what_is_written_in_pieces_is_read_back_whole(store: Blobs, count: int) -> None:
    data, pieces = noise(count), random.Random(7)
    with store.writer() as writer:
        at = 0
        while at < count:
            size = pieces.choice([1, 1000, 65_536, 3 * CHUNK])
            writer.write(memoryview(data)[at : at + size])
            at += size
        assert writer.size == count
        stored = writer.commit()
    assert (stored.sha256, stored.bytes) == (hashlib.sha256(data).hexdigest(), count)
    assert stored.key == f"{stored.sha256[:2]}/{stored.sha256}"
    assert (store.size(stored.key), whole(store, stored)) == (count, data)
    with store.local(stored.key) as path:
        assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (5, 5), (CHUNK - 1, CHUNK + 1), (5 * CHUNK, None), (1, 5 * CHUNK + 2), (0, 99 * CHUNK)]
)
def test_a_range_is_read_without_the_rest(store: Blobs, start: int, end: int | None) -> None:
    data = noise(5 * CHUNK + 3)
    stored = store.put_bytes(data)
    assert b"".join(store.read(stored.key, start, end)) == data[start:end]


def test_the_same_bytes_have_one_home_even_when_written_at_once(store: Blobs) -> None:
    start = threading.Barrier(4)

    def put(_: int) -> str:
        start.wait()
        return store.put_bytes(b"same").key

    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(put, range(4)))
    assert set(dict(store.keys())) == keys
    assert len(keys) == 1


def test_an_abandoned_upload_leaves_nothing(store: Blobs, files_left: Callable[[], list[Path]]) -> None:
    def break_off() -> None:
        with store.writer() as writer:
            writer.write(b"half" * CHUNK)
            raise RuntimeError("the client is gone")

    with pytest.raises(RuntimeError, match="gone"):
        break_off()
    assert (files_left(), list(store.keys())) == ([], [])


def test_the_limit_is_exact(store: Blobs) -> None:
    with store.writer(3) as writer:
        writer.write(b"abc")
        with pytest.raises(BodyTooLarge):
            writer.write(b"d")


def test_a_file_is_copied_in(store: Blobs, tmp_path: Path) -> None:
    (tmp_path / "a.tw").write_bytes(noise(3_000_000))
    stored = store.put_file(tmp_path / "a.tw")
    assert (stored.bytes, whole(store, stored)) == (3_000_000, noise(3_000_000))
    with pytest.raises(StorageUnavailable):
        store.put_file(tmp_path / "missing")


@pytest.mark.parametrize("key", [MISSING, *FOREIGN])
def test_keys_that_were_never_given_out_name_nothing(store: Blobs, key: str) -> None:
    with pytest.raises(BlobLost):
        store.read(key)
    with pytest.raises(BlobLost):
        store.size(key)
    with pytest.raises(BlobLost), store.local(key):
        pass
    store.delete(key)


def test_a_deleted_blob_is_gone_and_may_come_back(store: Blobs) -> None:
    stored = store.put_bytes(b"x")
    with store.local(stored.key):
        pass
    store.delete(stored.key)
    store.delete(stored.key)
    assert list(store.keys()) == []
    with pytest.raises(BlobLost), store.local(stored.key):
        pass
    assert store.put_bytes(b"x") == stored
    assert whole(store, stored) == b"x"


def test_keys_tell_the_last_write_and_writing_again_refreshes_it(store: Blobs) -> None:
    first, other = store.put_bytes(b"first"), store.put_bytes(b"other")
    written = dict(store.keys())
    assert set(written) == {first.key, other.key}
    assert all(abs(time.time() - at) < 60 for at in written.values())
    time.sleep(1.1)  # S3 keeps whole seconds
    store.put_bytes(b"first")
    again = dict(store.keys())
    assert again[first.key] > written[first.key]
    assert again[other.key] == written[other.key]


def test_a_copy_is_nobody_elses_and_gone_afterwards(store: Blobs, files_left: Callable[[], list[Path]]) -> None:
    stored = store.put_bytes(noise(3 * CHUNK + 5))
    with store.local(stored.key) as blob:
        there, mode = files_left(), blob.stat().st_mode
        with store.copy(stored.key, stored.bytes) as one, store.copy(stored.key) as other:
            assert one.read_bytes() == other.read_bytes() == blob.read_bytes()
            assert len({path.stat().st_ino for path in (one, other, blob)}) == 3
            assert one.stat().st_mode & 0o777 == 0o400
            one.chmod(0o600)
            one.write_bytes(b"spoilt")
            assert blob.stat().st_mode == mode
        assert files_left() == there
    assert whole(store, stored) == noise(3 * CHUNK + 5)
    store.delete(stored.key)
    with pytest.raises(BlobLost), store.copy(stored.key):
        pass
    with pytest.raises(BlobLost), store.copy("nothing"):
        pass


def test_what_was_written_since_survives_its_deletion(store: Blobs) -> None:
    stored = store.put_bytes(b"x")
    written = dict(store.keys())[stored.key]
    store.delete(stored.key, unless_written_since=written)
    assert store.size(stored.key) == 1
    store.delete(stored.key, unless_written_since=written + 1)
    with pytest.raises(BlobLost):
        store.size(stored.key)
    store.delete(stored.key, unless_written_since=written)


def test_the_check_leaves_nothing(store: Blobs, files_left: Callable[[], list[Path]]) -> None:
    store.check()
    assert (list(store.keys()), files_left()) == ([], [])


def test_only_old_temporary_files_are_swept(store: Blobs, settings: Settings) -> None:
    temporary = (settings.blob_cache_root if settings.blob_url else settings.blob_root) / "tmp"
    (temporary / "old").write_bytes(b"x")
    (temporary / "new").write_bytes(b"x")
    long_ago = time.time() - 1000
    os.utime(temporary / "old", (long_ago, long_ago))
    assert store.sweep(500) == 1
    assert [path.name for path in temporary.iterdir()] == ["new"]


def test_a_reader_that_stops_early_holds_nothing_open(store: Blobs) -> None:
    stored = store.put_bytes(noise(9 * CHUNK))
    chunks = store.read(stored.key)
    assert noise(9 * CHUNK).startswith(next(chunks))
    del chunks
    opened = []
    for link in Path("/proc/self/fd").glob("*"):  # empty where there is no such folder
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(link))
    assert not any(stored.sha256 in name for name in opened)


@pytest.fixture
def spoil(settings: Settings, request: pytest.FixtureRequest) -> Callable[[str, bytes], None]:
    """Puts other bytes where the store keeps a key."""

    def spoil(key: str, data: bytes) -> None:
        if not settings.blob_url:
            (settings.blob_root / key).write_bytes(data)
            return
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = settings.blob_url.split("/")[2]
        server.client().put_object(Bucket=bucket, Key=f"deep/blobs/{key}", Body=data)

    return spoil


def test_a_blob_of_another_length_than_its_row_says_is_not_opened(
    store: Blobs, spoil: Callable[[str, bytes], None]
) -> None:
    stored = store.put_bytes(b"whole")
    assert b"".join(store.read(stored.key, length=5)) == b"whole"
    with store.local(stored.key, 5) as path:
        assert path.read_bytes() == b"whole"
    spoil(stored.key, b"who")
    with pytest.raises(BlobDamaged, match="3 bytes and should have 5"):
        store.read(stored.key, length=5)
    other = store.put_bytes(b"another")
    spoil(other.key, b"anothe")
    with pytest.raises(BlobDamaged), store.local(other.key, 7):
        pass


def test_a_blob_of_another_length_is_whole_again_when_it_is_written_again(
    store: Blobs, spoil: Callable[[str, bytes], None]
) -> None:
    stored = store.put_bytes(b"whole")
    spoil(stored.key, b"")
    assert store.put_bytes(b"whole") == stored
    assert b"".join(store.read(stored.key, length=5)) == b"whole"


@pytest.mark.parametrize("bad", [b"WHOLE", b"who", b"wholesome", b""])
def test_what_is_damaged_is_set_aside_and_comes_back_when_it_is_written_again(
    store: Blobs, spoil: Callable[[str, bytes], None], bad: bytes
) -> None:
    stored, other = store.put_bytes(b"whole"), store.put_bytes(b"other")
    store.verify(stored.key, 5)
    spoil(stored.key, bad)
    with pytest.raises(BlobDamaged):
        store.verify(stored.key, 5)
    assert [key for _, key in store.set_aside()] == [stored.key]
    assert set(dict(store.keys())) == {other.key}
    with pytest.raises(BlobLost):
        store.verify(stored.key, 5)
    with pytest.raises(BlobLost):
        store.read(stored.key, length=5)
    assert store.put_bytes(b"whole") == stored
    store.verify(stored.key, 5)
    store.verify(other.key, 5)
    for name, _ in store.set_aside():
        store.discard(name)
    assert list(store.set_aside()) == []
    assert b"".join(store.read(stored.key, length=5)) == b"whole"


def _read(store: Blobs, stored: StoredBlob, folder: Path) -> bytes:
    return b"".join(store.read(stored.key, length=stored.bytes))


def _read_to_its_length(store: Blobs, stored: StoredBlob, folder: Path) -> bytes:
    return b"".join(store.read(stored.key, 0, stored.bytes))


def _copy_to(store: Blobs, stored: StoredBlob, folder: Path) -> bytes:
    store.copy_to(stored.key, folder / "copy", stored.bytes)
    return (folder / "copy").read_bytes()


def _copy(store: Blobs, stored: StoredBlob, folder: Path) -> bytes:
    with store.copy(stored.key) as path:
        return path.read_bytes()


USES = [_read, _read_to_its_length, _copy_to, _copy]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("size", [5, 2 * CHUNK + 7, 9 * CHUNK])
def test_bytes_that_changed_at_the_same_length_are_never_handed_out_and_come_back_when_they_are_written_again(
    store: Blobs,
    spoil: Callable[[str, bytes], None],
    tmp_path: Path,
    use: Callable[[Blobs, StoredBlob, Path], bytes],
    size: int,
) -> None:
    data = noise(size)
    stored = store.put_bytes(data)
    flipped = bytearray(data)
    flipped[size // 2] ^= 64
    spoil(stored.key, bytes(flipped))
    with pytest.raises(BlobDamaged) as caught:
        use(store, stored, tmp_path)
    assert stored.key in str(caught.value)
    assert not (tmp_path / "copy").exists()
    assert [key for _, key in store.set_aside()] == [stored.key]
    with pytest.raises(BlobLost):
        use(store, stored, tmp_path)
    assert store.put_bytes(data) == stored
    assert use(store, stored, tmp_path) == data


def test_the_last_chunk_of_damaged_bytes_is_not_given(store: Blobs, spoil: Callable[[str, bytes], None]) -> None:
    data = noise(9 * CHUNK)
    stored = store.put_bytes(data)
    spoil(stored.key, bytes([data[0] ^ 1]) + data[1:])
    chunks = store.read(stored.key)
    given = [len(next(chunks))]
    with pytest.raises(BlobDamaged):
        given.extend(map(len, chunks))
    assert sum(given) < len(data)


@pytest.mark.parametrize("use", USES)
def test_bytes_that_changed_unseen_are_replaced_when_they_are_written_again(
    store: Blobs,
    spoil: Callable[[str, bytes], None],
    tmp_path: Path,
    use: Callable[[Blobs, StoredBlob, Path], bytes],
) -> None:
    stored = store.put_bytes(b"whole")
    spoil(stored.key, b"WHOLE")
    assert store.put_bytes(b"whole") == stored
    assert use(store, stored, tmp_path) == b"whole"
