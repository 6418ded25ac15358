"""plan.svg: the schedule, rows for each lane. And the arena's picture: which storage lies where, while it is live.

Both are self-contained SVG that follows the reader's light or dark scheme, with names on hover.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Place, Plan
from compiler.pack.chart.drawing import WIDTH, schedule_svg, svg
from compiler.pack.chart.wording import escaped, plural, size
from compiler.pack.facts import Facts
from compiler.pack.timeline import schedule_of

LEFT, RIGHT, TOP, BOTTOM = 72, 20, 34, 34
"""Margins of the arena's picture, in pixels."""


def plan_svg(kernels: KernelGraph, plan: Plan, facts: Facts) -> str:
    """The schedule: for each lane a row of what was predicted.

    Where the plan was traced, also one of what was measured.
    """
    return schedule_svg(schedule_of(kernels, plan, facts))


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
            f'<rect class="box shade{number % 3}" x="{x:.2f}" y="{y:.2f}" '
            f'width="{max(wide - 0.5, 0.5):.2f}" height="{max(high - 0.5, 0.5):.2f}">'
            f"<title>storage {storage}: {size(place.bytes)} at byte {place.at}, calls {first} to {last}</title></rect>"
        )
    parts += [*_call_axis(len(kernels.calls), across, height), *_peak(kernels, in_use, across, inner)]
    return svg(height, f"Arena of {size(plan.arena_bytes)} over {plural(len(kernels.calls), 'call')}", parts)


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


def _call_axis(calls: int, across: float, height: int) -> list[str]:
    step = max(1, -(-calls // 12))
    return [
        f'<text class="dim" x="{LEFT + (position + 0.5) * across:.2f}" y="{height - BOTTOM + 18}" '
        f'text-anchor="middle">{position}</text>'
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
