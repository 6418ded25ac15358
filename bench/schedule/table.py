"""The rows as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.schedule.row import means

FOUND = (
    "model",
    "T",
    "cores",
    "schedule",
    "lanes",
    "hand-overs",
    "KB across",
    "found in s",
    "predicted ms",
    "over bound",
)
RUN = ("measured ms", "of sequential", "predicted / measured")
GRAPH = (
    "model",
    "schedule",
    "streams",
    "launches",
    "depth",
    "joins",
    "edges across",
    "found in s",
    "predicted ms",
)
NOTHING = "-"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each row, what a compilation would take with (*), and the geometric means. Rows are of one target."""
    done = [row for row in rows if "problem" not in row]
    is_run = any(row["ms"] is not None for row in done)
    is_graph = any(row["crossing_bytes"] is None for row in done)
    head = (*(GRAPH if is_graph else FOUND), *(RUN if is_run else ("of sequential",)))
    found, reached = _graph if is_graph else _found, _run if is_run else _unrun
    lines = [_line([*found(row), *reached(row)]) for row in done]
    parts = ["\n".join([_line(head), _line(["---"] * len(head)), *lines])] if done else []
    if done and not is_run:
        parts.append(f"Nothing was run: {unmeasured(done)}")
    ratios = means(done, "ratio" if is_run else "predicted_ratio")
    if ratios:
        said = ", ".join(f"{mean:.3f}" if is_graph else f"T{threads}: {mean:.3f}" for threads, mean in ratios.items())
        parts.append(f"(*) is taken. Geometric mean of its ratio to sequential: {said}.")
    if failed := [f"- {row['model']}, T{row['threads']}: {row['problem']}" for row in rows if "problem" in row]:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def unmeasured(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the times of a table come from in which nothing was run."""
    counts = {row["model"]: (row["measured_calls"], row["calls"]) for row in rows}
    measured, calls = (sum(counted) for counted in zip(*counts.values(), strict=True))
    return (
        f"times are predictions for {rows[0]['target']}, "
        f"by records of {measured} kernels and the cost model for {calls - measured}."
    )


def _graph(row: Mapping[str, Any]) -> list[str]:
    return [
        row["model"],
        _scheduler(row),
        *(str(row[name]) for name in ("lanes", "launches", "depth", "joins", "handovers")),
        f"{row['search_s']:.3f}",
        f"{row['predicted_ms']:.4f}",
    ]


def _unrun(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['predicted_ratio']:.3f}"]


def _run(row: Mapping[str, Any]) -> list[str]:
    interval = row["ratio_interval"]
    return [
        f"{row['ms']:.3f} ({row['spread_ms'][0]:.3f}..{row['spread_ms'][1]:.3f})",
        f"{row['ratio']:.3f}" + (f" ({interval[0]:.3f}..{interval[1]:.3f})" if interval else ""),
        f"{1 + row['prediction_gap']:.2f}",
    ]


def _found(row: Mapping[str, Any]) -> list[str]:
    bound = NOTHING if row["over_bound"] is None else f"{row['over_bound']:+.1%}"
    return [
        row["model"],
        str(row["threads"]),
        f"{row['state']} {row['handover_ns']:.0f} ns" if row["state"] else NOTHING,
        _scheduler(row),
        str(row["lanes"]),
        str(row["handovers"]),
        f"{row['crossing_bytes'] / 1024:.0f}",
        f"{row['search_s']:.3f}",
        f"{row['predicted_ms']:.3f}",
        bound,
    ]


def _scheduler(row: Mapping[str, Any]) -> str:
    return f"{row['scheduler']}{' (*)' if row['taken'] else ''}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
