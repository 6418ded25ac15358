"""The `bf16` algorithm: fp32 contractions whose operands are rounded to bf16 and whose products are added in fp32 (VDPBF16PS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler.codegen.c_dot import DotContraction, Shape, Staged
from compiler.codegen.c_expr import Emitter
from compiler.codegen.lowered import Lowering
from compiler.ir.contraction import as_contraction, packing_of
from compiler.ir.expr import Const, Expr, Load
from compiler.ir.groups import Groups
from compiler.ir.machine import Workload
from compiler.ir.normal_form import Slots
from compiler.ir.operand import guarded
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget


def bf16(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_contraction` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n."""
    view = as_contraction(workload)
    assert view is not None, "the tile stage offers `bf16` only to fp32 contractions"
    shape = Shape.of(tile, view, target)
    found = packing_of(view, workload, shape.panel)
    panels = found[1] if found else Panels((0,), view.depth, view.columns, shape.panel, ())
    groups = Groups(panels, DType.BF16)
    packing = (found[0], groups) if found else None
    return _Bf16(name, workload, view, Slots(workload), shape, target, packing, groups, _staged(view.a), 0)


def _staged(a: Expr) -> Staged:
    condition, value = guarded(a)
    return Staged(value, Const(0.0, DType.F32), condition, value if isinstance(value, Load) else None)


@dataclass
class _Bf16(DotContraction):
    dot: ClassVar[str] = "tw_dot_bf16"
    total: ClassVar[DType] = DType.F32
    suffix: ClassVar[str] = "bf16"

    @property
    def b(self) -> Expr:
        return self.view.b

    def copy(self, to: str, source: str, count: str, emitter: Emitter) -> str:
        return f"tw_copy_bf16({to}, {source}, {count});"

    def fill(self, to: str, count: str, emitter: Emitter) -> str:
        return f"memset({to}, 0, ({count}) * sizeof *row);"

    def element_of(self, value: str) -> str:
        return f"tw_to_bf16({value})"

    def lane_of(self, values: Sequence[str]) -> str:
        return f"tw_pair_bf16({', '.join(values)})"
