"""Tile: how one kernel is carried out on a memory hierarchy. Menu: the variants of a kernel worth having."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from compiler.ir.once import Nested, once

T = TypeVar("T")


HIERARCHY = ("lane", "grid", "cluster", "L2", "L1", "block", "warp", "thread", "register", "fragment", "vector")
"""The names of levels, outermost first: the order in which a tile keeps them, whatever the order they were given in."""
ROLES = ("m", "n", "k")
"""The axes of a contraction, in the order in which a level keeps them, before all others."""
_LEVELS, _AXES = ({name: at for at, name in enumerate(names)} for names in (HIERARCHY, ROLES))


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy and how much of each axis is worked on there.

    Names are `lane`, `L2`, `L1`, `block`, `register`, `vector` on a CPU and `grid`, `cluster`, `block`, `warp`,
    `thread`, `fragment` on a GPU. Axes are the kernel's, or the roles `m`, `n`, `k` of a contraction; they are kept in
    the order of ROLES, others by name. `transform` of the `winograd` algorithm states the outputs of a tile along y and
    x, the outer and the inner axis it sweeps.
    """

    name: str
    extents: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", _ordered(self.extents, _AXES, lambda extent: extent[0]))

    def __str__(self) -> str:
        return f"{self.name}({' '.join(f'{axis}:{extent}' for axis, extent in self.extents)})"


@dataclass(frozen=True)
class Tile(Nested):
    """An algorithm (`loops`, `contraction`) and its blocking; `scopes` says where each temporary lives.

    Levels are kept in the order of HIERARCHY, those it does not name after them, by name; scopes by name. So a tile
    that went through a store which does not keep the order of keys (PostgreSQL's JSONB) is still equal to itself.
    """

    algorithm: str
    levels: tuple[Level, ...] = ()
    scopes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _ordered(self.levels, _LEVELS, lambda level: level.name))
        object.__setattr__(self, "scopes", tuple(sorted(self.scopes)))

    @once
    def _hash(self) -> int:
        return hash((self.algorithm, self.levels, self.scopes))

    def __hash__(self) -> int:
        return self._hash

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
        """Reads `to_json` back to an equal Tile, in whatever order its keys come.

        Raises KeyError or ValueError on anything else.
        """
        levels, scopes = _mapping(plain, "levels"), _mapping(plain, "scopes")
        return Tile(
            str(plain["algorithm"]),
            tuple(
                Level(name, tuple((axis, int(extent)) for axis, extent in _mapping(levels, name).items()))
                for name in levels
            ),
            tuple((temp, str(scope)) for temp, scope in scopes.items()),
        )

    def __str__(self) -> str:
        scopes = "".join(f" {temp}@{scope}" for temp, scope in self.scopes)
        return f"{self.algorithm} {' '.join(map(str, self.levels))}{scopes}".rstrip()


def _ordered(items: tuple[T, ...], known: Mapping[str, int], name: Callable[[T], str]) -> tuple[T, ...]:
    """Items named in `known` by its numbers, then the others by name."""
    if len(items) < 2:
        return items
    last = len(known)
    return tuple(sorted(items, key=lambda item: (known.get(name(item), last), name(item))))


def _mapping(plain: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if not isinstance(plain[key], Mapping):
        raise ValueError(f"{key!r} of a tile is no mapping")
    return plain[key]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Cost:
    """Seconds, and where the number comes from: `measured`, `record` or `model`."""

    seconds: float
    source: str

    @property
    def is_modelled(self) -> bool:
        """Whether it is an estimate: nobody measured it, neither now nor before."""
        return self.source == "model"


@dataclass(frozen=True)
class Variant:
    """A kernel carried out one way by a number of lanes, which share its `tiles` tile tasks.

    `row_blocks` says into how many blocks of an image's rows these are cut before anything else; 1 where that is not
    so, or not known. Lanes that share kernels by rows mostly read what they wrote themselves.
    """

    tile: Tile
    tiles: int
    lanes: int
    cost: Cost
    row_blocks: int = 1


@dataclass(frozen=True)
class Menu:
    """The variants of one kernel worth having, best first; `workload` is the key under which records of it are kept."""

    workload: str
    variants: tuple[Variant, ...]

    @property
    def best(self) -> Variant:
        """The first variant. Raises IndexError where there is none."""
        return self.variants[0]
