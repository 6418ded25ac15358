from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from service.blobs import spool as subject
from service.blobs.spool import Spool
from service.blobs.store import CHUNK
from service.errors import StorageUnavailable

DATA = random.Random(3).randbytes(4 * CHUNK + 12_345)


@pytest.fixture(autouse=True)
def soon_past_the_page_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "CACHED_BYTES", 2 * CHUNK)


def spooled(folder: Path) -> tuple[bytes, str]:
    spool = Spool(folder, None)
    for at in range(0, len(DATA), 70_001):
        spool.write(memoryview(DATA)[at : at + 70_001])
    digest = spool.seal(durable=True)
    content = spool.path.read_bytes()
    spool.discard()
    assert list(folder.iterdir()) == []
    return content, digest


def test_a_long_file_is_whole_where_part_of_it_went_past_the_page_cache(tmp_path: Path) -> None:
    assert spooled(tmp_path) == (DATA, hashlib.sha256(DATA).hexdigest())


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no O_DIRECT")
@pytest.mark.parametrize("refused", ["when it is asked for", "when it is used"])
def test_a_file_system_that_only_knows_the_page_cache_serves_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    control, write = fcntl.fcntl, os.write
    refusals = []

    def no_flag(descriptor: Any, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT and refused == "when it is asked for":
            refusals.append(argument)
            raise OSError(errno.EINVAL, "not here")
        return int(control(descriptor, command, argument))

    def no_write(descriptor: int, data: Any) -> int:
        if control(descriptor, fcntl.F_GETFL) & os.O_DIRECT and refused == "when it is used":
            refusals.append(descriptor)
            raise OSError(errno.EINVAL, "not here")
        return write(descriptor, data)

    monkeypatch.setattr(fcntl, "fcntl", no_flag)
    monkeypatch.setattr(os, "write", no_write)
    assert spooled(tmp_path) == (DATA, hashlib.sha256(DATA).hexdigest())
    assert refusals


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, memoryview(data)[:100_001]))
    assert spooled(tmp_path) == (DATA, hashlib.sha256(DATA).hexdigest())


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    spool = Spool(tmp_path, None)
    with pytest.raises(StorageUnavailable, match="No space left"):
        spool.write(DATA)
    spool.discard()
    assert list(tmp_path.iterdir()) == []
