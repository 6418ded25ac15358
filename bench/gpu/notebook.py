"""What a part has done so far, kept in one file, and how long it may go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass
class Notebook:
    """Rows by key in a JSON file that is whole at any time. Rows of other `sources` than today's count for nothing."""

    file: Path
    sources: str
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            kept = json.loads(self.file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return
        if isinstance(kept, Mapping) and kept.get("sources") == self.sources:
            self.rows = dict(kept["rows"])

    def put(self, key: str, row: Row) -> None:
        """Adds a row, or replaces it."""
        self.rows[key] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_name(f".{self.file.name}.part")
        draft.write_text(json.dumps({"sources": self.sources, "rows": self.rows}, indent=1) + "\n")
        draft.replace(self.file)


@dataclass(frozen=True)
class Deadline:
    """A moment on the clock that only runs forward."""

    end: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        """`seconds` from now."""
        return Deadline(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self.end - time.monotonic())
