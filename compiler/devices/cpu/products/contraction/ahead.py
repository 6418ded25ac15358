"""Panels of a constant that register tiles fetch into a cache before others read them."""

from __future__ import annotations

MOST_SHARING = 256
"""Register tiles of a block that share the fetching of B."""


def share_of(panel: int, tiles: int) -> int:
    """Floats that each step of k fetches of a panel of so many columns, which the tiles of a block share.

    B is read once from beyond the second-level cache, and the hardware's prefetch stops at each page. With many tiles
    it does not matter; with one alone the hardware does better.
    """
    return -(-panel // tiles) if 1 < tiles <= MOST_SHARING else 0


def place_ahead(wanted: str, fetched: int, constant: str, floats: int) -> str:
    """The place, in C, from which a register tile fetches so many floats of a packed constant of `floats`.

    It is `wanted`, or `b`, the panel that is read now, where the constant ends before: to ask for a page that is not
    there costs a walk of the page tables each time, by which a product took up to six times as long (AMD Zen, in a
    virtual machine).
    """
    return f"{wanted} + {fetched}L <= {constant} + {floats}L ? {wanted} : b"
