"""Gaps to the optimum as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = ("model", "lanes", "calls (measured)", "blocks, equal ones once", "proven")
NOTHING = "-"


def markdown(rows: Sequence[Mapping[str, Any]], solver_s: float) -> str:
    """A line for each row: worst and mean gap of each scheduler on the blocks whose optimum is known.

    Also what the whole takes to be scheduled.
    """
    done = [row for row in rows if "problem" not in row]
    names = list(dict.fromkeys(name for row in done for name in row["worst_gap"]))
    head = (*HEAD, *names, "stages or early_start", "best of all", "whole scheduled in s")
    parts = ["\n".join([_line(head), _line(["---"] * len(head)), *(_line(_cells(row, names)) for row in done)])]
    parts.append(
        "Worst / mean gap to the optimum of the blocks that are proven, of more than one call; "
        f"{solver_s:g} s of solver for each. Of the better "
        "of several schedulers in each block the worst gap."
    )
    if failed := [f"- {row['model']}, T{row['threads']}: {row['problem']}" for row in rows if "problem" in row]:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    worst, mean = row["worst_gap"], row["mean_gap"]
    return [
        row["model"],
        str(row["threads"]),
        f"{row['calls']} ({row['measured_calls']})",
        f"{sum(block['times'] for block in row['blocks'])}, {len(row['blocks'])}",
        str(row["proven"]),
        *(f"{_percent(worst.get(name))} / {_percent(mean.get(name))}" for name in names),
        _percent(row["worst_of_aimed"]),
        _percent(row["worst_of_best"]),
        f"{row['search_s']:.2f}",
    ]


def _percent(part: float | None) -> str:
    return NOTHING if part is None else f"{100 * part:.1f}%"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
