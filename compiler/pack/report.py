"""report.html: what was made of the model and why, in one file without scripts or outside parts.

Whatever may come from the model or its maker is written by `wording.escaped`; the page forbids scripts besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Port, Program
from compiler.ir.tile import Tile
from compiler.pack.chart.wording import duration, escaped, plural, quantity, size
from compiler.pack.cores_section import cores_section
from compiler.pack.elements import bar, folded, section, table
from compiler.pack.facts import Facts
from compiler.pack.inside import inside
from compiler.pack.picture import memory_svg
from compiler.pack.quantised_section import quantised_section
from compiler.pack.schedule_section import schedule_section
from compiler.pack.timeline import lane_name, predicted_seconds
from compiler.pack.work import flops

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LONGEST_LINE = 400
SOURCES_SHOWN = 6
"""Operators named for one kernel."""
FAMILIES_SHOWN = 12


def report_html(
    program: Program,
    plan: Plan,
    kernels: KernelGraph,
    records: Sequence[Record],
    facts: Facts,
    others: Sequence[Plan] = (),
) -> str:
    """The page.

    Its pictures and times are from the records and what follows from them, so the same inputs give the same bytes.

    They are of `plan`; of the `others` that the artifact holds it says for which cores they are.
    """
    rows = _rows(plan, kernels, facts)
    sections = (
        _summary(program, plan, kernels, facts, rows),
        _steps(facts),
        quantised_section(facts.quantised),
        cores_section(plan, others, facts),
        schedule_section(program, plan, kernels, facts),
        _families(rows),
        _calls(rows),
        inside(kernels),
        section("Memory", _memory_words(program, plan), f"<figure>{memory_svg(kernels, plan)}</figure>"),
        _ports(program, facts),
        *_explained(facts),
        _records(records),
        _provenance(program, facts),
    )
    style = (files("compiler.pack") / "report.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Tilewright report {escaped(facts.model_digest[:12])}</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body>\n</html>\n"
    )


@dataclass(frozen=True)
class _Row:
    """A call as the tables show it."""

    call: int
    family: str
    sources: tuple[str, ...]
    tile: str
    tiles: int
    lanes: int
    seconds: float
    source: str
    share: float
    flops: int | None


def _rows(plan: Plan, kernels: KernelGraph, facts: Facts) -> list[_Row]:
    whole = sum(cost.seconds for cost in facts.costs) or 1.0
    lanes: dict[int, set[int]] = {}
    for task in plan.runs:
        lanes.setdefault(task.call, set()).add(task.lane)
    rows = []
    for position, call in enumerate(kernels.calls):
        tile, tiles = plan.tiles[position]
        seconds, source = facts.time_of(position)
        used = len(lanes.get(position, ()))
        work = flops(call.kernel)
        rows.append(
            _Row(
                position,
                call.kernel.family,
                call.sources,
                _blocking(tile),
                tiles,
                used,
                seconds,
                source,
                seconds / whole,
                work,
            )
        )
    return rows


def _summary(program: Program, plan: Plan, kernels: KernelGraph, facts: Facts, rows: Sequence[_Row]) -> str:
    latency = predicted_seconds(plan, facts)
    work = sum(row.flops or 0 for row in rows)
    speed = quantity(work / latency, "FLOP/s") if latency else "-"
    reached = [one.measured_s for one in facts.plans if one.taken and one.measured_s]
    cards = (
        (duration(latency), "predicted latency"),
        *((duration(seconds), "measured, whole runs") for seconds in reached),
        (speed, f"over {quantity(work, 'FLOP')}"),
        (plural(len(kernels.calls), "kernel"), f"from {plural(facts.operators, 'operator')}"),
        (plural(plan.lanes, lane_name(facts.target)), f"{escaped(plan.scheduler)} schedule"),
        (size(plan.arena_bytes), "arena for activations"),
        (size(len(program.weights)), "weights"),
    )
    drawn = "".join(f'<div class="card"><b>{value}</b><span>{words}</span></div>' for value, words in cards)
    model = "".join(
        f"<tr><th>{escaped(what)}</th><td>{escaped(words, LONGEST_LINE)}</td></tr>" for what, words in facts.model
    )
    notices = "".join(f"<li>{escaped(notice, LONGEST_LINE)}</li>" for notice in facts.notices)
    return (
        f"<h1>Compiled model</h1>\n<p class='dim'>for {escaped(facts.target)} on {escaped(facts.hardware)}, "
        f"by Tilewright {escaped(facts.compiler_version)}; model <code>{escaped(facts.model_digest)}</code></p>\n"
        f'<div class="cards">{drawn}</div>\n'
        + (f"<table>{model}</table>\n" if model else "")
        + (f"<h2>Notices</h2>\n<ul>{notices}</ul>\n" if notices else "")
    )


def _steps(facts: Facts) -> str:
    rows = [(escaped(step), escaped(words, LONGEST_LINE)) for step, words in facts.steps]
    fused = (
        f"{plural(facts.operators, 'operator')} became {plural(facts.kernels_before_fusion, 'kernel')} before fusion, "
        f"{len(facts.costs)} after it."
    )
    return section("What was done", fused, table((("step", ""), ("", "")), rows) if rows else "")


def _families(rows: Sequence[_Row]) -> str:
    """Where the time goes, by family, longest first."""
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.family, []).append(row)
    ordered = sorted(groups.items(), key=lambda group: (-sum(row.seconds for row in group[1]), group[0]))
    lines = []
    for family, members in ordered[:FAMILIES_SHOWN]:
        seconds, share = sum(row.seconds for row in members), sum(row.share for row in members)
        lines.append((_family(family), str(len(members)), duration(seconds), f"{share:.1%}", bar(share)))
    rest = [row for _, members in ordered[FAMILIES_SHOWN:] for row in members]
    if rest:
        share = sum(row.share for row in rest)
        lines.append(
            ("all others", str(len(rest)), duration(sum(row.seconds for row in rest)), f"{share:.1%}", bar(share))
        )
    head = (("family", ""), ("calls", "n"), ("time", "n"), ("share", "n"), ("", "bar"))
    return section(
        "Where the time goes", "Kernels by family: the operators that each was fused from.", table(head, lines)
    )


def _calls(rows: Sequence[_Row]) -> str:
    head = (
        ("#", "n"),
        ("family", ""),
        ("operators", "from"),
        ("tile", "tile mono"),
        ("tiles", "n"),
        ("lanes", "n"),
        ("time", "n"),
        ("share", "n"),
        ("", "bar"),
        ("work", "n"),
        ("speed", "n"),
    )
    lines = [
        (
            str(row.call),
            _family(row.family),
            _sources(row.sources),
            escaped(row.tile, LONGEST_LINE),
            str(row.tiles),
            str(row.lanes),
            duration(row.seconds) + ("" if row.source == "measured" else " *"),
            f"{row.share:.1%}",
            bar(row.share),
            quantity(row.flops, "FLOP") if row.flops else "-",
            quantity(row.flops / row.seconds, "FLOP/s") if row.flops and row.seconds else "-",
        )
        for row in rows
    ]
    estimated = any(row.source != "measured" for row in rows)
    words = "In execution order. Work counts one for each arithmetic function and reduction step of the definition."
    note = " Times marked * are the analytical model's; all others were measured on the device." if estimated else ""
    return section("Kernels", words + note, table(head, lines))


def _sources(sources: Sequence[str]) -> str:
    shown = ", ".join(escaped(source, 60) for source in sources[:SOURCES_SHOWN])
    more = len(sources) - SOURCES_SHOWN
    return shown + (f" and {more} more" if more > 0 else "")


def _blocking(tile: Tile) -> str:
    """The algorithm and the levels; where temporaries live is in plan.json."""
    return " ".join((tile.algorithm, *map(str, tile.levels)))


def _family(family: str) -> str:
    """A family, which may be broken into lines between its operators."""
    return escaped(family).replace("+", "+<wbr>")


def _memory_words(program: Program, plan: Plan) -> str:
    stored = sum(place.bytes for place in plan.places.values() if place.space == "arena")
    times = f", {stored / plan.arena_bytes:.1f} times less than without reuse" if plan.arena_bytes else ""
    return (
        f"Activations share an arena of {size(plan.arena_bytes)}{times}. "
        f"Weights, {size(len(program.weights))}, are mapped from the file and shared between processes."
    )


def _ports(program: Program, facts: Facts) -> str:
    ranges = {one.input: one for one in facts.ranges}

    def rows(kind: str, ports: Iterable[Port]) -> list[tuple[str, ...]]:
        return [
            (
                kind,
                f"<code>{escaped(port.name)}</code>",
                escaped(str(port.type)),
                escaped(f"{ranges[port.name]}: {ranges[port.name].why}", LONGEST_LINE) if port.name in ranges else "",
            )
            for port in ports
        ]

    head = (("", ""), ("name", ""), ("type", ""), ("range of random inputs, and who demands it", "from"))
    words = f"Timed on the first of {plural(len(facts.samples), 'sample')}." if facts.samples else ""
    lines = [*rows("input", program.inputs), *((*row[:3], "") for row in rows("output", program.outputs))]
    return section("Inputs and outputs", words, table(head, lines))


def _records(records: Sequence[Record]) -> str:
    head = (
        ("kind", ""),
        ("operator", ""),
        ("description", "from"),
        ("variant", "tile mono"),
        ("threads", "n"),
        ("median", "n"),
        ("p10 to p90", "n"),
        ("samples", "n"),
    )
    lines = [
        (
            escaped(record.kind),
            escaped(record.operator),
            escaped(record.description, LONGEST_LINE),
            escaped(json.dumps(record.to_json()["variant"], sort_keys=True), LONGEST_LINE),
            str(record.threads),
            duration(record.seconds),
            f"{duration(record.p10)} to {duration(record.p90)}",
            str(record.samples),
        )
        for record in records
    ]
    return folded(f"Measurements used ({len(records)})", table(head, lines) if lines else "")


def _provenance(program: Program, facts: Facts) -> str:
    options = escaped(json.dumps(dict(facts.options), sort_keys=True), 4000)
    rows = (
        ("options", f"<code>{options}</code>"),
        ("toolchain", f"<code>{escaped(program.toolchain, 4000)}</code>"),
        ("hardware", f"<code>{escaped(facts.hardware, LONGEST_LINE)}</code>"),
        ("model SHA-256", f"<code>{escaped(facts.model_digest)}</code>"),
    )
    words = (
        "All that these bytes depend on, with the model and the measurements. "
        "Wall times and the numeric verdict are in the receipt."
    )
    return section("Provenance", words, table((("", ""), ("", "")), rows))


def _explained(facts: Facts) -> list[str]:
    """What rewriting and fusion did and did not do, a table for each, folded."""
    head = (("", "n"), ("by", ""), ("what, or why not", ""), ("", ""), ("such as at", "from"))
    shown = []
    for title, entries in facts.explanation.sections:
        rows = [
            (
                f"{entry.count} ×",
                f"<code>{escaped(entry.what)}</code>",
                escaped(entry.why, LONGEST_LINE),
                escaped(entry.note, LONGEST_LINE),
                escaped(entry.where, LONGEST_LINE),
            )
            for entry in entries
        ]
        shown.append(folded(f"{title} ({sum(entry.count for entry in entries)})", table(head, rows)))
    return shown
