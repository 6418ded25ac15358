"""Text that a job's process printed, as a line of the job's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Printed:
    """Some whole lines. It stands among a compiler's events, and says nothing of how far the job is."""

    message: str
    kind: str = "printed"
    phase: str = ""
    fraction: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As `Event.to_json`, without what it does not say."""
        return {"kind": self.kind, "message": self.message}
