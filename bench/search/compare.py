"""The tile search against trying everything, on one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.ir.machine import Machine, Record, Trial, Workload
from compiler.ir.tile import Tile
from compiler.tuning.belief import rank_correlation
from compiler.tuning.proposal import Proposal
from compiler.tuning.search import Budget, Contest, Search

BATCH = 48
AGAIN = 12
"""Of all tiles the fastest, which are measured once more together: the fastest of hundreds was lucky too."""
LONG_S = 3600.0


@dataclass(frozen=True)
class Compared:
    """Seconds of one kernel by the best of all its tiles, by the one the search chose, and by the model's favourite.

    legal      how many tiles there are
    trials     how many of them the search measured
    ranks      Spearman's correlation of the model with the measurements, over what the algorithms propose
    """

    name: str
    what: str
    legal: int
    trials: int
    best_s: float
    found_s: float
    untuned_s: float
    ranks: float
    tile: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**self.__dict__, "found_to_best": self.found_s / self.best_s, "share": self.trials / self.legal}


def compare(
    name: str, workload: Workload, proposals: Sequence[Proposal], tiles: Sequence[Tile], machine: Machine
) -> Compared:
    """Measures all tiles, the fastest twice, then lets the search ask for those it wants.

    It judges by what was measured.
    """
    first = _measured(workload, tiles, machine)
    chosen = Search([Contest(name, workload, 1, proposals)], _Replay(first), Budget(LONG_S))
    list(chosen.run())
    (contest,) = chosen.contests
    found, untuned = contest.options[contest.leader].tile, contest.options[contest.favourites()[0]].tile
    fastest = sorted(first, key=lambda tile: first[tile])[:AGAIN]
    final = _measured(workload, list(dict.fromkeys((*fastest, found, untuned))), machine)
    return Compared(
        name,
        workload.shapes,
        len(tiles),
        chosen.measured,
        min(final.values()),
        final[found],
        final[untuned],
        rank_correlation([one.seconds for one in proposals], [first[one.tile] for one in proposals]),
        str(found),
    )


def _measured(workload: Workload, tiles: Sequence[Tile], machine: Machine) -> Mapping[Tile, float]:
    seconds: dict[Tile, float] = {}
    for begin in range(0, len(tiles), BATCH):
        batch = [Trial(workload, "", tile, 1) for tile in tiles[begin : begin + BATCH]]
        for record in machine.measure(batch, LONG_S):
            seconds[Tile.from_json(record.variant)] = record.seconds
    return seconds


@dataclass(frozen=True)
class _Replay:
    """A machine that measured everything before."""

    seconds: Mapping[Tile, float]
    hardware: str = ""
    lanes: int = 1

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        for trial in trials:
            took = self.seconds[trial.tile]
            blank = Record("kernel", trial.key, "", "", "", "", {}, 1, took, took, took, 1)
            yield replace(blank, variant=trial.tile.to_json())
