"""What was shown of each rule, as a file keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).parent / "states.json"
SIZES, WINDOWS, NOT = "all sizes", "all sizes, windows as drawn", "not proved"
LEVELS = (SIZES, WINDOWS, NOT)


@dataclass(frozen=True)
class State:
    """What is shown of a rule.

    level   for all sizes; for all sizes but those of windows, steps and padding, which are as drawn; or not
    how     as what elements are equal: bits, floats or reals (see `tests.proofs.terms`); of several the weakest
    shown   left sides that were proved, `of` those drawn
    reason  why there is no proof
    """

    level: str
    how: str
    shown: int
    of: int
    reason: str = ""

    def __str__(self) -> str:
        if self.level == NOT:
            part = f"; {self.shown} of {self.of} left sides are" if self.shown else ""
            return f"not proved: {self.reason}{part}"
        return f"{self.level} ({self.how})"


def kept() -> dict[str, State]:
    """The states that the file has."""
    return {name: State(**state) for name, state in json.loads(FILE.read_text()).items()}


def write(states: Mapping[str, State], names: Iterable[str]) -> None:
    """Keeps the states of rules, in this order."""
    FILE.write_text(json.dumps({name: asdict(states[name]) for name in names}, indent=1) + "\n")
