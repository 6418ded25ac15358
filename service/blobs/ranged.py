"""Stored bytes as a file that can be read anywhere, fetched as they are needed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable


class Ranged(io.RawIOBase):
    """A file of `size` bytes over `fetch(start, end)`; what that raises passes through.

    At least `window` bytes are fetched at a time, so that neighbouring reads share one; a read near the end fetches the
    window that ends there, because that is where an archive's directory lies. No read is larger than `largest`, which
    may be set anew: a larger one raises `ValueError`.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, *, window: int, largest: int) -> None:
        super().__init__()
        self.largest = largest
        self._fetch = fetch
        self._size = size
        self._window = window
        self._at = 0
        self._held, self._held_at = b"", 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The place of the next byte to be read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position; a byte offset from the start. Raises `ValueError` for one before the beginning."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if origin + offset < 0:
            raise ValueError("a position before the beginning")
        self._at = origin + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes from the position, all that are left by default. Raises `ValueError` above `largest`."""
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > self.largest:
            raise ValueError(f"{wanted} bytes in one piece")
        if not self._held_at <= self._at <= self._at + wanted <= self._held_at + len(self._held):
            self._held_at = max(0, min(self._at, self._size - self._window))
            self._held = self._fetch(
                self._held_at, min(self._size, max(self._at + wanted, self._held_at + self._window))
            )
        begin = self._at - self._held_at
        self._at += wanted
        return self._held[begin : begin + wanted]
