"""What a program in PTX does that the manual leaves undefined, or that is not known here."""

from __future__ import annotations


class Fault(Exception):
    """`kind` is one word: misaligned, out-of-bounds, uninitialised, race, divergence, deadlock, syntax, unknown, ..."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
