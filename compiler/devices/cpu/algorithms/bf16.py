"""The `bf16` algorithm: fp32 contractions with operands rounded to bf16 and sums in fp32 (VDPBF16PS, BFDOT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from compiler.codegen.expressions import Emitter
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.contraction.lowering import MAX_MAPS, SIMPLE
from compiler.devices.cpu.algorithms.dot import DotContraction, DotProduct, Shape, Staged
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import ALIAS_BYTES
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.groups import PAIR, Groups
from compiler.forms.normal_form import Slots
from compiler.forms.operand import guarded
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

FINISH_NS = 0.6
"""One vector of sums through the maps that follow, which are few, and to memory as bf16."""
FEW_STEPS = 16
"""Of sums beside which what follows takes long."""


def bf16_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no fp32 contraction."""
    product = product_of(workload, target)
    return finished(product, target).tiles(target, lanes) if product else []


def finished(product: DotProduct, target: CpuTarget) -> DotProduct:
    """The product with what its results take, but beside tiles of AMX, of which the same is not known."""
    return product if target.has_tiles else replace(product, finish_ns=FINISH_NS, few_steps=FEW_STEPS)


def product_of(workload: Workload, target: CpuTarget) -> DotProduct | None:
    """The kernel as dot products see it; None for what is no fp32 contraction, and where no bf16 are multiplied."""
    view = as_contraction(workload)
    if view is None or not target.multiplies_bf16:
        return None
    return DotProduct(
        "bf16",
        view,
        group=PAIR,
        steps_per_ns=target.rates.fma_per_ns * (target.rates.dots_per_fma or 1.0),
        staged=not row_step(view, Slots(workload)),
        packed=packing_of(view, workload, target.vector_floats) is not None,
    )


def bf16(
    name: str, workload: Workload, tile: Tile, target: CpuTarget, lowering: type[Bf16] | None = None
) -> DotContraction:
    """A kernel that `as_contraction` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n."""
    view = as_contraction(workload)
    assert view is not None, "the tile stage offers `bf16` only to fp32 contractions"
    shape = Shape.of(tile, view, target)
    packing = packed_ahead(workload, shape.panel)
    panels = Panels((0,), view.depth, view.columns, shape.panel, ())
    groups = packing[1] if packing else Groups(panels, DType.BF16)
    slots, staged = Slots(workload), staged_of(view.a)
    step = row_step(view, slots)
    return (lowering or Bf16)(name, workload, view, slots, shape, target, packing, groups, staged, step)


def packed_ahead(workload: Workload, panel: int) -> tuple[int, Groups] | None:
    """The position of B and its groups in panels of so many columns; None for what is no product by a constant B."""
    view = as_contraction(workload)
    found = packing_of(view, workload, panel) if view else None
    return (found[0], Groups(found[1], DType.BF16)) if found else None


def row_step(view: Contraction, slots: Slots) -> int:
    """The distance in bytes of the rows of A where they are read in place; 0 where they have to be staged.

    In place are rows that are bf16 in memory, dense along k and of whole groups, of which not all fall into the same
    sets of a cache.
    """
    if not isinstance(view.a, Load) or slots.buffers[view.a.slot].element is not DType.BF16:
        return 0
    if len(view.m) != 1 or len(view.k) != 1 or view.depth % PAIR:
        return 0
    offset = slots.address(view.a.slot, view.a.index)[1]
    step = DType.BF16.bytes * (offset.coefficient(view.m[0]) or 0)
    if offset.coefficient(view.k[0]) != 1 or step <= 0 or step % ALIAS_BYTES == 0:
        return 0
    return step


def staged_of(a: Expr) -> Staged:
    """What rows of A are made of."""
    condition, value = guarded(a)
    return Staged(value, Const(0.0, DType.F32), condition, value if isinstance(value, Load) else None)


@dataclass
class Bf16(DotContraction):
    """Operands rounded to bf16, sums in fp32."""

    total: ClassVar[DType] = DType.F32
    suffix: ClassVar[str] = "bf16"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.writer.folds_gelu = not self.target.has_tiles

    @property
    def in_registers(self) -> bool:
        """Where few cheap maps follow."""
        values = [value for block in self.view.epilogue for value in block.values]
        parts = [part for value in values for part in value.walk() if not isinstance(part, Load | Const)]
        return len(parts) <= MAX_MAPS and all(isinstance(part, Apply) and part.function in SIMPLE for part in parts)

    @property
    def dot(self) -> str:
        """The instruction that adds products of pairs."""
        return "tw_dot_bf16"

    @property
    def b(self) -> Expr:
        """The second operand as it is read."""
        return self.view.b

    def copy(self, to: str, source: str, count: str, emitter: Emitter) -> str:
        """A statement that writes `count` elements of a row as bf16."""
        assert self.staged.source is not None
        if self.slots.buffers[self.staged.source.slot].element is DType.BF16:
            return f"memcpy({to}, {source}, ({count}) * sizeof *row);"
        return f"tw_copy_bf16({to}, {source}, {count});"

    def fill(self, to: str, count: str, emitter: Emitter) -> str:
        """A statement that writes `count` zeros."""
        return f"memset({to}, 0, ({count}) * sizeof *row);"

    def element_of(self, value: str) -> str:
        """An fp32 value rounded to bf16."""
        return f"tw_to_bf16({value})"

    def lane_of(self, values: Sequence[str]) -> str:
        """A pair of values as one lane of 32 bits."""
        return f"tw_pair_bf16({', '.join(values)})"


BF16 = Algorithm(("bf16",), bf16_tiles, bf16, "bf16", any_short)
