"""The rows as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.catalogue import OURS
from bench.models.row import means


def markdown(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    """A line for each row of `Row.to_json`, or of a model that failed, and the geometric means."""
    columns = ("model", "T", "GFLOP", *(f"{name} ms" for name in ("ours", *peers)))
    judged = ("ours / best", "best", "of peak", "cores", "error", "compile s", "rounds")
    head = (*columns, *judged)
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line(_cells(row, peers)) for row in rows if "problem" not in row]
    failed = [f"- {row['model']}, T{row['threads']}: {row['problem']}" for row in rows if "problem" in row]
    said = [f"T{threads}: {mean:.3f}" for threads, mean in means(rows).items()]
    parts = ["\n".join(lines)]
    if any(not row.get("calm", True) for row in rows):
        parts.append("(*) Others used the cores in every round.")
    if said:
        parts.append(f"Geometric mean of ours over the best peer's: {', '.join(said)}.")
    if failed:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    spreads = [_ms(row["ours_ms"], row["spread_ms"][OURS])]
    spreads += [_ms(row["peers"][peer], row["spread_ms"][peer]) for peer in peers]
    interval = row["ratio_interval"]
    ratio = f"{row['ratio_to_best']:.3f} ({interval[0]:.3f}..{interval[1]:.3f})" if interval else "-"
    cores = f"{row['state']} {row['handover_ns']:.0f} ns" if row["state"] else "-"
    return [
        row["model"],
        str(row["threads"]),
        "-" if row["gflop"] is None else f"{row['gflop']:.4g}",
        *spreads,
        ratio,
        row["best"] or "-",
        "-" if row["of_peak"] is None else f"{row['of_peak']:.0%}",
        cores,
        "beyond all" if row["max_rel_error"] is None else f"{row['max_rel_error']:.1e}",
        f"{row['compile_s']:.1f}",
        f"{row['rounds']} of {row['rounds'] + row['discarded']}{'' if row['calm'] else ' (*)'}",
    ]


def _ms(median: float, spread: Sequence[float]) -> str:
    return f"{median:.3f} ({spread[0]:.3f}..{spread[1]:.3f})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
