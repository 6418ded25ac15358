"""Products of bytes and of bf16 by weights of which a good part is zero: `integer` and `bf16` without the zeros.

`sparse_integer` and `sparse_bf16` go through the groups of a panel that are not zero for all of its columns
(`compiler.encodings.blocks`). The others go through steps in which each column has a group of weights from anywhere in
a window of a row, whose elements its lane picks (`compiler.encodings.picks`): `sparse_near_integer` and
`sparse_near_bf16` out of 16 bytes, which is the faster instruction, `sparse_far_integer` and `sparse_far_bf16` out of
64, which leaves fewer steps. How many are left depends on the width of panels, and tiles are offered for the widths
that an encoding tells of. Sums of bytes stay exact. Of bf16 holds what holds of `sparse`, but that a lane without a
weight in a window multiplies some element of it by zero: a NaN or an infinity need not reach results to which only zero
weights link it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.products.dot import DotContraction, DotProduct, bf16, integer
from compiler.devices.cpu.target import FAR_BYTES, NEAR_BYTES, CpuTarget
from compiler.encodings.blocks import WIDTHS, Blocks
from compiler.encodings.picks import Picks
from compiler.encodings.zeros import CLASSES
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.forms.kept_groups import KeptGroups, PickedGroups, PlacedSteps, block_fill, pick_fill
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

MOST_WIDTH = max(WIDTHS)
"""Columns of the widest panels."""
PICK_STEPS = {NEAR_BYTES: 0.3, FAR_BYTES: 1.0}
"""What picking a group for each lane costs beside a step of the dense form, by the bytes of the window."""

Steps = Callable[[Workload, int, Groups, CpuTarget], PlacedSteps | None]
"""How a constant B at a position is packed without zeros; None where its encodings say nothing of them."""
Fills = tuple[tuple[int, int], ...]
"""How many steps there are, in 1 / CLASSES of the dense form's, by the columns of a panel."""


