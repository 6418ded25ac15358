"""Machine code that a GPU's multiprocessors have to fetch: what launches in turn have of each other's.

A multiprocessor keeps so much code, what it used last; a network's kernels run in turn, inference after inference. So
code is cold where, since it last ran, more has run than is kept (least recently used, by stack distance: Mattson et
al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9, 1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """Of one kernel, equal ones by one `name`: its bytes, seconds to fetch them, and bytes that are `kept` in all."""

    name: str
    bytes: int
    seconds: float
    kept: int


def cold_s(launches: Sequence[Sequence[Code]]) -> list[float]:
    """Seconds by which each launch begins later for its cold code; they follow each other, the first the last."""
    return [sum(one.seconds for one in own if _is_cold(one, at, launches)) for at, own in enumerate(launches)]


def _is_cold(code: Code, at: int, launches: Sequence[Sequence[Code]]) -> bool:
    between = {code.name: code.bytes}
    for back in range(1, len(launches) + 1):
        if sum(between.values()) > code.kept:
            return True
        earlier = launches[at - back]
        if any(one.name == code.name for one in earlier):
            return False
        between |= {one.name: one.bytes for one in earlier}
    return False
