"""The rows as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.catalogue import OURS
from bench.models.row import STATES, means


def markdown(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    """A line for each row of `Row.to_json`, or of a model that failed, and the geometric means."""
    columns = ("model", "T", "GFLOP", *(f"{name} ms" for name in ("ours", *peers)))
    lanes = any(row.get("state") for row in rows)
    states = tuple(f"{state} rounds" for state in STATES) if lanes else ()
    head = (*columns, "ours / best", "best", "of peak", "cores", *states, "error", "compile s", "rounds")
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line(_cells(row, peers, STATES if lanes else ())) for row in rows if "problem" not in row]
    failed = [f"- {row['model']}, T{row['threads']}: {row['problem']}" for row in rows if "problem" in row]
    said = [f"T{threads}: {mean:.3f}" for threads, mean in means(rows).items()]
    said += [
        f"T{threads} in {state} rounds: {mean:.3f}"
        for state in STATES
        for threads, mean in means(rows, f"ratio_{state}").items()
    ]
    parts = ["\n".join(lines)]
    if any(not row.get("calm", True) for row in rows):
        parts.append("(*) Others used the cores in every round.")
    if any(row.get("products_in_bytes") for row in rows):
        parts.append(_in_bytes(rows))
    if said:
        parts.append(f"Geometric mean of ours over the best peer's: {', '.join(said)}.")
    if failed:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, Any], peers: Sequence[str], states: Sequence[str]) -> list[str]:
    spreads = [_ms(row["ours_ms"], row["spread_ms"][OURS])]
    spreads += [_ms(row["peers"][peer], row["spread_ms"][peer]) for peer in peers]
    ratio = _ratio(row["ratio_to_best"], row["ratio_interval"])
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
        *(_ratio_in(row, state) for state in states),
        "beyond all" if row["max_rel_error"] is None else f"{row['max_rel_error']:.1e}",
        f"{row['compile_s']:.1f}",
        f"{row['rounds']} of {row['rounds'] + row['discarded']}{'' if row['calm'] else ' (*)'}",
    ]


def _in_bytes(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many products each engine computed from bytes, of those that it ran."""
    engines = {engine for row in rows for engine in row.get("products_in_bytes", ())}
    lines = [_line(("products from bytes", *sorted(engines))), _line(["---"] * (1 + len(engines)))]
    for name, counts in {row["model"]: row.get("products_in_bytes", {}) for row in rows}.items():
        cells = [f"{counts[one][0]} of {counts[one][1]}" if one in counts else "-" for one in sorted(engines)]
        lines.append(_line((name, *cells)))
    return "\n".join(lines)


def _ratio(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" ({interval[0]:.3f}..{interval[1]:.3f})" if interval else "")


def _ratio_in(row: Mapping[str, Any], state: str) -> str:
    """To the best peer in rounds that began and ended with the cores in a state, and of how many."""
    if not row[f"rounds_{state}"]:
        return "-"
    ratio = _ratio(row[f"ratio_{state}"], row[f"ratio_{state}_interval"])
    return f"{ratio} {row[f'best_{state}'] or ''} in {row[f'rounds_{state}']}"


def _ms(median: float, spread: Sequence[float]) -> str:
    return f"{median:.3f} ({spread[0]:.3f}..{spread[1]:.3f})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
