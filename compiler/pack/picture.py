"""plan.svg: the schedule, a row for each lane. And the arena's picture: which storage lies where, while it is live.

Both are self-contained SVG that follows the reader's light or dark scheme, with names on hover.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Place, Plan
from compiler.pack.facts import Facts
from compiler.pack.timeline import Span, predicted, simulate
from compiler.pack.wording import duration, escaped, plural, size, time_unit, visible

WIDTH = 1160
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 34, 34
LETTER = 6.4
"""Average width of a character of the labels, in pixels."""

STYLE = """
.tw{font:11px system-ui,sans-serif;--ink:#1f2733;--dim:#5d6878;--line:#d9dee6;--band:#f4f6f9;--mark:#b42318;
--contraction:#2f6fdb;--loops:#178a6e;--other:#9256c4;--box:#3f7f93}
@media (prefers-color-scheme:dark){.tw{--ink:#e4e9f1;--dim:#98a4b5;--line:#343d4b;--band:#1c232d;--mark:#ff8a75;
--contraction:#5b93f5;--loops:#35b391;--other:#b583e0;--box:#6db3c8}}
.tw text{fill:var(--ink)}.tw .dim{fill:var(--dim)}.tw .band{fill:var(--band)}.tw .axis{stroke:var(--line)}
.tw .mark{stroke:var(--mark);stroke-dasharray:4 3}.tw .marked{fill:var(--mark)}
.tw .contraction{fill:var(--contraction)}.tw .loops{fill:var(--loops)}.tw .other{fill:var(--other)}
.tw .handover{stroke:var(--dim);stroke-width:.8;fill:none;pointer-events:none}.tw .deciding{stroke:var(--mark);stroke-width:1.4}
.tw .slack{opacity:.45}.tw .box{fill:var(--box)}.tw .shade0{opacity:.8}.tw .shade1{opacity:.6}.tw .shade2{opacity:.42}
.tw .box:hover,.tw .task:hover{opacity:1;stroke:var(--ink)}
.tw .on{pointer-events:none}.tw .on.bright{fill:#fff}
""".strip()


def plan_svg(kernels: KernelGraph, plan: Plan, facts: Facts) -> str:
    """The schedule: time to the right, a row for each lane. Tasks that the last end does not wait for are pale; lines are hand-overs between lanes."""
    spans = simulate(plan, facts.seconds, facts.handover_s)
    whole = predicted(spans) or 1e-9
    row = max(12, min(36, 420 // plan.lanes))
    height = TOP + row * plan.lanes + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / whole
    parts = [_legend(), *_time_axis(whole, scale, height)]
    for lane in range(plan.lanes):
        top = TOP + row * lane
        if lane % 2 == 0:
            parts.append(f'<rect class="band" x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{row}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{top + row / 2 + 4:g}" text-anchor="end">lane {lane}</text>')
    parts += [_task(kernels, plan, facts, span, scale, row) for span in spans if span.end > span.begin]
    parts += _handovers(spans, scale, row)
    words = f"Predicted schedule: {plural(len(kernels.calls), 'kernel')} on {plural(plan.lanes, 'lane')} in {duration(whole)}"
    return _svg(height, words, parts)


def memory_svg(kernels: KernelGraph, plan: Plan) -> str:
    """The arena: calls to the right, addresses upwards; each box is a storage from its first call to its last."""
    boxes = lifetimes(kernels, plan.places)
    in_use = bytes_in_use(boxes, plan.places, len(kernels.calls))
    whole = max(plan.arena_bytes, 1)
    inner, height = 260, 260 + TOP + BOTTOM
    across = (WIDTH - LEFT - RIGHT) / max(len(kernels.calls), 1)
    parts = [f'<rect class="band" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{inner}"/>']
    for quarter in range(5):
        y = TOP + inner * (1 - quarter / 4)
        parts.append(f'<path class="axis" d="M{LEFT} {y:g}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text class="dim" x="{LEFT - 8}" y="{y + 4:g}" text-anchor="end">{size(whole * quarter // 4)}</text>'
        )
    for number, (storage, (first, last)) in enumerate(boxes.items()):
        place = plan.places[storage]
        x, wide = LEFT + first * across, (last + 1 - first) * across
        high = inner * place.bytes / whole
        y = TOP + inner * (1 - place.at / whole) - high
        parts.append(
            f'<rect class="box shade{number % 3}" x="{x:.2f}" y="{y:.2f}" width="{max(wide - 0.5, 0.5):.2f}" height="{max(high - 0.5, 0.5):.2f}">'
            f"<title>storage {storage}: {size(place.bytes)} at byte {place.at}, calls {first} to {last}</title></rect>"
        )
    parts += [*_call_axis(len(kernels.calls), across, height), *_peak(kernels, in_use, across, inner)]
    return _svg(height, f"Arena of {size(plan.arena_bytes)} over {plural(len(kernels.calls), 'call')}", parts)


def lifetimes(kernels: KernelGraph, places: Mapping[int, Place]) -> dict[int, tuple[int, int]]:
    """For each storage in the arena, by number, the first and last call that touches it."""
    found: dict[int, tuple[int, int]] = {}
    for position, call in enumerate(kernels.calls):
        for buffer in (*call.inputs, *call.outputs):
            storage = kernels.buffers[buffer].storage
            if storage in places and places[storage].space == "arena":
                found[storage] = (found.get(storage, (position, position))[0], position)
    return dict(sorted(found.items()))


def bytes_in_use(boxes: Mapping[int, tuple[int, int]], places: Mapping[int, Place], calls: int) -> list[int]:
    """For each call, how many bytes of the arena some live storage covers."""
    live: list[list[tuple[int, int]]] = [[] for _ in range(calls)]
    for storage, (first, last) in boxes.items():
        for position in range(first, last + 1):
            live[position].append((places[storage].at, places[storage].at + places[storage].bytes))
    return [_covered(stretches) for stretches in live]


def _covered(stretches: Iterable[tuple[int, int]]) -> int:
    total = reached = 0
    for begin, end in sorted(stretches):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _svg(height: int, words: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tw" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escaped(words)}">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _task(kernels: KernelGraph, plan: Plan, facts: Facts, span: Span, scale: float, row: int) -> str:
    task, call = span.task, kernels.calls[span.task.call]
    tile, tiles = plan.tiles[task.call]
    x, wide = LEFT + span.begin * scale, max((span.end - span.begin) * scale, 0.2)
    y = TOP + row * task.lane
    seconds, source = facts.told(task.call)
    title = (
        f"{escaped(call.kernel.family)}&#10;call {task.call}, tiles {task.first}..{task.last} of {tiles}&#10;"
        f"{duration(seconds)} ({source}), from {duration(span.begin)}&#10;{escaped(str(tile))}"
    )
    kind = f"task {category(tile.algorithm)}" + ("" if span.critical else " slack")
    gap = 0.5 if wide > 2 else 0.0
    drawn = f'<rect class="{kind}" x="{x:.2f}" y="{y + 1}" width="{wide - gap:.2f}" height="{row - 2}" rx="1"><title>{title}</title></rect>'
    letters = int((wide - 8) / LETTER)
    if letters < 4 or row < 16:
        return drawn
    label = visible(call.kernel.family)
    shown = label if len(label) <= letters else f"{label[: letters - 1]}…"
    colour = "on bright" if span.critical else "on"
    return f'{drawn}<text class="{colour}" x="{x + 4:.2f}" y="{y + row / 2 + 4:g}">{escaped(shown)}</text>'


def _handovers(spans: Sequence[Span], scale: float, row: int) -> list[str]:
    """From where each awaited task ends to where the one that waits begins; those on the critical path last, over the others."""
    lines: list[tuple[bool, str]] = []
    for span in spans:
        for other in span.after:
            deciding = span.critical and other == span.cause
            ends = (LEFT + spans[other].end * scale, LEFT + span.begin * scale)
            rows = (TOP + row * (one.task.lane + 0.5) for one in (spans[other], span))
            (x, u), (y, v) = ends, rows
            kind = "handover deciding" if deciding else "handover"
            lines.append((deciding, f'<path class="{kind}" d="M{x:.2f} {y:g}L{u:.2f} {v:g}"/>'))
    return [line for _, line in sorted(lines, key=lambda one: one[0])]


def category(algorithm: str) -> str:
    """The colour class of an algorithm."""
    return algorithm if algorithm in ("contraction", "loops") else "other"


def _legend() -> str:
    parts: list[str] = []
    x = float(LEFT)
    entries = (
        ("contraction", "matrix product, convolution"),
        ("loops", "loop nest"),
        ("other", "other"),
        ("other slack", "pale: not on the critical path"),
    )
    for kind, words in entries:
        parts.append(f'<rect class="{kind}" x="{x:g}" y="8" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="dim" x="{x + 17:g}" y="18">{words}</text>')
        x += 17 + LETTER * len(words) + 22
    for kind, words in (("handover", "hand-over"), ("handover deciding", "on the critical path")):
        parts.append(f'<path class="{kind}" d="M{x:g} 20L{x + 12:g} 8"/>')
        parts.append(f'<text class="dim" x="{x + 17:g}" y="18">{words}</text>')
        x += 17 + LETTER * len(words) + 22
    return "".join(parts)


def _time_axis(whole: float, scale: float, height: int) -> list[str]:
    """Round times, at most ten."""
    step = 10 ** math.floor(math.log10(whole / 10))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if whole / (step * factor) <= 10)
    unit, length = time_unit(whole)
    parts = []
    for tick in range(int(whole / step + 1e-9) + 1):
        x = LEFT + tick * step * scale
        words = f"{tick * step / length:.4g} {unit}" if tick else "0"
        parts.append(f'<path class="axis" d="M{x:.2f} {TOP}V{height - BOTTOM + 5}"/>')
        parts.append(f'<text class="dim" x="{x:.2f}" y="{height - BOTTOM + 20}" text-anchor="middle">{words}</text>')
    return parts


def _call_axis(calls: int, across: float, height: int) -> list[str]:
    step = max(1, -(-calls // 12))
    return [
        f'<text class="dim" x="{LEFT + (position + 0.5) * across:.2f}" y="{height - BOTTOM + 18}" text-anchor="middle">{position}</text>'
        for position in range(0, calls, step)
    ]


def _peak(kernels: KernelGraph, in_use: Sequence[int], across: float, inner: int) -> list[str]:
    if not any(in_use):
        return []
    at = max(range(len(in_use)), key=lambda position: in_use[position])
    x = LEFT + (at + 0.5) * across
    anchor, shift = ("end", -6) if x > WIDTH / 2 else ("start", 6)
    words = f"peak: {size(in_use[at])} in use at call {at}, {escaped(kernels.calls[at].kernel.family, 40)}"
    return [
        f'<path class="mark" d="M{x:.2f} {TOP - 12}V{TOP + inner}"/>',
        f'<text class="marked" x="{x + shift:.2f}" y="{TOP - 8}" text-anchor="{anchor}">{words}</text>',
    ]
