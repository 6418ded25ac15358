"""The `sparse_integer` and `sparse_bf16` algorithms: dot products that leave out blocks of weights that are zero.

They are `integer` and `bf16` with panels of B that lack the groups which are zero for all columns of a panel
(`compiler.forms.kept_groups`). So what they gain depends on the width of panels, and tiles are offered for the widths
that an encoding tells of (`compiler.ir.blocks`). Sums of bytes stay exact. Of bf16 holds what holds of `sparse`: a NaN
or an infinity that only zero weights would meet does not reach the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from compiler.devices.cpu.algorithms import bf16, integer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.dot import DotContraction, DotProduct
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.groups import Groups
from compiler.forms.kept_groups import KeptGroups, block_fill
from compiler.ir.blocks import WIDTHS, Blocks
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.ir.zeros import CLASSES
from compiler.tuning.proposal import Proposal

Packed = tuple[int, Groups] | None
"""The position of a constant B, and its groups."""


@dataclass(frozen=True)
class _SparseProduct(DotProduct):
    """With panels that lack groups: what is kept of them, in 1 / CLASSES, by how many columns they have."""

    fills: tuple[tuple[int, int], ...] = ()

    def widths(self, least: int, target: CpuTarget) -> Iterator[int]:
        """Those whose panels the encoding tells of."""
        return (width // target.vector_floats for width, _ in self.fills)

    def kept(self, panel: int) -> float:
        """The share of groups that such panels have."""
        return dict(self.fills)[panel] / CLASSES


def sparse_integer_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for weights without blocks of zeros."""
    packed = _by_width(workload, target, lambda panel: integer.packed_ahead(workload, panel, target))
    product = integer.product_of(workload, target) if packed else None
    return _sparse(product, "sparse_integer", packed).tiles(target, lanes) if product else []


def sparse_bf16_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for weights without blocks of zeros."""
    packed = _by_width(workload, target, lambda panel: bf16.packed_ahead(workload, panel))
    product = bf16.product_of(workload, target) if packed else None
    return _sparse(product, "sparse_bf16", packed).tiles(target, lanes) if product else []


def sparse_integer(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> DotContraction:
    """A kernel for which `sparse_integer_tiles` proposed `tile`."""
    return _without_zeros(integer.integer(name, workload, tile, target))


def sparse_bf16(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> DotContraction:
    """A kernel for which `sparse_bf16_tiles` proposed `tile`."""
    return _without_zeros(bf16.bf16(name, workload, tile, target))


def _sparse(product: DotProduct, algorithm: str, fills: tuple[tuple[int, int], ...]) -> _SparseProduct:
    same = {field.name: getattr(product, field.name) for field in fields(product)}
    return _SparseProduct(**{**same, "algorithm": algorithm}, fills=fills)


def _by_width(workload: Workload, target: CpuTarget, packed: Callable[[int], Packed]) -> tuple[tuple[int, int], ...]:
    """What is kept by panels of whole vectors, where anything is left out."""
    if not any(isinstance(one, Blocks) for each in workload.encodings for one in each):
        return ()
    widths = [width for width in WIDTHS if width % target.vector_floats == 0]
    fills = ((width, _fill(workload, packed(width))) for width in widths)
    return tuple((width, fill) for width, fill in fills if fill is not None and fill < CLASSES)


def _fill(workload: Workload, packed: Packed) -> int | None:
    """What a constant's encodings say that these groups keep; None where they say nothing."""
    if packed is None:
        return None
    position, groups = packed
    dims = workload.kernel.inputs[position].type.dims
    blocks = [one for one in workload.encodings[position] if isinstance(one, Blocks)]
    found = (block_fill(groups, one, dims) for one in blocks)
    return next((fill for fill in found if fill is not None), None)


def _without_zeros(dense: DotContraction) -> DotContraction:
    """The same product by what is kept of its weights."""
    assert dense.packing is not None, "only weights that are packed ahead have zeros to leave out"
    fill = _fill(dense.workload, (dense.packing[0], dense.groups))
    assert fill is not None, "the tile stage offers these algorithms only where an encoding tells of blocks"
    return replace(dense, packing=(dense.packing[0], KeptGroups(dense.groups, fill)))


SPARSE_INTEGER = Algorithm(("sparse_integer",), sparse_integer_tiles, sparse_integer)
SPARSE_BF16 = Algorithm(("sparse_bf16",), sparse_bf16_tiles, sparse_bf16, "bf16", any_short)
