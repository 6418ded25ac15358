"""States of a program: outputs that are inputs of its next run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Carried:
    """An output of a program that is an input of its next run, by their positions.

    in_place  whether both may be one memory under every plan of the program, so that a run writes over what it read
    axis      of a cache to which each run appends, the axis along which it does
    rows      of the length of such caches, what a run adds to it; 0 for every other state
    room      the most that this length may be
    """

    output: int
    input: int
    in_place: bool = False
    axis: int | None = None
    rows: int = 0
    room: int = 0
