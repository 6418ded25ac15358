from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.blobs.local import LocalBlobs
from service.jobs.storage import pieces
from service.jobs.storage.pieces import Piece, as_file, stream


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    parts=st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6),
    reads=st.lists(st.tuples(st.integers(0, 130), st.integers(0, 40)), max_size=10),
)
def test_pieces_read_anywhere_are_as_their_bytes_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[bytes], reads: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(pieces, "WINDOW", 7)
    blobs = LocalBlobs(tmp_path)
    kept = [Piece(blobs.put_bytes(part).key, len(part)) for part in parts]
    whole = b"".join(parts)
    file = as_file(blobs, kept, 1000)
    for at, size in reads:
        assert file.seek(at) == at
        assert file.read(size) == whole[at : at + size]
        assert file.tell() == at + len(whole[at : at + size])
    assert file.seek(-1, os.SEEK_END) == len(whole) - 1
    assert file.read() == whole[-1:]
    assert b"".join(stream(blobs, kept)) == whole


def test_a_read_that_is_too_large_and_a_place_before_the_beginning_are_refused(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    file = as_file(blobs, [Piece(blobs.put_bytes(b"0123456789").key, 10)], 5)
    assert file.read(5) == b"01234"
    file.seek(0)
    with pytest.raises(ValueError, match="in one piece"):
        file.read()
    with pytest.raises(ValueError, match="before"):
        file.seek(-11, os.SEEK_END)
