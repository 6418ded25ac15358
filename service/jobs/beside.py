"""What a request says of a job beside what is to be done: what it is called, and how long it may wait and run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MOST_TAGS = 32
LONGEST_NAME, LONGEST_NOTE = 200, 4000
LONGEST_S = 1e9


@dataclass(frozen=True)
class Beside:
    """What a request says of a job beside what is to be done; nothing of it has a part in the cache.

    max_queue_s  seconds after the request in which a worker must have begun it, else it fails; None: no limit
    max_run_s    what one attempt may take, where that is less than the operator allows; None: that
    """

    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()
    max_queue_s: float | None = None
    max_run_s: float | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Of the job's row."""
        return {**asdict(self), "tags": list(self.tags) or None}

    @property
    def said(self) -> dict[str, Any]:
        """What is not left out, as plain JSON."""
        return {name: value for name, value in self.columns.items() if value is not None}

    def over(self, other: Beside) -> Beside:
        """This, and of `other` what this leaves out."""
        return Beside(**{name: mine or getattr(other, name) for name, mine in vars(self).items()})


NOTHING = Beside()