@dataclass(frozen=True)
class _SparseProduct(DotProduct):
    """With panels of fewer steps.

    window_bytes  what a step reads of a row to pick from; 0 where it reads a group
    """

    fills: Fills = ()
    window_bytes: int = 0

    def widths(self, least: int, target: CpuTarget) -> Iterator[int]:
        """Those whose panels the encoding tells of."""
        return (width // target.vector_floats for width, _ in self.fills)

    def kept(self, panel: int) -> float:
        """The share of steps that such panels have."""
        return dict(self.fills)[panel] / CLASSES

    def sums_ns(self, rows: int, vectors: int, target: CpuTarget) -> float:
        """Nanoseconds of a register tile: also for windows and what is picked from them."""
        if not self.window_bytes:
            return super().sums_ns(rows, vectors, target)
        steps = self.steps * self.kept(vectors * target.vector_floats)
        vector_bytes = LANE_BYTES * target.vector_floats
        loads = (rows * self.window_bytes + 2 * vectors * vector_bytes) / target.rates.l1_per_ns
        return steps * max((1 + PICK_STEPS[self.window_bytes]) * rows * vectors / self.steps_per_ns, loads)


@dataclass(frozen=True)
class _Dense:
    """The algorithm that multiplies every weight: what it is for a workload, how it packs B, and its lowering."""

    product: Callable[[Workload, CpuTarget], DotProduct | None]
    packed: Callable[[Workload, int, CpuTarget], tuple[int, Groups] | None]
    lower: Callable[[str, Workload, Tile, CpuTarget], DotContraction]


def _bf16_ahead(workload: Workload, panel: int, target: CpuTarget) -> tuple[int, Groups] | None:
    return bf16.packed_ahead(workload, panel)


_INTEGER = _Dense(integer.product_of, integer.packed_ahead, integer.integer)
_BF16 = _Dense(bf16.product_of, _bf16_ahead, bf16.bf16)


@dataclass(frozen=True)
class _Sparse:
    """An algorithm that leaves zeros out: its name, the one that does not, and how B is packed."""

    name: str
    dense: _Dense
    steps: Steps

    def tiles(self, workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
        """Tiles m x n of registers, cheapest by the model first; empty for weights without such zeros."""
        if not any(isinstance(one, Blocks | Picks) for each in workload.encodings for one in each):
            return []
        widths = range(target.vector_floats, MOST_WIDTH + 1, target.vector_floats)
        each = {width: self._packing(workload, width, target) for width in widths}
        found = {width: one for width, one in each.items() if one is not None and one.fill < CLASSES}
        product = self.dense.product(workload, target) if found else None
        if product is None:
            return []
        picked = [one.window * one.groups.dtype.bytes for one in found.values() if isinstance(one, PickedGroups)]
        fills = tuple((width, one.fill) for width, one in found.items())
        same = {field.name: getattr(product, field.name) for field in fields(product)}
        sparse = _SparseProduct(**{**same, "algorithm": self.name}, fills=fills, window_bytes=max(picked, default=0))
        return sparse.tiles(target, lanes)

    def lower(self, name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
        """A kernel for which `tiles` proposed the tile."""
        dense = self.dense.lower(name, workload, tile, target)
        packing = self._packing(workload, dense.shape.panel, target)
        assert dense.packing is not None, "tiles are offered only for constants that are packed ahead"
        assert packing is not None, "tiles are offered only where an encoding tells of zeros"
        return replace(dense, packing=(dense.packing[0], packing))

    def _packing(self, workload: Workload, panel: int, target: CpuTarget) -> PlacedSteps | None:
        """B in panels of so many columns; None where its encodings say nothing of them."""
        found = self.dense.packed(workload, panel, target)
        return self.steps(workload, *found, target) if found else None


def _kept(workload: Workload, position: int, groups: Groups, target: CpuTarget) -> KeptGroups | None:
    """B without the groups that are zero for whole panels."""
    dims = workload.kernel.inputs[position].type.dims
    blocks = (one for one in workload.encodings[position] if isinstance(one, Blocks))
    fills = (block_fill(groups, one, dims) for one in blocks)
    fill = next((fill for fill in fills if fill is not None), None)
    return None if fill is None else KeptGroups(groups, fill)


def _picked(window_bytes: int) -> Steps:
    """How B is packed without zeros, where lanes can pick such elements out of a window of so many bytes."""

    def packed(workload: Workload, position: int, groups: Groups, target: CpuTarget) -> PickedGroups | None:
        element = groups.dtype.bytes
        if not target.picks_from(window_bytes, element):
            return None
        dims, window = workload.kernel.inputs[position].type.dims, window_bytes // element
        picks = (one for one in workload.encodings[position] if isinstance(one, Picks))
        fills = (pick_fill(groups, one, dims, window) for one in picks)
        fill = next((fill for fill in fills if fill is not None), None)
        return None if fill is None else PickedGroups(groups, fill, window=window, by_bytes=window_bytes == NEAR_BYTES)

    return packed


def _algorithm(name: str, dense: _Dense, steps: Steps) -> Algorithm:
    one = _Sparse(name, dense, steps)
    return Algorithm((name,), one.tiles, one.lower, *(("bf16", any_short) if dense is _BF16 else ()))


SPARSE_INTEGER = _algorithm("sparse_integer", _INTEGER, _kept)
SPARSE_BF16 = _algorithm("sparse_bf16", _BF16, _kept)
NEAR_INTEGER = _algorithm("sparse_near_integer", _INTEGER, _picked(NEAR_BYTES))
NEAR_BF16 = _algorithm("sparse_near_bf16", _BF16, _picked(NEAR_BYTES))
FAR_INTEGER = _algorithm("sparse_far_integer", _INTEGER, _picked(FAR_BYTES))
FAR_BF16 = _algorithm("sparse_far_bf16", _BF16, _picked(FAR_BYTES))
