"""Attention of few queries cut into parts of its keys, where its heads do not keep all lanes busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from compiler.fuse.attention.key_parts import in_key_parts
from compiler.fuse.joins import ChosenJoins
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.tile import Cost, Menu, Variant
from compiler.tuning.menus import Tiler
from compiler.tuning.shared import divided
from compiler.tuning.tune import propose, workload_key

MOST = 16
"""Parts that are tried at most."""
LEAST_GAIN = 0.05
"""Of the time of the call, shared by the lanes; less is lost where a cache is far from full."""


@dataclass(frozen=True)
class KeyCuts:
    """By what it is decided which calls are cut: tiles with their costs, and lanes, which take seconds to meet."""

    tiler: Tiler
    workload_of: Callable[[KernelGraph, Call], Workload]
    precision: str
    lanes: int
    meeting_s: float

    def cut(self, settled: ChosenJoins) -> ChosenJoins:
        """The kernels with each call in as many parts as make it fastest, which may be one; menus go with their calls.

        The parts cost together what the call was measured, or thought, to take.
        """
        for call, menu in zip(settled.kernels.calls, settled.menus, strict=True):
            alone_s = divided(menu.best, self.lanes)
            found = min(self._cuts(settled, call, menu), key=lambda one: one.seconds, default=None)
            if found is not None and found.seconds < (1 - LEAST_GAIN) * alone_s:
                settled = found.settled
        return settled

    def _cuts(self, settled: ChosenJoins, call: Call, menu: Menu) -> Iterator[_Cut]:
        """Those in which the lanes have more equal shares than in fewer parts, with the same algorithm."""
        best, kernels = menu.best, settled.kernels
        alone_s = divided(best, self.lanes)
        for count in range(2, MOST + 1):
            parts_s = divided(replace(best, tiles=count * best.tiles), self.lanes)
            if parts_s >= alone_s:
                continue
            alone_s, cut = parts_s, in_key_parts(kernels, call, count)
            if cut is None:
                return
            at, buffers = kernels.calls.index(call), {**kernels.buffers, **{one.id: one for one in cut.buffers}}
            calls = (*kernels.calls[:at], cut.parts, cut.whole, *kernels.calls[at + 1 :])
            changed = replace(kernels, buffers=buffers, calls=calls)
            parts, whole = self._menu(changed, cut.parts), self._menu(changed, cut.whole)
            if parts.best.tile.algorithm == best.tile.algorithm:
                parts = replace(parts, variants=(replace(parts.best, cost=best.cost),))
                menus = (*settled.menus[:at], parts, whole, *settled.menus[at + 1 :])
                seconds = sum(divided(one.best, self.lanes) for one in (parts, whole)) + self.meeting_s
                yield _Cut(replace(settled, kernels=changed, menus=menus), seconds)

    def _menu(self, kernels: KernelGraph, call: Call) -> Menu:
        """With the tile that the model thinks best alone."""
        workload = self.workload_of(kernels, call)
        best, *_ = propose(self.tiler.legal_tiles, workload, self.lanes, precision=self.precision)
        tiles = self.tiler.count_tiles(workload, best.tile)
        return Menu(
            workload_key(workload), (Variant(best.tile, tiles, 1, Cost(best.seconds, "model"), best.row_blocks),)
        )


@dataclass(frozen=True)
class _Cut:
    """All kernels with a call in parts, and seconds of these with all lanes."""

    settled: ChosenJoins
    seconds: float
