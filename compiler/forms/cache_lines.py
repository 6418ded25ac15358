"""Cache lines, as the CPUs of all targets have them: what is fetched at once, and which addresses conflict."""

from __future__ import annotations

LINE_BYTES = 64
ALIAS_BYTES = 4096
"""Addresses that lie a multiple of this apart share a set of the first-level cache: 64 sets of one line."""
LINE = LINE_BYTES // 4
"""Floats of a line."""
ALIAS = ALIAS_BYTES // 4
"""Floats from one address to the next that shares its set."""


def whole_lines(octets: int) -> int:
    """So many bytes, rounded up to whole lines."""
    return -(-octets // LINE_BYTES) * LINE_BYTES
