"""Indented C text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines of C; `block` opens braces and indents. `headers` are what they need beside what all have."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.headers: set[str] = set()
        self._depth = 0
        self._named = 0

    def line(self, text: str = "") -> None:
        """Adds a line at the present depth; an empty one is not indented."""
        self.lines.append("    " * self._depth + text if text else "")

    def include(self, header: str) -> None:
        """Says that a line calls what this header declares; `text` does not include it."""
        self.headers.add(header)

    def name(self, prefix: str) -> str:
        """An identifier not used before in this text."""
        self._named += 1
        return f"{prefix}_{self._named}"

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Lines in the body are between `head {` (or `{`) and `tail`, one level deeper."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    def text(self) -> str:
        """All lines, each with its line feed."""
        return "\n".join(self.lines) + "\n"
