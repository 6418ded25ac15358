"""Sets of calls or nodes as the bits of an int."""

from __future__ import annotations


def bits(members: int) -> list[int]:
    """The members of a set, ascending."""
    found = []
    while members:
        least = members & -members
        found.append(least.bit_length() - 1)
        members ^= least
    return found
