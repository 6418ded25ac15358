"""Which operator went where and why, with what it costs: placement.json, its table as text and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.accelerate.chips import FORMATS, Chip
from compiler.accelerate.cores import CORES, MODELLED
from compiler.accelerate.parts import HANDOVER_S, OnAccelerator, OnCpu, Part
from compiler.accelerate.vela import VERSION
from compiler.contract.devices import HOST
from compiler.quantize.network import named

FORMULA = (
    f"a call of the accelerator: {1e6 * HANDOVER_S:g} us, assumed; what "
    "passes between them stays where it lies, in memory that both read"
)


def estimated_by(chip: Chip) -> str:
    """Whose estimate cycles are, and of what it is where that is not TFLite."""
    return f"estimated by Vela {VERSION}" + ("" if chip.format == FORMATS[0] else f" of {chip.format.upper()}")


def placement(
    parts: Sequence[Part],
    chip: Chip,
    left: Mapping[str, str],
    core: str = CORES[0],
    candidates: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The document. A row of `operators`: what it is, where it runs, cycles of the accelerator or seconds of the CPU.

    `left` says why nodes are left to the CPU, by their first result. A row of `parts` is what runs in one go, in that
    order, with the bytes that pass into it from others and out of it to others. `calls` counts command streams: each
    is begun by the CPU, which waits for its end. `core` is what parts of the CPU's are priced for; `candidates` are the
    placements that were compared, if any were.
    """
    rows: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        found = _accelerated(part, chip) if isinstance(part, OnAccelerator) else _on_cpu(part, left)
        rows += [{**row, "part": number} for row in found]
    accelerated = [part for part in parts if isinstance(part, OnAccelerator)]
    beside = [part.beside for part in parts if isinstance(part, OnCpu)]
    cycles = sum(one.compiled.cycles for one in accelerated)
    clock_hz = accelerated[0].compiled.clock_hz if accelerated else 0.0
    calls = sum(one.compiled.streams for one in accelerated)
    here = sum(row["on"] != "cpu" for row in rows)
    accelerator_s, cpu_s = cycles / (clock_hz or 1.0), sum(one.seconds for one in beside)
    call_s = calls * HANDOVER_S
    priced = f"{core}, {MODELLED}" if core != HOST else "this machine, measured"
    measured = {one.hardware: f"measured on {one.hardware}" for one in beside if one.measured_s}
    return {
        "accelerator": chip.target,
        "system": chip.system,
        "memory_mode": chip.memory_mode,
        "format": chip.format,
        "estimated_by": estimated_by(chip),
        "cpu_formula": f"parts of the CPU: {priced}; {FORMULA}",
        "beside": core,
        "candidates": [*candidates],
        "operators": rows,
        "parts": [_part(part, chip) for part in parts],
        "cpus": [
            *(
                {"on": core, "seconds": sum(one.modelled[core] or 0.0 for one in beside), "source": MODELLED}
                for core in CORES
                if beside and all(one.modelled[core] is not None for one in beside)
            ),
            *(
                {"on": name, "seconds": sum(one.measured_s for one in beside), "source": source}
                for name, source in measured.items()
            ),
        ],
        "totals": {
            "cycles": cycles,
            "clock_hz": clock_hz,
            "macs": sum(one.compiled.macs for one in accelerated),
            "accelerated": here,
            "on_cpu": len(rows) - here,
            "calls": calls,
            "handovers": len(parts) - 1,
            "accelerator_s": accelerator_s,
            "cpu_s": cpu_s,
            "call_s": call_s,
            "seconds": accelerator_s + cpu_s + call_s,
        },
        "memories": _memories(accelerated),
    }


def _accelerated(part: OnAccelerator, chip: Chip) -> list[dict[str, Any]]:
    return [
        {
            "tensor": one.name,
            "node": part.converted.origin.get(one.name, ""),
            "operator": one.source,
            "made": one.made,
            "on": chip.target,
            "why": "",
            "cycles": one.cycles,
            "macs": one.macs,
            "elements": one.elements,
            "cpu_s": 0.0,
        }
        for one in part.compiled.parts
    ]


