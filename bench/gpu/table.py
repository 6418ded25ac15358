"""What `bench` found, as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PEERS = ("eager", "graph", "cublas", "compiled", "autotuned", "xla")


def markdown(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each row of `bench.gpu.contest`.

    Networks that failed are named below, and engines that are missing, with the reason.
    """
    head = ("model", "precision", "ours ms", *(f"{peer} ms" for peer in PEERS))
    head = (*head, "best", "ours / best", "in a row", "kernels", "of the floor")
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line(_cells(row)) for row in rows.values() if "problem" not in row]
    failed = [
        f"- {row['network']} {row['precision']}: {_short(row['problem'])}" for row in rows.values() if "problem" in row
    ]
    missing = [
        f"- {row['network']} {row['precision']}, {engine}: {_short(reason)}"
        for row in rows.values()
        for engine, reason in row.get("left_out", {}).items()
    ]
    parts = ["\n".join(lines)]
    parts += ["Failed:\n\n" + "\n".join(failed)] if failed else []
    parts += ["Not measured:\n\n" + "\n".join(missing)] if missing else []
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, Any]) -> list[str]:
    ours = row["ms"].get("ours")
    return [
        row["network"],
        row["precision"],
        *(_ms(row, engine) for engine in ("ours", *PEERS)),
        row["best"] or "-",
        _ratio(row["ratio"]),
        _ratio(row["ratio_in_a_row"]),
        str(row["compilation"].get("kernels", "-")),
        "-" if ours is None else f"{row['floor_ms'] / ours:.0%}",
    ]


def _ms(row: Mapping[str, Any], engine: str) -> str:
    if engine not in row["ms"]:
        return "-"
    low, high = row["spread_ms"][engine]
    return f"{row['ms'][engine]:.3f} ({low:.3f}..{high:.3f})"


def _ratio(found: list[float] | None) -> str:
    return "-" if found is None else f"{found[0]:.3f} ({found[1]:.3f}..{found[2]:.3f})"


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
