"""How far a benchmark is, as events."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.contract import Event
from compiler.trace import Observer

PHASE_BEGINS: Mapping[str, float] = {"open": 0.0, "warm": 0.1, "time": 0.2, "stream": 0.8, "profile": 0.9}
"""At which fraction of the whole."""


class Progress:
    """Fractions of the whole; each phase takes the part up to the next one's beginning."""

    def __init__(self, observe: Observer) -> None:
        self.observe = observe

    def phase(self, phase: str) -> None:
        """It begins."""
        self.observe(Event("phase", phase, PHASE_BEGINS[phase]))

    def part(self, phase: str, part: float) -> None:
        """So much of it, from 0 to 1, is done."""
        begin = PHASE_BEGINS[phase]
        end = min((other for other in PHASE_BEGINS.values() if other > begin), default=1.0)
        self.observe(Event("progress", phase, round(begin + (end - begin) * part, 4)))
