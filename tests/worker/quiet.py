"""Arrivals of which a test says when they come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence


class Quiet:
    """Nothing comes, until `come` is called."""

    every_s = 600.0

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._coming = 0

    def come(self, *, to_us: bool = True) -> None:
        self._coming += to_us
        os.write(self._writer, b"!")

    def descriptors(self) -> Sequence[int]:
        return (self._reader,)

    def came(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        coming, self._coming = self._coming, 0
        return coming > 0

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
