"""Of the report's page: what several devices do, each a lane, and how often an inference ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.contract import PointReport
from compiler.ir.plans.parts import Parts
from compiler.pack.chart.wording import duration, escaped, plural
from compiler.pack.elements import bar, section, table

WIDTH, LEFT, LANE, GAP = 960, 110, 26, 30
"""Of the drawing of a frame, in its own units: all, before lanes begin, a lane's height, between lanes."""


@dataclass(frozen=True)
class Message:
    """So many bytes that one part hands to another, which are positions in the parts."""

    source: int
    to: int
    bytes: int


@dataclass(frozen=True)
class Streamed:
    """How good parts are.

    alone_s     predicted seconds of an inference on each device alone
    parts_s     predicted seconds of each part for a frame that it does, taking over included
    measured_s  from one end of a frame to the next, measured; None: not measured
    curve       divisions that were tried for throughput, or between it and latency, one of them picked
    spans       where a device has a memory of its own, when each part begins and ends of a frame by itself, predicted
    messages    what parts hand to each other there
    """

    alone_s: Sequence[float]
    parts_s: Sequence[float]
    measured_s: float | None = None
    curve: Sequence[PointReport] = ()
    spans: Sequence[tuple[float, float]] = ()
    messages: Sequence[Message] = ()

    @property
    def bound_s(self) -> float:
        """No division ends frames more often than this: the speeds of all devices, added."""
        return 1 / sum(1 / seconds for seconds in self.alone_s) if all(self.alone_s) else 0.0


def devices_section(parts: Parts, streamed: Streamed, carried: Mapping[str, str]) -> str:
    """A row for each device with its parts as boxes, as wide as their part of the period, and the throughput.

    `carried` are outputs with the inputs that they are in the next inference.
    """
    period = parts.period_s or 1.0
    rows = []
    for device, name in enumerate(parts.devices):
        own = [(part, streamed.parts_s[at]) for at, part in enumerate(parts.parts) if part.device == device]
        busy = sum(part.turns.share * seconds for part, seconds in own)
        rows.append(
            (
                f"<code>{escaped(name)}</code>",
                ", ".join(
                    f"part {parts.parts.index(part) + 1}: {plural(len(part.calls), 'kernel')}"
                    + (f", {len(part.turns.own)} of {part.turns.every} frames" if part.turns.every > 1 else "")
                    for part, _ in own
                )
                or "nothing",
                duration(busy),
                f"{busy / period:.0%}",
                bar(busy / period),
                duration(streamed.alone_s[device]) if device < len(streamed.alone_s) else "as the same device's above",
            )
        )
    head = (
        ("device", ""),
        ("parts", ""),
        ("work for a frame", "n"),
        ("busy", "n"),
        ("", "bar"),
        ("all of it there", "n"),
    )
    measured = streamed.measured_s
    ends = f"One inference ends every {duration(parts.period_s)} (predicted)"
    ends += f", {duration(measured)} (measured)" if measured else ""
    ends += f", with up to {parts.frames} in flight"
    if len(parts.devices) == len(streamed.alone_s):  # two queues hide copies, which a device alone has
        ends += f"; no division can do it in less than {duration(streamed.bound_s)}"
    ends += "."
    if carried:
        said = ", ".join(f"{escaped(out)} is {escaped(into)} of the next inference" for out, into in carried.items())
        ends += f" {said}: none ends earlier than {duration(parts.carried_s)} after the one before (predicted)."
    edges = sum(edge.bytes * edge.slots for edge in parts.edges)
    words = f"{ends} Between parts lie {plural(len(parts.edges), 'edge')}, {edges} bytes in all slots."
    return section("Devices", words, table(head, rows) + _frame(parts, streamed)) + _curve(streamed.curve)


def _frame(parts: Parts, streamed: Streamed) -> str:
    """A frame by itself: devices as lanes, parts as boxes, what they hand over as arrows. Nothing without spans."""
    if not streamed.spans:
        return ""
    end = max(end for _, end in streamed.spans) or 1.0
    scale = (WIDTH - LEFT) / end
    height = len(parts.devices) * (LANE + GAP)
    drawn = [
        f'<svg viewBox="0 0 {WIDTH} {height}" font-size="12" role="img" aria-label="one frame, predicted">',
        '<defs><marker id="given" markerWidth="6" markerHeight="6" refX="5" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" fill="currentColor"/></marker></defs>',
    ]
    for device, name in enumerate(parts.devices):
        drawn.append(f'<text x="0" y="{_lane(device) + 17}" fill="currentColor">{escaped(name)}</text>')
    for number, (part, (begin, ends)) in enumerate(zip(parts.parts, streamed.spans, strict=True), 1):
        width = max((ends - begin) * scale, 1)
        drawn.append(
            f'<rect x="{LEFT + begin * scale:.1f}" y="{_lane(part.device)}" width="{width:.1f}" height="{LANE}" '
            f'fill="#4c78a8" stroke="#fff"><title>part {number}: {plural(len(part.calls), "kernel")}, '
            f"{duration(ends - begin)}</title></rect>"
        )
    for one in streamed.messages:
        source, to = parts.parts[one.source].device, parts.parts[one.to].device
        apart = source in parts.apart or to in parts.apart
        y = (_lane(source) + LANE, _lane(to)) if to > source else (_lane(source), _lane(to) + LANE)
        drawn.append(
            f'<line x1="{LEFT + streamed.spans[one.source][1] * scale:.1f}" y1="{y[0]}" '
            f'x2="{LEFT + streamed.spans[one.to][0] * scale:.1f}" y2="{y[1]}" stroke="currentColor" '
            f'marker-end="url(#given)"><title>part {one.source + 1} to part {one.to + 1}: {one.bytes} bytes'
            f"{', copied between memories' if apart else ''}</title></line>"
        )
    return "\n".join(["<p class='dim'>One frame by itself, predicted:</p>", *drawn, "</svg>"])


def _lane(device: int) -> int:
    return device * (LANE + GAP) + GAP // 2


def _curve(curve: Sequence[PointReport]) -> str:
    """A row for each division that was tried, the greatest throughput first."""
    if not curve:
        return ""
    rows = [
        (
            " + ".join(map(str, one.kernels)),
            duration(one.predicted_period_s),
            duration(one.period_s) if one.period_s else "",
            duration(one.predicted_latency_s),
            duration(one.latency_s) if one.latency_s else "",
            "picked" if one.picked else "",
        )
        for one in curve
    ]
    periods = (("an inference every, predicted", "n"), ("measured", "n"))
    latencies = (("latency of one, predicted", "n"), ("measured", "n"))
    head = (("kernels of each part", ""), *periods, *latencies, ("", ""))
    words = "Divisions that were tried; of those whose latency is within the bound, where there is one, the greatest "
    words += "throughput is picked."
    return section("Throughput against latency", words, table(head, rows))
