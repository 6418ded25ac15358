"""Progress as it is reported while a compilation runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

PHASES = ("load", "rewrite", "choose", "fuse", "tile", "schedule", "emit", "pack", "agree")
"""The pipeline's steps as events name them, in order."""

TOKENS: Final = "tokens"
"""The kind of an event that tells what a decoder has generated."""
MOST_TOKENS = 8192
"""Tokens that one inference may generate: no more than the events that a job may leave."""
PIECE: Final = "piece"
"""The kind of an event that brings a piece of an output."""
MOST_PIECE_BYTES = 1 << 16
"""Bytes of elements of one such event."""
MOST_PIECES_BYTES = 1 << 24
"""Bytes of elements of all of them of one inference: what is beyond comes with its outputs alone."""
MOST_PIECES = 4096
"""And how many there are."""
LIVE: Final = (TOKENS, PIECE)
"""Kinds of events that somebody waits for, and that go when the outputs go."""


@dataclass(frozen=True)
class Event:
    """One line of progress. `fraction` is of the whole job, 0 to 1, never falling; `data` is JSON-able.

    kind   `phase` (a step began), `progress`, `notice` (the user should know), `record` (a measurement, in `data`),
           `workload` (what records will refer to, once before the first:
           `{"workload": key, "text": kernel and buffers}`), `tuning` (how far a search is and what it measured since
           the one before, in `data`), `tokens` (what a decoder has generated since the one before:
           `{"first": place of the first of them, from 0, "tokens": [numbers]}`), `piece` (of an output that comes in
           pieces what begins at position `first` of `axis`: `{"output": name, "axis": number, "first": position,
           "shape": [sizes], "dtype": as numpy calls it, "elements": little-endian and row-major, in base64}`)
    """

    kind: Literal["phase", "progress", "notice", "record", "workload", "tuning", "tokens", "piece"]
    phase: str
    fraction: float
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "data": dict(self.data)}
