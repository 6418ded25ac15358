"""Operands of fp32 contractions rounded to bf16, with sums in fp32 (VDPBF16PS, BFDOT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.codegen.expressions import Emitter
from compiler.devices.cpu.codegen.epilogue import MAX_MAPS, SIMPLE
from compiler.devices.cpu.products.dot import DotContraction, DotProduct, DotStep, Shape, SingleRows, Staged, Step
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

FINISH_NS = 0.6
"""One vector of sums through the maps that follow, which are few, and to memory as bf16."""
FEW_STEPS = 16
"""Of sums beside which what follows takes long."""


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


def bf16(name: str, workload: Workload, tile: Tile, target: CpuTarget, by: Step | None = None) -> DotContraction:
    """A kernel that `as_contraction` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n.

    `by` is its inner kernel; None: by dot products.
    """
    view = as_contraction(workload)
    assert view is not None, "the tile stage offers `bf16` only to fp32 contractions"
    shape = Shape.of(tile, view, target)
    packing = packed_ahead(workload, shape.panel)
    panels = Panels((0,), view.depth, view.columns, shape.panel, ())
    groups = packing[1] if packing else Groups(panels, DType.BF16)
    slots, staged = Slots(workload), staged_of(view.a)
    operands = (packing, groups, staged, row_step(view, slots), held(target), by or DotStep(), SingleRows())
    return DotContraction(name, workload, view, slots, shape, target, *operands)


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


@dataclass(frozen=True)
class Bf16:
    """Operands rounded to bf16, sums in fp32."""

    folds_gelu: bool
    total = DType.F32
    suffix = "bf16"
    lone_group = "tw_lone_group"
    dot = "tw_dot_bf16"

    def in_registers(self, product: DotContraction) -> bool:
        """Where few cheap maps follow."""
        values = [value for block in product.view.epilogue for value in block.values]
        parts = [part for value in values for part in value.walk() if not isinstance(part, Load | Const)]
        return len(parts) <= MAX_MAPS and all(isinstance(part, Apply) and part.function in SIMPLE for part in parts)

    def copy(self, product: DotContraction, to: str, source: str, count: str, emitter: Emitter) -> str:
        """Copied or rounded."""
        assert product.staged.source is not None
        if product.slots.buffers[product.staged.source.slot].element is DType.BF16:
            return f"memcpy({to}, {source}, ({count}) * sizeof *row);"
        return f"tw_copy_bf16({to}, {source}, {count});"

    def fill(self, product: DotContraction, to: str, count: str, emitter: Emitter) -> str:
        """Zeros."""
        return f"memset({to}, 0, ({count}) * sizeof *row);"

    def element_of(self, value: str) -> str:
        """An fp32 value rounded to bf16."""
        return f"tw_to_bf16({value})"

    def lane_of(self, values: Sequence[str]) -> str:
        """A pair of values as one lane of 32 bits."""
        return f"tw_pair_bf16({', '.join(values)})"

    def b(self, product: DotContraction) -> Expr:
        """The second operand as it is read."""
        return product.view.b

    def extra_bytes(self, product: DotContraction) -> int:
        """None: there are no zero points."""
        return 0

    def after_row(self, product: DotContraction) -> None:
        """Nothing more is kept."""

    def column_terms(self, product: DotContraction, emitter: Emitter, column: str) -> None:
        """Nothing is to be corrected."""

    def corrected(self, product: DotContraction, emitter: Emitter, value: str) -> str:
        """The sums as they are."""
        return value


def held(target: CpuTarget) -> Bf16:
    """In which form operands are held; beside tiles of AMX GELU is as it is elsewhere."""
    return Bf16(folds_gelu=not target.has_tiles)
