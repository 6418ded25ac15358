"""Blocks of networks of the literature as scheduling problems.

Their kernels after fusion, with seconds measured on one core.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.schedule.problem import Problem

HANDOVER_S = 0.55e-6
"""Between two neighbouring cores, with waking up to the task."""


@dataclass(frozen=True)
class Cell:
    """Predecessors, microseconds on one lane, and tile tasks of each call."""

    before: tuple[tuple[int, ...], ...]
    microseconds: tuple[float, ...]
    tiles: tuple[int, ...]

    def on(self, lanes: int) -> Problem:
        """Lanes share the tiles of a call evenly, as far as these can be shared."""
        seconds = tuple(
            tuple(_seconds(alone, tiles, n) for n in range(1, lanes + 1))
            for alone, tiles in zip(self.microseconds, self.tiles, strict=True)
        )
        return Problem(self.before, seconds, lanes, HANDOVER_S)


def _seconds(alone: float, tiles: int, lanes: int) -> float | None:
    return alone * 1e-6 * -(-tiles // lanes) / tiles + 2 * HANDOVER_S * (lanes > 1) if lanes <= tiles else None


MIXED_5B = Cell(
    before=((), (0,), (), (2,), (3,), (), (), (6,)),
    microseconds=(81.9, 198.4, 109.6, 183.9, 271.2, 109.6, 35.0, 54.6),
    tiles=(6, 6, 6, 2, 2, 6, 5, 6),
)
"""Inception V3's first block: four branches."""

MIXED_6B = Cell(
    before=((), (0,), (1,), (), (3,), (4,), (5,), (6,), (), (), (9,)),
    microseconds=(208.1, 124.8, 187.8, 208.1, 124.7, 124.8, 124.7, 186.1, 309.6, 25.7, 309.6),
    tiles=(6, 6, 6, 6, 6, 6, 6, 6, 12, 3, 12),
)
"""Inception V3's first block of 1x7 and 7x1 convolutions."""

MIXED_7B = Cell(
    before=((), (0,), (0,), (), (3,), (4,), (4,), (), (), (8,)),
    microseconds=(235.0, 134.8, 137.7, 267.6, 383.2, 134.8, 137.7, 205.3, 10.6, 117.2),
    tiles=(2, 2, 2, 2, 2, 2, 2, 2, 2, 2),
)
"""Inception V3's first block of branches that fork again."""

NORMAL_CELL = Cell(
    before=(
        (),
        (0,),
        (1,),
        (2,),
        (),
        (4,),
        (5,),
        (6,),
        (7,),
        (3, 8),
        (4,),
        (10,),
        (11,),
        (4,),
        (13,),
        (14,),
        (15,),
        (12, 16),
        (0, 4, 9, 17),
        (4, 9, 17, 18),
        (0,),
        (20,),
        (21,),
        (0, 22),
        (4, 9, 17, 18, 19, 23),
    ),
    microseconds=(
        74.0,
        7.2,
        12.4,
        7.2,
        74.0,
        3.0,
        12.4,
        3.0,
        12.4,
        12.7,
        7.2,
        12.4,
        7.2,
        3.0,
        12.4,
        3.0,
        12.4,
        12.7,
        3.2,
        2.5,
        3.0,
        12.4,
        3.0,
        12.7,
        21.3,
    ),
    tiles=(4, 7, 2, 7, 4, 7, 2, 7, 2, 2, 7, 2, 7, 7, 2, 7, 2, 2, 4, 4, 7, 2, 7, 2, 51),
)
"""A normal cell of NASNet-A mobile, of the first stage."""

REDUCTION = Cell(
    before=((), (), (1,), (0,), (3,), ()),
    microseconds=(15.6, 1.8, 8.2, 1.9, 8.2, 3.5),
    tiles=(57, 28, 2, 28, 2, 17),
)
"""What is left of a reduction cell of NASNet-A mobile between two cuts."""

