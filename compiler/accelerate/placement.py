"""Which operator went where and why, with what it costs: placement.json, its table as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.accelerate.chips import Chip
from compiler.accelerate.vela import VERSION, Compiled

CPU_CLOCK_HZ = 500e6
CYCLES_PER_ELEMENT = 20.0
CYCLES_PER_MAC = 0.5
CYCLES_PER_HANDOVER = 5000.0
FORMULA = (
    f"assumed, not measured: {CYCLES_PER_ELEMENT:g} cycles per element of a result + {CYCLES_PER_MAC:g} per "
    f"multiplication of a CPU at {CPU_CLOCK_HZ / 1e6:g} MHz, and {CYCLES_PER_HANDOVER:g} for each hand-over"
)
ESTIMATED = f"estimated by Vela {VERSION}"


def placement(compiled: Compiled, chip: Chip, origin: Mapping[str, str], macs: Mapping[str, int]) -> dict[str, Any]:
    """The document. A row of `operators`: what it is, where it runs, cycles of the accelerator or seconds of the CPU.

    `origin` and `macs` are by tensor: the node that makes it, and its multiplications, which Vela does not count for
    what it leaves to the CPU. `calls` counts command streams: each is begun by the CPU, which waits for its end.
    """
    why = {result: reason for _, result, reason in compiled.reasons}
    rows: list[dict[str, Any]] = []
    for part in compiled.parts:
        products = part.macs if part.accelerated else macs.get(part.name, 0)
        cpu_s = 0.0 if part.accelerated else _cpu_seconds(part.elements, products)
        rows.append(
            {
                "tensor": part.name,
                "node": origin.get(part.name, ""),
                "operator": part.source,
                "made": part.made,
                "on": chip.target if part.accelerated else "cpu",
                "why": "" if part.accelerated else why.get(part.name, "Vela gives no reason"),
                "cycles": part.cycles if part.accelerated else 0,
                "macs": products,
                "elements": part.elements,
                "cpu_s": cpu_s,
            }
        )
    here = sum(bool(part.accelerated) for part in compiled.parts)
    handovers = compiled.streams
    accelerator_s = compiled.cycles / compiled.clock_hz
    fallback_s = sum(row["cpu_s"] for row in rows)
    handover_s = handovers * CYCLES_PER_HANDOVER / CPU_CLOCK_HZ
    return {
        "accelerator": chip.target,
        "system": chip.system,
        "memory_mode": chip.memory_mode,
        "estimated_by": ESTIMATED,
        "cpu_formula": FORMULA,
        "operators": rows,
        "totals": {
            "cycles": compiled.cycles,
            "clock_hz": compiled.clock_hz,
            "macs": compiled.macs,
            "accelerated": here,
            "on_cpu": len(compiled.parts) - here,
            "calls": handovers,
            "accelerator_s": accelerator_s,
            "cpu_s": fallback_s,
            "call_s": handover_s,
            "seconds": accelerator_s + fallback_s + handover_s,
        },
        "memories": {
            name: {"peak_bytes": peak, "moved_bytes": moved} for name, (peak, moved) in compiled.memories.items()
        },
    }


def _cpu_seconds(elements: int, macs: int) -> float:
    return (elements * CYCLES_PER_ELEMENT + macs * CYCLES_PER_MAC) / CPU_CLOCK_HZ


def text(document: Mapping[str, Any], agreement: Sequence[Mapping[str, Any]] | None) -> str:
    """What the command line ends with."""
    totals = document["totals"]
    lines = [
        f"{document['accelerator']}: {totals['accelerated']} operators on the accelerator, {totals['on_cpu']} on the "
        f"CPU, {totals['calls']} calls of the accelerator",
        f"{totals['cycles']} cycles, {1e3 * totals['accelerator_s']:.3f} ms ({document['estimated_by']})",
    ]
    if totals["on_cpu"]:
        lines.append(f"CPU {1e3 * totals['cpu_s']:.3f} ms, calls {1e3 * totals['call_s']:.3f} ms")
        lines.append(f"  ({document['cpu_formula']})")
    if report := document.get("legalised"):
        rules = ", ".join(f"{rule} {times}" for rule, times in sorted(report["rules"].items()))
        lines.append(f"legalised: {rules or 'no rule leads to more of it on the accelerator'}")
        lines += [f"  output {one['name']}: sampled error {one['sampled']:.3g}" for one in report["outputs"]]
    for name, memory in document["memories"].items():
        lines.append(f"{name}: {memory['peak_bytes'] / 1024:.1f} KiB at the peak")
    lines += [f"on the CPU: {row['operator']} {row['tensor']}: {row['why']}" for row in on_cpu(document)]
    for one in agreement or ():
        snr = "no difference" if one["snr_db"] is None else f"{one['snr_db']:.1f} dB"
        lines.append(f"output {one['name']}: {snr} against float64, at worst {one['worst_steps']:.1f} steps")
    return "\n".join(lines)


def on_cpu(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows that are left to the CPU."""
    return [row for row in document["operators"] if row["on"] == "cpu"]


def page(document: Mapping[str, Any], agreement: Sequence[Mapping[str, Any]] | None) -> str:
    """The same as a page, with a row for each operator."""
    keys = ("node", "operator", "made", "on", "cycles", "macs", "why")
    head = "".join(f"<th>{key}</th>" for key in keys)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(row[key]))}</td>" for key in keys) + "</tr>"
        for row in document["operators"]
    )
    summary = html.escape(text(document, agreement))
    return (
        '<!doctype html><meta charset="utf-8"><title>Placement</title>'
        "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 8px;text-align:left}</style>"
        f"<h1>Placement</h1><pre>{summary}</pre><p>Cycles are {html.escape(document['estimated_by'])}.</p>"
        f"<table><tr>{head}</tr>{rows}</table>\n"
    )
