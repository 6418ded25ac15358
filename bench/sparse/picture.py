"""A picture of the table: of each layer its time over the share of zeros, a line for each form of zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from bench.sparse.row import Row

WIDE, HIGH, LEFT, BELOW, ABOVE, APART = 190, 130, 34, 30, 26, 16
"""Of one plot in pixels, and what stands around it."""
IN_A_ROW = 4
COLOURS = ("#1b6ca8", "#c0392b", "#3a7d34", "#8e44ad", "#b9770e", "#16a085")
STEPS = (0.0, 0.5, 1.0)
"""Parts of the dense form's time that are marked at the side."""


def picture(rows: Sequence[Row]) -> str:
    """SVG. Points that are filled left zeros out; hollow ones kept a dense kernel."""
    plots: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in rows:
        plots.setdefault((row.layer, row.batch), {}).setdefault(row.form, []).append(row)
    forms = list(dict.fromkeys(row.form for row in rows))
    colours = dict(zip(forms, COLOURS * (len(forms) // len(COLOURS) + 1), strict=False))
    shares = sorted({row.share for row in rows})
    across, down = LEFT + WIDE + APART, ABOVE + HIGH + BELOW
    count = -(-len(plots) // IN_A_ROW)
    width, height = across * min(IN_A_ROW, max(len(plots), 1)), 24 + down * count
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        "<title>Time of pruned layers, as a part of the dense form's, over the share of zeros</title>",
    ]
    for at, form in enumerate(forms):
        x = LEFT + 110 * at
        parts.append(f'<rect x="{x}" y="7" width="10" height="10" fill="{colours[form]}"/>')
        parts.append(f'<text x="{x + 14}" y="16">{escape(form)}</text>')
    for at, ((layer, batch), lines) in enumerate(plots.items()):
        x, y = LEFT + across * (at % IN_A_ROW), 24 + ABOVE + down * (at // IN_A_ROW)
        parts.append(f'<g transform="translate({x},{y})">')
        parts.append(f'<text x="0" y="-8" font-weight="bold">{escape(layer)}, batch {batch}</text>')
        parts += _plot(lines, colours, shares)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _plot(lines: Mapping[str, Sequence[Row]], colours: Mapping[str, str], shares: Sequence[float]) -> list[str]:
    top = max([1.0, *(row.ratio for rows in lines.values() for row in rows)]) * 1.05
    low, high = shares[0], shares[-1]

    def place(share: float, ratio: float) -> tuple[float, float]:
        along = (share - low) / (high - low) if high > low else 0.5
        return round(8 + (WIDE - 16) * along, 1), round(HIGH * (1 - ratio / top), 1)

    parts = [f'<path d="M0 0V{HIGH}H{WIDE}" fill="none" stroke="#888"/>']
    for step in STEPS:
        _, y = place(low, step)
        dash = "" if step < 1 else ' stroke-dasharray="3 3"'
        parts.append(f'<path d="M0 {y}H{WIDE}" stroke="#ccc"{dash}/><text x="-22" y="{y + 3}">{step:g}</text>')
    for share in shares:
        x, _ = place(share, 0)
        parts.append(f'<text x="{x}" y="{HIGH + 14}" text-anchor="middle">{share:.0%}</text>')
    for form, rows in lines.items():
        points = [(*place(row.share, row.ratio), row) for row in sorted(rows, key=lambda row: row.share)]
        path = " ".join(f"{x},{y}" for x, y, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[form]}" stroke-width="1.5"/>')
        for x, y, row in points:
            fill = colours[form] if row.leaves_out else "#fff"
            said = f"{form}, {row.share:.0%} zeros: {row.ratio:.2f} by {row.taken}"
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{fill}" stroke="{colours[form]}">')
            parts.append(f"<title>{escape(said)}</title></circle>")
    return parts
