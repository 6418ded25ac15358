"""The rows as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.race.spread import geometric_mean
from bench.rewrite.ablation import means


def counted(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    """A line for each model; a count of ours that is above a peer's has (*) beside it."""
    head = ("model", "operators", "nodes", "before fusion", "kernels", *peers, "least of theirs")
    lines = [_line(head), _line(["---"] * len(head))]
    done = [row for row in rows if "problem" not in row]
    lines += [_line(_count_cells(row, peers)) for row in done]
    parts = ["\n".join(lines)]
    if peers:
        parts.append(
            f"(*) {sum(map(_is_above, done))} of {len(done)} models launch more kernels than a peer executes layers. "
            "In brackets: layers that only give their input another shape, which do not count."
        )
    if ratios := [row["kernels"] / least for row in done if (least := _least(row))]:
        parts.append(
            "Geometric mean of our kernels over the layers of the peer that executes the fewest: "
            f"{geometric_mean(ratios):.3f}."
        )
    failed = [f"- {row['model']}: {row['problem']}" for row in rows if "problem" in row]
    failed += [f"- {peer} on {row['model']}: {said}" for row in done for peer, said in row["failed"].items()]
    if failed:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def ablated(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each program that is another one without something, in the order of the models.

    Then the means over all models.
    """
    head = ("model", "T", "without", "kernels", "kernels without", "ms", "ms without", "time without / with", "rounds")
    lines = [_line(head), _line(["---"] * len(head))]
    run = [row for row in rows if row["ms"] is not None]
    lines += [_line(_ablation_cells(row)) for row in run]
    parts = ["\n".join(lines)]
    if any(not row["calm"] for row in run):
        parts.append("(*) Others used the cores in every round.")
    if same := _same(rows):
        parts.append("Not run, because the kernels are the same without it (ratio 1):\n\n" + "\n".join(same))
    said = ", ".join(f"{name} {mean:.3f}" for name, mean in sorted(means(rows).items(), key=lambda one: -one[1]))
    if said:
        parts.append(f"Geometric mean of the ratio over the models, the same programs as 1: {said}.")
    if failed := [f"- {row['model']} without {row['without']}: {row['problem']}" for row in rows if "problem" in row]:
        parts.append("Failed:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def _count_cells(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    least = _least(row)
    done = [row["peers"].get(peer) for peer in peers]
    return [
        row["model"],
        str(row["operators"]),
        str(row["nodes"]),
        str(row["kernels_before_fusion"]),
        f"{row['kernels']}{' (*)' if _is_above(row) else ''}",
        *(f"{one['layers']} ({one['views']})" if one else "-" for one in done),
        f"{row['kernels'] / least:.2f}" if least else "-",
    ]


def _least(row: Mapping[str, Any]) -> int | None:
    """The layers of the peer that executes the fewest; None where none runs the model."""
    return min((int(one["layers"]) for one in row["peers"].values()), default=None)


def _is_above(row: Mapping[str, Any]) -> bool:
    least = _least(row)
    return least is not None and row["kernels"] > least


def _ablation_cells(row: Mapping[str, Any]) -> list[str]:
    low, high = row["ratio_interval"]
    return [
        row["model"],
        str(row["threads"]),
        row["without"],
        str(row["kernels"]),
        str(row["kernels_without"]),
        f"{row['ms']:.3f}",
        f"{row['ms_without']:.3f}",
        f"{row['ratio']:.3f} ({low:.3f}..{high:.3f})",
        f"{row['rounds']} of {row['rounds'] + row['discarded']}{'' if row['calm'] else ' (*)'}",
    ]


def _same(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for row in rows:
        if row["same"]:
            names.setdefault(row["model"], []).append(row["without"])
    return [f"- {model}: {', '.join(dict.fromkeys(found))}" for model, found in names.items()]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
