"""What the rest of a search's budget is expected to bring, out of what the search tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reached:
    """So many candidates measured, `elapsed_s` after the search began, and `best_s` of an inference by then."""

    elapsed_s: float
    measured: int
    best_s: float


def outlook(progress: Mapping[str, Any]) -> list[Reached] | None:
    """From now to the end of the budget; None while nothing is known, or where an older compiler told less.

    The candidates that are worth measuring now are taken in their order, each to last as long as those before it did on
    average and to save what is expected of it (expected improvement); those for which no time is left bring nothing.
    What their measurements will make of the other candidates is not foreseen: after the last one the line is flat.
    """
    each_s, gains = progress.get("each_s"), progress.get("gains")
    if progress["expected_gain_s"] is None or each_s is None or gains is None:
        return None
    begun, best_s = Reached(progress["elapsed_s"], progress["measured"], progress["best_s"]), progress["best_s"]
    room = progress["left_s"] / each_s if each_s > 0 else float(progress["promising"])
    line, before = [begun], (0, 0.0)
    for count, gain in gains:
        part = min(1.0, (room - before[0]) / (count - before[0]))
        if part <= 0:
            break
        reached = before[0] + part * (count - before[0])
        saved = before[1] + part * (gain - before[1])
        line.append(
            Reached(begun.elapsed_s + reached * each_s, begun.measured + int(reached), max(0.0, best_s - saved))
        )
        before = count, gain
    end_s = begun.elapsed_s + progress["budget_s"] * (1.0 - progress["spent"])
    return [*line, Reached(max(end_s, line[-1].elapsed_s), line[-1].measured, line[-1].best_s)]
