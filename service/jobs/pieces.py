"""Blobs, one after the other, as one file that can be read anywhere."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.blobs.store import Blobs

WINDOW = 1 << 20
"""Bytes that are fetched at once, at least."""


@dataclass(frozen=True)
class Piece:
    """A blob and its length in bytes."""

    key: str
    bytes: int


def stream(blobs: Blobs, pieces: Sequence[Piece]) -> Iterator[bytes]:
    """All bytes in order, in chunks. Raises `NotFound` and `StorageUnavailable`."""
    for piece in pieces:
        yield from blobs.read(piece.key)


class Pieces(io.RawIOBase):
    """A file to be read, never more than `largest` bytes at a time: a larger read raises `ValueError`.

    Reads raise `NotFound` and `StorageUnavailable`.
    """

    def __init__(self, blobs: Blobs, pieces: Sequence[Piece], largest: int) -> None:
        super().__init__()
        self._blobs = blobs
        self._pieces = tuple(pieces)
        self._starts = tuple(itertools.accumulate((piece.bytes for piece in pieces), initial=0))
        self._largest = largest
        self._at = 0
        self._window, self._window_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._starts[-1]}[whence]
        if origin + offset < 0:
            raise ValueError("a position before the beginning")
        self._at = origin + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._starts[-1] - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > self._largest:
            raise ValueError(f"{wanted} bytes in one piece")
        if not self._window_at <= self._at <= self._at + wanted <= self._window_at + len(self._window):
            self._window_at = self._at
            self._window = self._fetch(self._at, min(self._starts[-1], self._at + max(wanted, WINDOW)))
        begin = self._at - self._window_at
        self._at += wanted
        return self._window[begin : begin + wanted]

    def _fetch(self, start: int, end: int) -> bytes:
        found: list[bytes] = []
        for begin, piece in zip(self._starts, self._pieces, strict=False):
            first, last = max(start - begin, 0), min(end - begin, piece.bytes)
            if first < last:
                found.extend(self._blobs.read(piece.key, first, last))
        return b"".join(found)
