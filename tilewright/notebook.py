"""What notebooks show of jobs, preflights and benchmarks: small tables, with nothing of a library."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def facts(rows: Mapping[str, str], *, link: str = "") -> str:
    """A table of names and values; empty values are left out. `link` is an address to end with."""
    lines = [
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items() if value
    ]
    if link.startswith(("http://", "https://")):
        address = html.escape(link, quote=True)
        lines.append(f'<tr><th>page</th><td><a href="{address}">{address}</a></td></tr>')
    return f"<table>{''.join(lines)}</table>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line of names above."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    lines = ["<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def lines(texts: Iterable[str]) -> str:
    """A paragraph for each text."""
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def seconds(value: float | None) -> str:
    """Seconds in the unit that people would say; empty for None."""
    if value is None:
        return ""
    name, scale = next((one for one in UNITS if abs(value) >= one[1]), UNITS[-1])
    return f"{value / scale:.4g} {name}"
