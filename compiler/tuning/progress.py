"""What a search tells of itself while it runs: the best so far, each candidate's forecast beside its measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler.ir.machine import Record
from compiler.ir.tile import Tile
from compiler.knowledge.kinds import AGAIN
from compiler.trace import Trace
from compiler.tuning.search import Contest, Search

MOST = 12
"""Measurements in one event: as many as surely fit into what a worker takes of one."""
EVERY = 0.01
"""Part of the budget after which progress is reported again, if something was measured."""
LONGEST_NAME = 48


class TuningProgress:
    """Gathers what a search measures, and tells of it in `tuning` events of a trace."""

    def __init__(self, search: Search, trace: Trace) -> None:
        self._search = search
        self._trace = trace
        self._tried: list[dict[str, Any]] = []
        self._part = 0.0
        self._reports = 0
        self.legal = sum(len(contest.options) for contest in search.contests)
        """How many candidates there are."""

    def add(self, contest: Contest, record: Record) -> None:
        """A candidate of a kernel was measured, which the contest already knows."""
        at = contest.position(Tile.from_json(record.variant))
        tried = {
            "kernel": contest.key,
            "name": record.operator[:LONGEST_NAME].encode("ascii", "replace").decode(),
            "uses": contest.uses,
            "candidate": at,
            "predicted_s": math.exp(contest.expected[at]),
            "measured_s": record.seconds,
            "again": bool(record.variant.get(AGAIN)),
        }
        self._tried.append(tried)
        if len(self._tried) >= MOST or self._search.spent >= self._part + EVERY:
            self._tell()

    def tell(self) -> None:
        """What was not reported yet, and that the search is over."""
        if self._tried or self._reports:
            self._tell()

    def _tell(self) -> None:
        search = self._search
        self._part = search.spent
        self._reports += 1
        gains = search.gains
        self._trace.tuning(
            {
                "elapsed_s": round(search.elapsed, 3),
                "spent": round(search.spent, 4),
                "measured": search.measured,
                "legal": self.legal,
                "kernels": len(search.contests),
                "unmeasured_kernels": sum(not contest.costs for contest in search.contests),
                "best_s": search.total,
                "promising": None if gains is None else len(gains),
                "expected_gain_s": None if gains is None else sum(gains),
                "gains": [] if gains is None else sums(gains),
                "budget_s": search.budget.seconds,
                "left_s": round(search.left_s, 3),
                "each_s": search.each_s,
                "exhausted": search.exhausted,
                "tried": self._tried,
            }
        )
        self._tried = []


def sums(gains: Sequence[float]) -> list[tuple[int, float]]:
    """What the first 1, 2, 4, ... of them save together, and all of them: (how many, seconds)."""
    counts = sorted({*(2**power for power in range(len(gains).bit_length())), len(gains)} - {0})
    return [(count, sum(gains[:count])) for count in counts]
