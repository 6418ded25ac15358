"""The rows as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.schedule.row import best, means

HEAD = (
    "model",
    "T",
    "cores",
    "schedule",
    "lanes",
    "hand-overs",
    "found in s",
    "predicted ms",
    "measured ms",
    "of sequential",
    "predicted / measured",
)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each row, the one that a compilation would take with (*), and the geometric means."""
    taken = best(rows)
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(_cells(row, any(row is one for one in taken))) for row in rows if "problem" not in row]
    parts = ["\n".join(lines)]
    if taken:
        said = ", ".join(f"T{threads}: {mean:.3f}" for threads, mean in means(rows).items())
        parts.append(f"(*) is taken. Geometric mean of its ratio to sequential: {said}.")
    if failed := [f"- {row['model']}, T{row['threads']}: {row['problem']}" for row in rows if "problem" in row]:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, Any], taken: bool) -> list[str]:
    interval = row["ratio_interval"]
    return [
        row["model"],
        str(row["threads"]),
        f"{row['state']} {row['handover_ns']:.0f} ns" if row["state"] else "-",
        f"{row['scheduler']}{' (*)' if taken else ''}",
        str(row["lanes"]),
        str(row["handovers"]),
        f"{row['search_s']:.2f}",
        f"{row['predicted_ms']:.3f}",
        f"{row['ms']:.3f} ({row['spread_ms'][0]:.3f}..{row['spread_ms'][1]:.3f})",
        f"{row['ratio']:.3f}" + (f" ({interval[0]:.3f}..{interval[1]:.3f})" if interval else ""),
        f"{row['predicted_ms'] / row['ms']:.2f}",
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
