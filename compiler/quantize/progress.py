"""What jobs that make a model share: fractions of the whole for who watches, and a file that appears whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from compiler.contract import Event
from compiler.trace import Observer


def put(out: Path, content: bytes) -> None:
    """Writes a file that appears whole."""
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, out)
    finally:
        unfinished.unlink(missing_ok=True)


class Progress:
    """Fractions of the whole; each step takes the part up to the next one's beginning.

    begins  the steps as events name them, with the part of the whole at which each begins
    """

    def __init__(self, observe: Observer, begins: Mapping[str, float]) -> None:
        self.observe, self.begins = observe, begins
        self.step = next(iter(begins))

    def begin(self, step: str) -> None:
        """The next step."""
        self.step = step
        self.observe(Event("phase", step, self.begins[step]))

    def part(self, part: float, message: str = "") -> None:
        """How much of the step is done."""
        begin = self.begins[self.step]
        end = min((one for one in self.begins.values() if one > begin), default=1.0)
        self.observe(Event("progress", self.step, round(begin + (end - begin) * part, 4), message))

    def notice(self, message: str) -> None:
        """What the user should know."""
        self.observe(Event("notice", self.step, self.begins[self.step], message))
