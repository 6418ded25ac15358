"""Blobs, one after the other, as one file that can be read anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.blobs.ranged import Ranged
from service.blobs.store import Blobs

WINDOW = 1 << 20
"""Bytes that are fetched at once, at least."""


@dataclass(frozen=True)
class Piece:
    """A blob and its length in bytes."""

    key: str
    bytes: int


def stream(blobs: Blobs, pieces: Sequence[Piece]) -> Iterator[bytes]:
    """All bytes in order, in chunks. Raises `StorageUnavailable`."""
    for piece in pieces:
        yield from blobs.read(piece.key, length=piece.bytes)


def as_file(blobs: Blobs, pieces: Sequence[Piece], largest: int) -> Ranged:
    """A file to be read, never more than `largest` bytes at a time: a larger read raises `ValueError`.

    Reads raise `StorageUnavailable`.
    """
    starts = tuple(itertools.accumulate((piece.bytes for piece in pieces), initial=0))

    def fetch(start: int, end: int) -> bytes:
        found: list[bytes] = []
        for begin, piece in zip(starts, pieces, strict=False):
            first, last = max(start - begin, 0), min(end - begin, piece.bytes)
            if first < last:
                found.extend(blobs.read(piece.key, first, last, length=piece.bytes))
        return b"".join(found)

    return Ranged(fetch, starts[-1], window=WINDOW, largest=largest)
