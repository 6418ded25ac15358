"""Tile: how one kernel is carried out on a memory hierarchy. Menu: the variants of a kernel worth having."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy and how much of each axis is worked on there.

    Names are `lane`, `L2`, `L1`, `register`, `vector` on a CPU and `grid`, `cluster`, `block`, `warp`, `thread`, `fragment` on a GPU, outermost first.
    Axes are the kernel's, or the roles `m`, `n`, `k` of a contraction.
    """

    name: str
    extents: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.name}({' '.join(f'{axis}:{extent}' for axis, extent in self.extents)})"


@dataclass(frozen=True)
class Tile:
    """An algorithm (`loops`, `contraction`) and its blocking; `scopes` says where each temporary lives."""

    algorithm: str
    levels: tuple[Level, ...] = ()
    scopes: tuple[tuple[str, str], ...] = ()

    def extent(self, level: str, axis: str, default: int = 0) -> int:
        """How much of an axis one level works on; `default` where the tile does not say."""
        for candidate in self.levels:
            if candidate.name == level:
                for name, extent in candidate.extents:
                    if name == axis:
                        return extent
        return default

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as tuning records carry it."""
        return {
            "algorithm": self.algorithm,
            "levels": {level.name: dict(level.extents) for level in self.levels},
            "scopes": dict(self.scopes),
        }

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Tile:
        """Reads `to_json` back to an equal Tile. Raises KeyError or ValueError on anything else."""
        levels = tuple(
            Level(str(name), tuple((str(axis), int(extent)) for axis, extent in extents.items()))
            for name, extents in plain["levels"].items()
        )
        return Tile(str(plain["algorithm"]), levels, tuple((str(t), str(s)) for t, s in plain["scopes"].items()))

    def __str__(self) -> str:
        scopes = "".join(f" {temp}@{scope}" for temp, scope in self.scopes)
        return f"{self.algorithm} {' '.join(map(str, self.levels))}{scopes}".rstrip()


@dataclass(frozen=True)
class Cost:
    """Seconds, and where the number comes from: `measured`, `record` or `model`."""

    seconds: float
    source: str


@dataclass(frozen=True)
class Variant:
    """A kernel carried out one way by a number of lanes, which share its `tiles` tile tasks."""

    tile: Tile
    tiles: int
    lanes: int
    cost: Cost


@dataclass(frozen=True)
class Menu:
    """The variants of one kernel worth having, best first; `workload` is the key under which records of it are kept."""

    workload: str
    variants: tuple[Variant, ...]

    @property
    def best(self) -> Variant:
        return self.variants[0]
