"""Panels of a constant that register tiles fetch into a cache before others read them."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SHARING = 256
"""Register tiles of a block that share the fetching of B."""


def share_of(panel: int, tiles: int) -> int:
    """Floats that each step of k fetches of a panel of so many columns, which the tiles of a block share.

    B is read once from beyond the second-level cache, and the hardware's prefetch stops at each page. With many tiles
    it does not matter; with one alone the hardware does better.
    """
    return -(-panel // tiles) if 1 < tiles <= MOST_SHARING else 0


@dataclass(frozen=True)
class Ahead:
    """What each register tile fetches of a packed constant.

    Behind its end nothing is: to ask for a page that is not there costs a walk of the page tables each time, by which a
    product took up to six times as long (AMD Zen, in a virtual machine).

    tile      floats that a register tile fetches
    constant  its name in C, and how many `floats` it has
    """

    tile: int
    constant: str
    floats: int

    def place(self, wanted: str) -> str:
        """From where a tile fetches, in C: from `wanted`, or where that leads behind the end from `b` again."""
        return f"{wanted} + {self.tile}L <= {self.constant} + {self.floats}L ? {wanted} : b"
