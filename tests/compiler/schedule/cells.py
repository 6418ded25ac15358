"""Blocks of networks of the literature as scheduling problems: their kernels after fusion, with seconds measured on one core."""

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
            tuple(alone * 1e-6 * -(-tiles // n) / tiles if n <= tiles else None for n in range(1, lanes + 1))
            for alone, tiles in zip(self.microseconds, self.tiles, strict=True)
        )
        return Problem(self.before, seconds, lanes, HANDOVER_S, 2 * HANDOVER_S)


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
