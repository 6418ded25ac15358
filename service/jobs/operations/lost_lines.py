"""Lines that a process could not write to its log, as a metric: that the log itself cannot tell."""

from __future__ import annotations

from dataclasses import dataclass

from service import logs
from service.db import totals
from service.db.engine import Database


@dataclass
class LostLines:
    """Of one process; to be used by one thread."""

    counted: int = 0

    def count(self, db: Database) -> None:
        """Add those since the last time to the sum of all processes. Raises `DatabaseUnavailable`."""
        if (lost := logs.lost()) > self.counted:
            with db.write() as session:
                totals.count(session, "log_lines_lost", lost - self.counted)
            self.counted = lost