def _on_cpu(part: OnCpu, left: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row of each node. Seconds of the kernels that convert bytes are shared among the nodes as theirs are."""
    shares = [part.beside.nodes.get(named(node), 0.0) for node in part.segment.nodes]
    known = sum(shares)
    return [
        {
            "tensor": node.output[0],
            "node": f"{node.op_type} {named(node)}",
            "operator": node.op_type,
            "made": "",
            "on": "cpu",
            "why": left[node.output[0]],
            "cycles": 0,
            "macs": 0,
            "elements": sum(math.prod(part.shapes.get(name, ())) for name in node.output),
            "cpu_s": part.beside.seconds * (share / known if known else 1 / len(shares)),
        }
        for node, share in zip(part.segment.nodes, shares, strict=True)
    ]


def _part(part: Part, chip: Chip) -> dict[str, Any]:
    """What runs in one go."""
    if isinstance(part, OnAccelerator):
        on, seconds, source = chip.target, part.compiled.seconds, estimated_by(chip)
        programs: list[str] = []
    else:
        on, seconds, source, programs = "cpu", part.beside.seconds, part.beside.source, [*part.beside.programs]
    return {
        "on": on,
        "nodes": len(part.segment.nodes),
        "seconds": seconds,
        "source": source,
        "programs": programs,
        "bytes_in": part.bytes_in,
        "bytes_out": part.bytes_out,
    }


def _memories(parts: Sequence[OnAccelerator]) -> dict[str, Any]:
    """By name: the greatest peak of all parts, and what they move together."""
    names = dict.fromkeys(name for part in parts for name in part.compiled.memories)
    found = {name: [part.compiled.memories[name] for part in parts if name in part.compiled.memories] for name in names}
    return {
        name: {"peak_bytes": max(peak for peak, _ in each), "moved_bytes": sum(moved for _, moved in each)}
        for name, each in found.items()
    }


def text(document: Mapping[str, Any], agreement: Sequence[Mapping[str, Any]] | None) -> str:
    """What the command line ends with."""
    totals = document["totals"]
    lines = [
        f"{document['accelerator']}: {totals['accelerated']} operators on the accelerator, {totals['on_cpu']} on the "
        f"CPU, {totals['calls']} calls of the accelerator, {totals['handovers']} hand-overs",
        f"{totals['cycles']} cycles, {1e3 * totals['accelerator_s']:.3f} ms ({document['estimated_by']})",
    ]
    if totals["on_cpu"]:
        lines.append(f"CPU {1e3 * totals['cpu_s']:.3f} ms, calls {1e3 * totals['call_s']:.3f} ms")
        lines.append(f"  ({document['cpu_formula']})")
        lines += [f"  on {one['on']} {1e3 * one['seconds']:.3f} ms ({one['source']})" for one in document["cpus"]]
        lines += [
            f"part {number} on {part['on']}: {part['nodes']} operators, {1e3 * part['seconds']:.3f} ms, "
            f"{part['bytes_in']} bytes in, {part['bytes_out']} out"
            for number, part in enumerate(document["parts"])
        ]
    lines += map(_candidate, document["candidates"])
    lines += _pipeline(document.get("pipeline"))
    if report := document.get("legalised"):
        rules = ", ".join(f"{rule} {times}" for rule, times in sorted(report["rules"].items()))
        lines.append(f"legalised: {rules or 'no rule leads to more of it on the accelerator'}")
        lines += [f"  output {one['name']}: sampled error {one['sampled']:.3g}" for one in report["outputs"]]
    for name, memory in document["memories"].items():
        lines.append(f"{name}: {memory['peak_bytes'] / 1024:.1f} KiB at the peak")
    lines += [f"on the CPU: {row['node']}: {row['why']}" for row in on_cpu(document)]
    for one in agreement or ():
        snr = "no difference" if one["snr_db"] is None else f"{one['snr_db']:.1f} dB"
        steps = "" if one["worst_steps"] is None else f", {one['worst_steps']:.1f} steps"
        lines.append(f"output {one['name']}: {snr} against float64, off by at most {one['max_absolute']:.3g}{steps}")
    return "\n".join(lines)


def _candidate(one: Mapping[str, Any]) -> str:
    found = one["why"] if one["seconds"] is None else f"{1e3 * one['seconds']:.3f} ms"
    return f"{'taken' if one['taken'] else 'compared'}: {one['name']}: {found}"


def _pipeline(found: Mapping[str, Any] | None) -> list[str]:
    """How often inferences end that follow each other, and what another one would be."""
    if found is None:
        return []
    lines = [
        f"objective {found['objective']}: " + ("how often a frame ends is not known" if not found["period_s"] else "")
    ]
    if found["period_s"]:
        lines[0] += (
            f"{1 / found['period_s']:.1f} frames/s, one each {1e3 * found['period_s']:.3f} ms; the CPU is busy "
            f"{found['cpu_busy']:.0%} of it, the accelerator {found['accelerator_busy']:.0%}; edges have "
            f"{found['slots_bytes']} bytes"
        )
    return lines + [
        f"{'picked' if one['picked'] else 'curve'}: {1e3 * one['predicted_latency_s']:.3f} ms by itself, "
        f"{1 / one['predicted_period_s']:.1f} frames/s: {one['scheduler']}"
        for one in found["curve"]
    ]


def on_cpu(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows that are left to the CPU."""
    return [row for row in document["operators"] if row["on"] == "cpu"]


def page(document: Mapping[str, Any], agreement: Sequence[Mapping[str, Any]] | None) -> str:
    """The same as a page, with a row for each operator."""
    keys = ("node", "operator", "made", "on", "part", "cycles", "macs", "cpu_s", "why")
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
