"""Numbers and foreign text as people read them."""

from __future__ import annotations

import html
import unicodedata

LONGEST = 160
"""Characters of a name that are shown."""
ROUNDED = 0.9995
"""What is shown in three digits as 1."""


def visible(text: str, longest: int = LONGEST) -> str:
    """Text from a model with what cannot be seen, or must not be in XML, spelled as `\\uXXXX`, and cut to a length."""
    shown = "".join(
        character
        if unicodedata.category(character)[0] not in "C" and character not in "\u2028\u2029"
        else _spelled(character)
        for character in text[:longest]
    )
    return shown + ("…" if len(text) > longest else "")


def escaped(text: str, longest: int = LONGEST) -> str:
    """`visible` text for HTML and XML, in elements and in quoted attributes."""
    return html.escape(visible(text, longest))


def duration(seconds: float) -> str:
    """Three significant digits in ns, µs, ms or s."""
    unit, scale = time_unit(seconds)
    return f"{_three(seconds / scale)} {unit}"


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which a time is best shown, and its length in seconds."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    return next(((unit, scale) for unit, scale in units if seconds >= ROUNDED * scale), ("ns", 1e-9))


def size(count: int) -> str:
    """Bytes in B, KiB, MiB or GiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{_three(count / scale)} {unit}"
    return f"{count} B"


def quantity(count: float, unit: str) -> str:
    """A count with a decimal prefix: `1.23 GFLOP`."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{_three(count / scale)} {prefix}{unit}"
    return f"{_three(count)} {unit}"


def plural(count: int, noun: str) -> str:
    """`1 lane`, `2 lanes`, `2 launches`."""
    ending = "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{count} {noun}{'' if count == 1 else ending}"


def _three(value: float) -> str:
    return (
        f"{value:.0f}"
        if value >= 99.95 or abs(value - round(value)) < 1e-9
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
    )


def _spelled(character: str) -> str:
    return f"\\u{ord(character):04x}"
