from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.blobs.cache import Cache
from service.blobs.store import key_of
from service.errors import StorageUnavailable

BLOBS = [bytes([letter]) * 100 for letter in b"abcdef"]
KEYS = [key_of(hashlib.sha256(data).hexdigest()) for data in BLOBS]


class Far:
    """The far store, and what was fetched from it."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __call__(self, key: str) -> Generator[bytes]:
        number = KEYS.index(key)
        self.fetched.append(number)
        yield BLOBS[number][:50]
        yield BLOBS[number][50:]


@pytest.fixture
def far() -> Far:
    return Far()


def cached(cache: Cache) -> list[int]:
    return [number for number, key in enumerate(KEYS) if (cache.root / key).exists()]


def use(cache: Cache, far: Far, number: int) -> None:
    with cache.holding(KEYS[number], far) as path:
        assert path.read_bytes() == BLOBS[number]


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path, far: Far) -> None:
    for _ in range(2):
        use(Cache(tmp_path, 1000), far, 0)
    assert far.fetched == [0]


def test_the_least_recently_used_goes_first(tmp_path: Path, far: Far) -> None:
    cache = Cache(tmp_path, 300)
    for number in (0, 1, 2):
        use(cache, far, number)
        os.utime(cache.root / KEYS[number], (number + 1, number + 1))
    use(cache, far, 0)
    use(cache, far, 3)
    assert cached(cache) == [0, 2, 3]


def test_what_is_in_use_stays_even_past_the_limit(tmp_path: Path, far: Far) -> None:
    cache = Cache(tmp_path, 150)
    with cache.holding(KEYS[0], far) as first, cache.holding(KEYS[1], far) as second:
        use(cache, far, 2)
        assert (first.read_bytes(), second.read_bytes()) == (BLOBS[0], BLOBS[1])
        cache.drop(KEYS[0])
        assert first.exists()
    use(cache, far, 3)
    assert cached(cache) == [3]


def test_what_another_process_uses_stays_until_that_process_is_gone(tmp_path: Path, far: Far) -> None:
    cache = Cache(tmp_path, 0)
    use(cache, far, 0)
    path = cache.root / KEYS[0]
    script = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        use(cache, far, 1)
        assert path.exists()
        other.kill()
        other.wait()
    use(cache, far, 2)
    assert not path.exists()


def test_many_readers_at_once_see_whole_files_while_they_are_evicted(tmp_path: Path, far: Far) -> None:
    cache = Cache(tmp_path, 250)

    def read(reader: int) -> None:
        for step in range(40):
            use(cache, far, (reader * 5 + step) % len(BLOBS))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(read, range(6)))
    assert list(cache.temporary.iterdir()) == []


def test_a_file_that_is_removed_between_opening_and_locking_is_fetched_anew(
    tmp_path: Path, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, 1000)
    use(cache, far, 0)
    lock, once = fcntl.flock, threading.Event()

    def late(descriptor: int, how: int) -> None:
        if not once.is_set():
            once.set()
            (cache.root / KEYS[0]).unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    use(cache, far, 0)
    assert far.fetched == [0, 0]


def test_a_fetch_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1000)

    def broken(_: str) -> Generator[bytes]:
        yield b"half"
        raise StorageUnavailable("gone")

    with pytest.raises(StorageUnavailable, match="gone"), cache.holding(KEYS[0], broken):
        pass
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_was_fetched_anew_meanwhile_is_not_removed(
    tmp_path: Path, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, 1000)
    use(cache, far, 0)
    path = cache.root / KEYS[0]
    lock = fcntl.flock

    def others_are_faster(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX:
            path.unlink()
            path.write_bytes(BLOBS[0])
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", others_are_faster)
    cache.drop(KEYS[0])
    assert cached(cache) == [0]
