"""What the demo found, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

MIB = 1 << 20
NARROWEST = 132
"""Columns that the tables need."""


def show(console: Console, demo: Mapping[str, Any], file: Path) -> None:
    """Print the document of `demo.json`, which lies in `file`."""
    console.width = max(console.width, NARROWEST)
    done = [row for row in demo["rows"] if "problem" not in row]
    machine = demo["machine"]
    console.print(f"\n{machine['model']}, {machine['cores']} cores, {machine['target']}; ", end="", markup=False)
    console.print(", ".join(f"{name} {known}" for name, known in machine["versions"].items()), markup=False)
    if done:
        console.print(_compilations(done), _phases(done), _latencies(done), sep="\n")
        console.print(
            "ratio: ONNX Runtime's latency over ours (above 1 ours is faster), with p10 to p90 over the rounds"
        )
    for row in demo["rows"]:
        if "problem" in row:
            console.print(f"FAILED {row['model']}: {row['problem']['message']}", style="bold red", markup=False)
    for left in demo["skipped"]:
        console.print(f"SKIPPED {left['name']}: {left['reason']}", style="yellow", markup=False, soft_wrap=True)
    for row in done:
        console.print(f"artifact: {row['artifact']}", markup=False, soft_wrap=True)
    console.print(
        f"{file} holds all of this; {demo['seconds']:.0f} s in all. Again by hand:", markup=False, soft_wrap=True
    )
    console.print(demo["repeat"], markup=False, soft_wrap=True)


def _compilations(rows: list[Mapping[str, Any]]) -> Table:
    columns = (
        "model",
        "operators",
        "kernels before fusion",
        "after",
        "compile s",
        "queue s",
        "arena MiB",
        "weights MiB",
    )
    table = _table("compilation", *columns, "error", "tolerance")
    for row in rows:
        counts = (str(row[name]) for name in ("nodes", "kernels_before", "kernels"))
        spent = (f"{row[name]:.2f}" for name in ("compile_seconds", "queue_seconds"))
        memory = (f"{row[name] / MIB:.2f}" for name in ("arena_bytes", "weight_bytes"))
        table.add_row(row["model"], *counts, *spent, *memory, f"{row['max_rel_error']:.1e}", f"{row['tolerance']:.1e}")
    return table


def _phases(rows: list[Mapping[str, Any]]) -> Table:
    phases = list(rows[0]["phase_seconds"])
    table = _table("seconds per phase", "model", *phases)
    for row in rows:
        table.add_row(row["model"], *(f"{row['phase_seconds'].get(phase, 0.0):.2f}" for phase in phases))
    return table


def _latencies(rows: list[Mapping[str, Any]]) -> Table:
    columns = ("model", "threads", "ours", "ONNX Runtime", "ratio", "outputs differ")
    table = _table("latency in milliseconds: median (p10..p90)", *columns)
    for row in rows:
        for race in (row, row["one_thread"]) if row["threads"] > 1 else (row,):
            spreads = (_spread(race["ours_ms"], 3), _spread(race["onnxruntime_ms"], 3), _spread(race["ratio"], 2))
            table.add_row(row["model"], str(race["threads"]), *spreads, f"{race['onnxruntime_difference']:.1e}")
    return table


def _table(title: str, first: str, *others: str) -> Table:
    """Names to the left, numbers to the right, nothing cut."""
    table = Table(box=None, title=title, title_justify="left", pad_edge=False)
    table.add_column(first, no_wrap=True)
    for other in others:
        table.add_column(other, justify="right", no_wrap=True)
    return table


def _spread(spread: Mapping[str, float], digits: int) -> str:
    return f"{spread['median']:.{digits}f} ({spread['p10']:.{digits}f}..{spread['p90']:.{digits}f})"
