"""The timeline as SVG: for each lane a row of what was predicted above one of what was measured, on one axis of time.

Tasks on the critical path are strong, with a line along the edge; lines between lanes are hand-offs, strong where they
decided when the critical path went on; hatched is where a lane waits for another. Self-contained, follows the reader's
light or dark scheme, with names on hover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .schedule import Schedule, Timeline, launches_of
from .times import gaps
from .wording import duration, escaped, time_unit, visible
from .words import extent, heading, remark

WIDTH = 1160
"""Pixels; more where a lane has more tasks than have PER_TASK pixels each, up to WIDEST."""
WIDEST, PER_TASK = 4000, 7
LEFT, RIGHT, TOP, BOTTOM = 126, 20, 84, 30
HEIGHT = 440
"""Of all rows together, where a row is neither as thin nor as thick as it may be."""
THINNEST, THICKEST = 5, 28
CATEGORIES = (
    (
        "contraction",
        (
            "amx",
            "bf16",
            "contraction",
            "dot",
            "ffma",
            "gated",
            "gemv",
            "integer",
            "mma",
            "separable",
            "wgmma",
            "winograd",
        ),
    ),
    ("loops", ("loops", "transpose", "window")),
)
"""Colour classes, and how the algorithms in them begin."""
LETTER = 6.4
"""Average width of a character of the labels, in pixels."""
LEAST_NAME = 9
"""Height of a row from which on its name is beside it."""
LEAST_LABEL = 13
"""Height of a row from which on tasks have labels."""
SEAM = 2
"""Pixels between the rows of a lane."""
MOST_LINES = 400
"""Hand-offs of one timeline that are all drawn."""
LEAST_GAP = 0.4
"""Pixels from which on a gap is drawn."""

STYLE = """
.tw{font:11px system-ui,sans-serif;--ink:#1f2733;--dim:#5d6878;--line:#d9dee6;--band:#f1f4f8;--mark:#c2281a;
--contraction:#2f6fdb;--loops:#178a6e;--other:#9256c4;--box:#3f7f93;--wait:#d79b1e}
@media (prefers-color-scheme:dark){.tw{--ink:#e4e9f1;--dim:#98a4b5;--line:#343d4b;--band:#1c232d;--mark:#ff8a75;
--contraction:#4d86ea;--loops:#2ba384;--other:#a877dc;--box:#6db3c8;--wait:#c8952c}}
.tw text{fill:var(--ink)}.tw .dim{fill:var(--dim)}.tw .band{fill:var(--band)}.tw .axis{stroke:var(--line)}
.tw .mark{stroke:var(--mark);stroke-dasharray:4 3}.tw .marked{fill:var(--mark)}
.tw .heading{font-size:15px;font-weight:600}.tw .lane{font-weight:600}.tw .small{font-size:9px}
.tw .contraction{fill:var(--contraction)}.tw .loops{fill:var(--loops)}.tw .other{fill:var(--other)}
.tw .slack{fill-opacity:.4}.tw .box{fill:var(--box)}\
.tw .shade0{opacity:.8}.tw .shade1{opacity:.6}.tw .shade2{opacity:.42}
.tw .box:hover,.tw .task:hover rect{opacity:1;fill-opacity:1;stroke:var(--ink);stroke-width:1.5}
.tw .launch{fill:var(--line);stroke:var(--dim);stroke-width:.6}
.tw .wait{fill:url(#tw-hatch)}.tw .hatch{stroke:var(--wait);stroke-width:1;opacity:.8}
.tw .handover{stroke:var(--dim);stroke-width:.7;opacity:.55;fill:none;pointer-events:none}
.tw .path{stroke:var(--mark);stroke-width:1.8;fill:none;pointer-events:none}\
.tw .deciding{stroke:var(--mark);stroke-width:.9;opacity:.85;fill:none;pointer-events:none}
.tw .on{pointer-events:none}.tw .on.bright{fill:#fff}
""".strip()
_HATCH = (
    '<defs><pattern id="tw-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatch" d="M0 0V5"/></pattern></defs>'
)


@dataclass(frozen=True)
class Canvas:
    """Where time and lanes lie, in pixels.

    `rows` for each lane, each `row` high, `pitch` from one lane to the next; `scale` is pixels for a second.
    """

    width: int
    scale: float
    rows: int
    row: int
    pitch: int

    @staticmethod
    def of(schedule: Schedule) -> Canvas:
        """Rows as high as fits into HEIGHT, within the limits of a row.

        As wide as the lane with most tasks wants it.
        """
        lanes, rows = max(schedule.lanes, 1), len(schedule.timelines)
        gap = 10 if lanes <= 8 else 5
        row = int(min(max((HEIGHT / lanes - gap - (rows - 1) * SEAM) / rows, THINNEST), THICKEST))
        most = max((sum(task.lane == lane for task in schedule.tasks) for lane in range(lanes)), default=0)
        width = min(max(LEFT + PER_TASK * most + RIGHT, WIDTH), WIDEST)
        whole = max(timeline.seconds for _, timeline in schedule.timelines) or 1e-9
        return Canvas(width, (width - LEFT - RIGHT) / whole, rows, row, rows * row + (rows - 1) * SEAM + gap)

    def x(self, seconds: float) -> float:
        """Where a moment lies."""
        return LEFT + seconds * self.scale

    def top(self, lane: int, row: int) -> int:
        """Upper edge of one of a lane's rows."""
        return TOP + lane * self.pitch + row * (self.row + SEAM)

    def edge(self, lane: int, row: int) -> int:
        """Where the lines of a row begin and end: the first row's above it, the last row's below it."""
        return self.top(lane, row) + (self.row if row else 0)


def schedule_svg(schedule: Schedule) -> str:
    """The picture: predicted rows alone where nothing was measured, and it says so."""
    canvas = Canvas.of(schedule)
    height = TOP + canvas.pitch * schedule.lanes + BOTTOM
    timelines = [(row, timeline) for row, (_, timeline) in enumerate(schedule.timelines)]
    parts = [_HATCH, *_title(schedule), _legend(schedule), *_lanes(schedule, canvas), *_time_axis(canvas, height)]
    for row, timeline in timelines:
        parts += _waits(schedule, timeline, canvas, row)
    parts += [_handovers(timeline, canvas, row) for row, timeline in timelines]
    parts += [_launches(timeline, canvas, row) for row, timeline in timelines]
    parts += [_task(schedule, at, canvas) for at in range(len(schedule.tasks))]
    parts += [_critical_path(timeline, canvas, row) for row, timeline in timelines]
    return svg(height, f"{heading(schedule)}. {extent(schedule)}", parts, canvas.width)


def svg(height: int, words: str, parts: Sequence[str], width: int = WIDTH) -> str:
    """A picture of so many pixels; `words` describe it to who cannot see it."""
    body = "\n".join(filter(None, parts))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tw" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escaped(words, 400)}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def _title(schedule: Schedule) -> list[str]:
    words = "; ".join(filter(None, (extent(schedule), remark(schedule))))
    return [
        f'<text class="heading" x="12" y="22">{escaped(heading(schedule))}</text>',
        f'<text class="dim" x="12" y="40">{escaped(words, 400)}</text>',
    ]


def _legend(schedule: Schedule) -> str:
    parts: list[str] = []
    x = 12.0
    entries = (
        ('<rect class="contraction" x="{x:g}" y="52" width="12" height="12" rx="2"/>', "matrix product, convolution"),
        ('<rect class="loops" x="{x:g}" y="52" width="12" height="12" rx="2"/>', "pooling, elementwise, data"),
        ('<rect class="other" x="{x:g}" y="52" width="12" height="12" rx="2"/>', "other"),
        ('<path class="path" d="M{x:g} 58h12"/>', "critical path"),
        ('<rect class="other slack" x="{x:g}" y="52" width="12" height="12" rx="2"/>', "pale: not on it"),
        ('<path class="handover" d="M{x:g} 64l12 -12"/>', "hand-over"),
        ('<rect class="wait" x="{x:g}" y="52" width="12" height="12"/>', "waiting for another " + schedule.lane),
    )
    for drawn, words in entries:
        parts.append(drawn.format(x=x))
        parts.append(f'<text class="dim" x="{x + 17:g}" y="62">{words}</text>')
        x += 17 + LETTER * len(words) + 20
    return "".join(parts)


def _lanes(schedule: Schedule, canvas: Canvas) -> list[str]:
    parts = []
    for lane in range(schedule.lanes):
        middle = (canvas.top(lane, 0) + canvas.top(lane, canvas.rows - 1) + canvas.row) / 2
        parts.append(f'<text class="lane" x="12" y="{middle + 4:g}">{schedule.lane} {lane}</text>')
        for row, name in enumerate(name for name, _ in schedule.timelines):
            top = canvas.top(lane, row)
            parts.append(
                f'<rect class="band" x="{LEFT}" y="{top}" width="{canvas.width - LEFT - RIGHT}" height="{canvas.row}"/>'
            )
            if canvas.row >= LEAST_NAME:
                y = top + canvas.row / 2 + 3
                parts.append(f'<text class="dim small" x="{LEFT - 6}" y="{y:g}" text-anchor="end">{name}</text>')
    return parts


def _task(schedule: Schedule, at: int, canvas: Canvas) -> str:
    """Its boxes in all rows, which are one to the mouse."""
    boxes = "".join(_box(schedule, timeline, at, canvas, row) for row, (_, timeline) in enumerate(schedule.timelines))
    kind = schedule.calls[schedule.tasks[at].call].kind
    return f'<g class="task {category(kind)}"><title>{_words(schedule, at)}</title>{boxes}</g>' if boxes else ""


def _box(schedule: Schedule, timeline: Timeline, at: int, canvas: Canvas, row: int) -> str:
    begin, end = timeline.spans[at]
    task = schedule.tasks[at]
    if end <= begin:
        return ""
    part, parts = schedule.parts[at]
    high = canvas.row / parts
    x, y = canvas.x(begin), canvas.top(task.lane, row) + part * high
    wide = min(max((end - begin) * canvas.scale, 0.3), canvas.width - RIGHT - x)
    wide -= 0.5 if wide > 2 else 0.0
    strong = at in timeline.critical
    shade = "" if strong else ' class="slack"'
    drawn = f'<rect{shade} x="{x:.2f}" y="{y:g}" width="{wide:.2f}" height="{high - (0.5 if parts > 1 else 0):g}"/>'
    letters = int((wide - 8) / LETTER)
    if letters < 4 or high < LEAST_LABEL:
        return drawn
    label = visible(schedule.calls[task.call].family)
    shown = label if len(label) <= letters else f"{label[: letters - 1]}…"
    colour = "on bright" if strong else "on"
    return f'{drawn}<text class="{colour}" x="{x + 4:.2f}" y="{y + high / 2 + 4:g}">{escaped(shown)}</text>'


def _launches(timeline: Timeline, canvas: Canvas, row: int) -> str:
    """Around tasks that share a launch, from its beginning until the last of them has ended."""
    boxes = []
    for lane, launches in launches_of(timeline.tasks).items():
        for launch in (shared for shared in launches if len(shared) > 1):
            begin = min(timeline.spans[at][0] for at in launch)
            end = max(timeline.spans[at][1] for at in launch)
            boxes.append(
                f"M{canvas.x(begin):.2f} {canvas.top(lane, row)}"
                f"H{canvas.x(end):.2f}v{canvas.row}H{canvas.x(begin):.2f}z"
            )
    return f'<path class="launch" d="{"".join(boxes)}"/>' if boxes else ""


def _words(schedule: Schedule, at: int) -> str:
    """What a task is, and when it ran."""
    task = schedule.tasks[at]
    call = schedule.calls[task.call]
    lines = [
        escaped(call.family),
        f"call {task.call}, tiles {task.first}..{task.last} of {call.tiles}",
        *(f"{name} {_when(timeline, at)}" for name, timeline in schedule.timelines),
    ]
    if schedule.measured and schedule.predicted and (predicted := _seconds(schedule.predicted, at)):
        lines.append(f"measured over predicted {_seconds(schedule.measured, at) / predicted:.2f}")
    if call.seconds is not None:
        lines.append(f"all of the call {duration(call.seconds)} ({call.source})")
    return "&#10;".join([*lines, escaped(call.tile)])


def _seconds(timeline: Timeline, at: int) -> float:
    begin, end = timeline.spans[at]
    return end - begin


def _when(timeline: Timeline, at: int) -> str:
    return f"{duration(_seconds(timeline, at))} from {duration(timeline.spans[at][0])}" + (
        ", critical" if at in timeline.critical else ""
    )


def _waits(schedule: Schedule, timeline: Timeline, canvas: Canvas, row: int) -> list[str]:
    """The gaps before tasks that waited for another lane."""
    parts = []
    for at, task in enumerate(timeline.tasks):
        waited, _ = gaps(timeline, at)
        cause = timeline.cause[at]
        if cause is None or task.beside or waited * canvas.scale < LEAST_GAP:
            continue
        other = timeline.tasks[cause]
        words = (
            f"{schedule.lane} {task.lane} waits {duration(waited)} "
            f"for call {other.call} on {schedule.lane} {other.lane}"
        )
        parts.append(
            f'<rect class="wait" x="{canvas.x(timeline.free[at]):.2f}" y="{canvas.top(task.lane, row)}" '
            f'width="{waited * canvas.scale:.2f}" '
            f'height="{canvas.row}"><title>{words}</title></rect>'
        )
    return parts


def _handovers(timeline: Timeline, canvas: Canvas, row: int) -> str:
    """From where each awaited task ends to where the one that waits begins.

    Those that the critical path goes through are not drawn here. Of more than MOST_LINES only those that decided when a
    task began.
    """
    waits = [(other, at) for at, task in enumerate(timeline.tasks) if not task.beside for other in timeline.awaited[at]]
    if len(waits) > MOST_LINES:
        waits = [(other, at) for other, at in waits if timeline.cause[at] == other]
    lines = [
        _between(timeline, canvas, row, other, at)
        for other, at in waits
        if not (at in timeline.critical and timeline.cause[at] == other)
    ]
    return f'<path class="handover" d="{"".join(lines)}"/>' if lines else ""


def _critical_path(timeline: Timeline, canvas: Canvas, row: int) -> str:
    """Along the tasks of the path, and over the hand-offs that decided when it went on."""
    along, across = [], []
    for at in sorted(timeline.critical, key=lambda at: (timeline.spans[at], at)):
        begin, end = timeline.spans[at]
        along.append(f"M{canvas.x(begin):.2f} {canvas.edge(timeline.tasks[at].lane, row)}H{canvas.x(end):.2f}")
        cause = timeline.cause[at]
        if cause is not None and timeline.crosses(at):
            across.append(_between(timeline, canvas, row, cause, at))
    lines = (("path", along), ("deciding", across))
    return "".join(f'<path class="{kind}" d="{"".join(drawn)}"/>' for kind, drawn in lines if drawn)


def _between(timeline: Timeline, canvas: Canvas, row: int, one: int, other: int) -> str:
    """From the end of one task to the beginning of another, on the edges of their rows."""
    x, u = canvas.x(timeline.spans[one][1]), canvas.x(timeline.spans[other][0])
    y, v = (canvas.edge(timeline.tasks[at].lane, row) for at in (one, other))
    return f"M{x:.2f} {y}L{u:.2f} {v}"


def category(algorithm: str) -> str:
    """The colour class of an algorithm.

    They are named after what they do, those that differ in precision by endings.
    """
    found = (kind for kind, beginnings in CATEGORIES if algorithm.startswith(beginnings))
    return next(found, "other")


def _time_axis(canvas: Canvas, height: int) -> list[str]:
    """Round times, at most ten for each WIDTH."""
    length = canvas.width - LEFT - RIGHT
    whole, most = length / canvas.scale, 10 * length / (WIDTH - LEFT - RIGHT)
    step = 10 ** math.floor(math.log10(whole / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if whole / (step * factor) <= most)
    unit, second = time_unit(whole)
    parts = []
    for tick in range(int(whole / step + 1e-9) + 1):
        x = canvas.x(tick * step)
        words = f"{tick * step / second:.4g} {unit}" if tick else "0"
        parts.append(f'<path class="axis" d="M{x:.2f} {TOP - 4}V{height - BOTTOM + 5}"/>')
        parts.append(f'<text class="dim" x="{x:.2f}" y="{height - BOTTOM + 19}" text-anchor="middle">{words}</text>')
    return parts
