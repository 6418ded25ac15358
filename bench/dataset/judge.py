"""How well the cost model chooses and ranks tiles that were measured twice."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.tuning.belief import rank_correlation

FEWEST = 4
"""Tiles of a kernel whose ranks are compared."""
Row = Mapping[str, Any]
Cost = Callable[[Row], float]
"""What is expected of a row's tile; infinite for one that is not proposed."""
HEAD = "| model | target | kernels | tiles | untuned / best | at rates / best | ranks untuned | at rates | ceiling |"


@dataclass(frozen=True)
class Judged:
    """What a cost is worth on some kernels.

    chosen   seconds of the tiles that it chooses over those of the best, summed over calls
    ranks    Spearman's correlation with what was measured, the mean over kernels; NaN where none has FEWEST tiles
    ceiling  that of one measurement with the other: the most that any cost can reach
    """

    kernels: int
    chosen: float
    ranks: float
    ceiling: float


def judged(rows: Sequence[Row], cost: Cost) -> Judged:
    """Of the kernels of some rows, of which each has a tile with a cost.

    The best is chosen by the first measurement and counted by the second, by which the chosen one is counted too: of
    many tiles the luckiest gains nothing so.
    """
    kernels = defaultdict(list)
    for row in rows:
        kernels[row["target"], row["workload"]].append(row)
    chosen = best = 0.0
    ranks, ceilings = [], []
    for each in kernels.values():
        proposed = [row for row in each if math.isfinite(cost(row))]
        chosen += min(proposed, key=cost)["again_s"] * each[0]["uses"]
        best += min(each, key=lambda row: row["first_s"])["again_s"] * each[0]["uses"]
        if len(proposed) >= FEWEST:
            again = [row["again_s"] for row in proposed]
            ranks.append(rank_correlation([cost(row) for row in proposed], again))
            ceilings.append(rank_correlation([row["first_s"] for row in proposed], again))
    return Judged(len(kernels), chosen / best, _mean(ranks), _mean(ceilings))


def untuned(row: Row) -> float:
    """By the cost model where nothing of the machine was measured."""
    return math.inf if row["untuned_s"] is None else float(row["untuned_s"])


def at_rates(row: Row) -> float:
    """By the cost model at measured rates."""
    return math.inf if row["model_s"] is None else float(row["model_s"])


def table(rows: Sequence[Row]) -> str:
    """A line for each model and target."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["model"], row["target"]].append(row)
    lines = [HEAD, "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for (model, target), each in groups.items():
        plain, rated = judged(each, untuned), judged(each, at_rates)
        lines.append(
            f"| {model} | {target} | {plain.kernels} | {len(each)} | {plain.chosen:.3f} | {rated.chosen:.3f} "
            f"| {plain.ranks:.2f} | {rated.ranks:.2f} | {rated.ceiling:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
