"""A prediction as SVG: devices as lanes of stages with messages as arrows, and latency against throughput."""

from __future__ import annotations

from html import escape

from compiler.platforms.predict import PREDICTION, Prediction
from compiler.platforms.timing import Timeline
from compiler.schedule.solvers.sets import bits

WIDTH, LEFT, LANE, GAP, TOP = 1000, 110, 34, 26, 64
CURVE = 260
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac")
MOST_SENDINGS = 400


def svg(found: Prediction) -> str:
    """The document. Names come from the model's file and are escaped."""
    devices = found.costs.problem.devices
    timeline = found.chosen.timeline
    height = TOP + len(devices) * (LANE + GAP) + 40
    scale = (WIDTH - LEFT - 20) / (timeline.latency_s or 1.0)
    y = {at: TOP + at * (LANE + GAP) for at in range(len(devices))}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + CURVE}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="head" markerWidth="6" markerHeight="6" refX="5" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height + CURVE}" fill="white"/>',
        _text(10, 20, f"{found.platform.about}: {_times(timeline)}, by {found.chosen.granularity}"),
        _text(10, 38, PREDICTION, "#666"),
    ]
    for at, device in enumerate(devices):
        parts.append(_text(10, y[at] + LANE / 2 + 4, device.name))
        parts.append(_line(LEFT, y[at] + LANE, WIDTH - 20, y[at] + LANE, "#ccc"))
    for span, stage in zip(timeline.spans, timeline.stages, strict=True):
        names = [found.chosen.problem.names[unit] for unit in bits(stage.units)]
        said = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)})"
        said += f": {1e3 * (span.end - span.begin):.3g} ms"
        width = max((span.end - span.begin) * scale, 0.5)
        for copy in stage.devices:
            parts.append(
                f'<rect x="{LEFT + span.begin * scale:.1f}" y="{y[copy]}" width="{width:.1f}" height="{LANE}" '
                f'fill="{COLOURS[span.stage % len(COLOURS)]}" opacity="{1 if copy == span.device else 0.35}">'
                f"<title>{escape(said)}</title></rect>"
            )
    for sent in timeline.sendings[:MOST_SENDINGS]:
        source, to = sent.ends
        down = y[to] > y[source]
        begin, end = y[source] + (LANE if down else 0), y[to] + (0 if down else LANE)
        said = f"{sent.link}: {sent.elements} elements, {1e3 * (sent.end - sent.begin):.3g} ms"
        parts.append(
            f'<line x1="{LEFT + sent.begin * scale:.1f}" y1="{begin}" x2="{LEFT + sent.end * scale:.1f}" y2="{end}" '
            f'stroke="black" marker-end="url(#head)"><title>{escape(said)}</title></line>'
        )
    parts.append(_text(LEFT, height - 24, "0"))
    parts.append(_text(WIDTH - 80, height - 24, f"{1e3 * timeline.latency_s:.3g} ms"))
    return "\n".join([*parts, *_curve(found, height), "</svg>", ""])


def _curve(found: Prediction, top: int) -> list[str]:
    """Frames per second over the latency of one frame, of all that is best in either."""
    points = [(1e3 * one.timeline.latency_s, 1 / one.timeline.period_s) for one in found.curve if one.timeline.period_s]
    if not points:
        return []
    right, most = 1.1 * max(x for x, _ in points), 1.1 * max(y for _, y in points)
    left, bottom, width, height = LEFT, top + CURVE - 40, WIDTH - LEFT - 60, CURVE - 80

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / right * width, bottom - y / most * height

    parts = [
        _text(10, top + 14, "frames per second, over the latency of one frame in ms"),
        _line(left, bottom, left + width, bottom, "#666"),
        _line(left, bottom, left, bottom - height, "#666"),
        _text(left + width - 30, bottom + 18, f"{right:.3g} ms"),
        _text(left - 60, bottom - height + 4, f"{most:.3g} /s"),
        f'<polyline fill="none" stroke="{COLOURS[0]}" points="'
        + " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in points)
        + '"/>',
    ]
    for x, y in points:
        across, down = at(x, y)
        said = f"{x:.4g} ms, {y:.4g} /s"
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{COLOURS[0]}"><title>{said}</title></circle>'
        )
    return parts


def _times(timeline: Timeline) -> str:
    often = f", {1 / timeline.period_s:.4g} frames per second" if timeline.period_s else ""
    return f"{1e3 * timeline.latency_s:.4g} ms{often}"


def _text(x: float, y: float, said: str, colour: str = "black") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(said)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"/>'
