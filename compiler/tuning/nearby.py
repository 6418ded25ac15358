"""Records of other kernels and other machines as hints: they say which tiles to try first, never what a tile costs.

A near shape is a workload of the same operator whose shapes differ by at most a factor of two in any dimension. Near
hardware is another machine of the same target, or this one in another setting or with the code of another compiler.
Either tells how far each of its tiles was behind its best.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.machine import Record, Setting
from compiler.ir.tile import Tile
from compiler.knowledge.kinds import KERNEL

NEAR = 1.0
"""Doublings by which a dimension of a near shape may differ."""
INNER = frozenset({"register", "fragment", "vector"})
"""Levels that mean the same on kernels of other extents; outer ones cut a kernel into as many parts as it has."""

SHAPE, DIMENSION = re.compile(r"\[[^\]]*\]"), re.compile(r"[0-9]{1,18}")

Hints = Mapping[Tile, float]
"""By tile: how many times slower it was than the best where it was measured."""


class Nearby:
    """Kernel records of one target, indexed for hints: of this hardware, and of others.

    Tiles are read only where they are asked for.
    """

    def __init__(self, records: Sequence[Record], target: str, hardware: str, setting: Setting) -> None:
        self._elsewhere: dict[str, dict[object, list[Record]]] = defaultdict(lambda: defaultdict(list))
        here: dict[bool, dict[str, list[Record]]] = {False: defaultdict(list), True: defaultdict(list)}
        shapes: dict[tuple[str, str], str] = {}
        for record in records:
            if record.kind != KERNEL.name or record.target != target or record.threads != 1:
                continue
            if record.hardware == hardware and setting.is_like(record):
                here[setting.is_of(record)][record.workload].append(record)
                shapes[record.operator, record.workload] = record.description
            if record.hardware != hardware or not setting.is_of(record):
                place = record.hardware, record.compiler, *(str(record.variant.get(name)) for name in setting.to_json())
                self._elsewhere[record.workload][place].append(record)
        self._here = {**here[False], **here[True]}
        alike: dict[tuple[str, str, int], list[tuple[str, tuple[float, ...]]]] = defaultdict(list)
        for (operator, workload), description in shapes.items():
            skeleton, doublings = _shapes(description)
            alike[operator, skeleton, len(doublings)].append((workload, doublings))
        self._alike = {place: _Alike.of(found) for place, found in alike.items()}

    def hints(self, workload: str, operator: str, description: str, tiles: Sequence[Tile]) -> Hints:
        """What is known of tiles of a workload that was perhaps never measured here.

        It comes from near hardware, else from the nearest shape.
        """
        hints: dict[Tile, float] = {}
        skeleton, doublings = _shapes(description)
        alike = self._alike.get((operator, skeleton, len(doublings)))
        near = alike.nearest(workload, doublings) if alike else None
        if near is not None:
            costs = _costs(self._here[near], _inner)
            hints |= _behind({tile: costs[_inner(tile)] for tile in tiles if _inner(tile) in costs})
        for records in self._elsewhere.get(workload, {}).values():
            costs = _costs(records, lambda tile: tile)
            hints |= _behind({tile: costs[tile] for tile in tiles if tile in costs})
        return hints


@dataclass(frozen=True)
class _Alike:
    """Workloads of one operator and form, and their dimensions in doublings, a row each."""

    workloads: tuple[str, ...]
    doublings: np.ndarray

    @staticmethod
    def of(found: Sequence[tuple[str, tuple[float, ...]]]) -> _Alike:
        return _Alike(tuple(key for key, _ in found), np.array([row for _, row in found], np.float64))

    def nearest(self, workload: str, doublings: tuple[float, ...]) -> str | None:
        """Another workload, the one whose most different dimension differs least; None where none is near."""
        apart = np.abs(self.doublings - np.array(doublings)).max(axis=1, initial=0.0)
        if workload in self.workloads:
            apart[self.workloads.index(workload)] = math.inf
        nearest = int(apart.argmin())
        return self.workloads[nearest] if apart[nearest] <= NEAR else None


def _costs(records: Sequence[Record], part: Callable[[Tile], Tile]) -> Mapping[Tile, float]:
    """The least seconds of each tile, or part of one; a record whose variant is no tile says nothing."""
    costs: dict[Tile, float] = {}
    for record in records:
        try:
            tile = part(Tile.from_json(record.variant))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        costs[tile] = min(record.seconds, costs.get(tile, math.inf))
    return costs


def _behind(costs: Mapping[Tile, float]) -> Hints:
    best = min(costs.values(), default=0.0)
    return {tile: seconds / best for tile, seconds in costs.items()} if best > 0 else {}


def _inner(tile: Tile) -> Tile:
    return Tile(tile.algorithm, tuple(level for level in tile.levels if level.name in INNER), tile.scopes)


def _shapes(description: str) -> tuple[str, tuple[float, ...]]:
    """A description without its dimensions, and these in doublings."""
    dims: list[float] = []

    def take(found: re.Match[str]) -> str:
        dims.extend(math.log2(max(int(dim), 1)) for dim in DIMENSION.findall(found.group()))
        return DIMENSION.sub("#", found.group())

    return SHAPE.sub(take, description), tuple(dims)
