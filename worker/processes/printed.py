"""What a job prints, handed on while it runs: whole lines, bounded in rate and in size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from service.jobs.lifecycle.problems import CUT, begins_stack

EVERY_S = 1.0
PIECE_BYTES = 4_000
"""Handed on each time; what a job prints faster than that comes later."""
MOST_BYTES = 64_000
"""Handed on of one attempt."""
MORE = "(more was printed; the end of it is in the log once the attempt has ended)\n"


class Live:
    """The growing file of one job's output.

    Stacks of calls name files of this machine: at the first one nothing more is handed on.
    """

    def __init__(self, log: Path, tell: Callable[[str], None], now: float) -> None:
        self._log = log
        self._tell = tell
        self._looked = now
        self._offset = 0
        self._over = False

    def look(self, now: float) -> None:
        """Hand on the next lines, if it is time to; `now` is in seconds of a clock that only grows."""
        if self._over or now - self._looked < EVERY_S:
            return
        self._looked = now
        with self._log.open("rb") as file:
            file.seek(self._offset)
            piece = file.read(PIECE_BYTES)
        whole = piece if len(piece) == PIECE_BYTES and b"\n" not in piece else piece[: piece.rfind(b"\n") + 1]
        if not whole:
            return
        self._offset += len(whole)
        self._tell(self._shown(whole.decode(errors="replace")))

    def _shown(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        for at, line in enumerate(lines):
            if begins_stack(line):
                self._over = True
                return "".join([*lines[:at], CUT])
        if self._offset >= MOST_BYTES:
            self._over = True
            return text + MORE
        return text