RANDWIRE = Cell(
    before=(
        (),
        (),
        (1,),
        (),
        (3,),
        (),
        (2, 5),
        (6,),
        (7,),
        (4,),
        (9,),
        (10,),
        (),
        (0, 11, 12),
        (13,),
        (14,),
        (11, 15),
        (16,),
        (),
        (16, 18),
        (13, 19),
        (20,),
        (21,),
        (20,),
        (17, 23),
        (24,),
        (25,),
    ),
    microseconds=(
        6.3,
        21.2,
        6.3,
        21.2,
        6.3,
        34.5,
        37.8,
        6.3,
        36.7,
        36.7,
        6.3,
        37.5,
        15.4,
        43.4,
        6.3,
        36.7,
        47.0,
        6.3,
        36.7,
        42.0,
        43.4,
        6.3,
        36.7,
        15.4,
        37.8,
        6.3,
        36.7,
    ),
    tiles=(7, 15, 7, 15, 7, 15, 2, 7, 4, 4, 7, 4, 15, 2, 7, 4, 4, 7, 4, 4, 2, 7, 4, 15, 2, 7, 4),
)
"""A part of the second stage of RandWire small."""


def nasnet_large(repeats: int = 6) -> Cell:
    """NASNet-A large as its kernels before elementwise fusion, with round times.

    Three rows of normal cells, between them reductions.

    Each cell reads the two before it, so that no cut leaves one tensor live.
    """
    network = _Network()
    last, before_last = network.add(400.0, 8), network.add(400.0, 8)
    for row, scale in enumerate((1.0, 0.6, 0.4)):
        for _ in range(repeats + (row == 2)):
            before_last, last = last, network.cell(before_last, last, scale)
        if row < 2:
            before_last, last = last, network.reduction(before_last, last, scale)
    network.add(50.0, 4, last)
    return Cell(tuple(network.before), tuple(network.microseconds), tuple(network.tiles))


class _Network:
    def __init__(self) -> None:
        self.before: list[tuple[int, ...]] = []
        self.microseconds: list[float] = []
        self.tiles: list[int] = []

    def add(self, microseconds: float, tiles: int, *reads: int) -> int:
        self.before.append(tuple(sorted({*reads})))
        self.microseconds.append(microseconds)
        self.tiles.append(tiles)
        return len(self.before) - 1

    def separable(self, read: int, size: int, scale: float) -> int:
        """Twice: activation, depthwise and pointwise convolution."""
        for _ in range(2):
            active = self.add(8.0 * scale, 11, read)
            wide = self.add((20.0 if size == 3 else 45.0) * scale, 42, active)
            read = self.add(160.0 * scale, 6, wide)
        return read

    def cell(self, older: int, newer: int, scale: float) -> int:
        """Five pairs and the tensor that they are written into."""
        h = self.add(150.0 * scale, 6, self.add(9.0 * scale, 12, newer))
        p = self.add(150.0 * scale, 6, self.add(9.0 * scale, 12, older))
        pairs = (
            (self.separable(h, 3, scale), h),
            (self.separable(p, 3, scale), self.separable(h, 5, scale)),
            (self.add(12.0 * scale, 11, h), p),
            (self.add(12.0 * scale, 11, p), p),
            (self.separable(p, 5, scale), self.separable(p, 3, scale)),
        )
        sums = [self.add(6.0 * scale, 11, *pair) for pair in pairs]
        return self.add(30.0 * scale, 50, *sums, p)

    def reduction(self, older: int, newer: int, scale: float) -> int:
        h = self.add(150.0 * scale, 6, self.add(9.0 * scale, 12, newer))
        p = self.add(150.0 * scale, 6, self.add(9.0 * scale, 12, older))
        first = self.add(6.0 * scale, 11, self.separable(h, 5, scale), self.separable(p, 5, scale))
        second = self.add(6.0 * scale, 11, self.add(10.0 * scale, 11, h), self.separable(p, 5, scale))
        third = self.add(6.0 * scale, 11, self.add(10.0 * scale, 11, h), self.separable(p, 3, scale))
        fourth = self.add(6.0 * scale, 11, self.add(10.0 * scale, 11, h), self.separable(first, 3, scale))
        fifth = self.add(6.0 * scale, 11, self.add(10.0 * scale, 11, first), second)
        return self.add(25.0 * scale, 25, second, third, fourth, fifth)
