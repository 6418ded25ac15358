"""How a kernel's C computes and keeps values, where that is not to the letter of its expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.ir.expr import Apply, Const, Expr
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType

SHORT_FORMS = frozenset(("erf", "sigmoid"))
"""Functions with a faster form for results that are rounded to bf16."""


@dataclass(frozen=True)
class Numerics:
    """What a printer of expressions must know of them beside their text.

    elements    by the name of a C pointer the dtype of what lies behind it, where expressions compute with another
    rounds      everything that is stored is rounded to bf16: functions need to be no closer
    folds_gelu  where that is so, Gelu is one function, without erf
    """

    elements: Mapping[str, DType] = field(default_factory=dict)
    rounds: bool = False
    folds_gelu: bool = False

    @staticmethod
    def of(workload: Workload) -> Numerics:
        """Of a kernel whose slots' pointers have the slots' names."""
        kernel, buffers = workload.kernel, (*workload.inputs, *workload.outputs)
        elements = {
            slot.name: buffer.element
            for slot, buffer in zip((*kernel.inputs, *kernel.outputs), buffers, strict=True)
            if buffer.element is not None
        }
        return Numerics(elements, all(buffer.element is DType.BF16 for buffer in workload.outputs))

    def function(self, expr: Apply) -> tuple[str, tuple[Expr, ...]]:
        """The name of the function of vectors that computes an application closely enough, and its arguments."""
        if self.rounds and self.folds_gelu and (x := gelu_of(expr)) is not None:
            return "gelu_bf16", (x,)
        return f"{expr.function}{'_bf16' if self.rounds and expr.function in SHORT_FORMS else ''}", expr.args


EXACT = Numerics()
"""To the letter."""


def gelu_of(expr: Expr) -> Expr | None:
    """The x of x / 2 (1 + erf(x sqrt(1/2))), as Gelu is defined; None for anything else."""
    match expr:
        case Apply(
            "mul", (Apply("mul", (x, Const(value=0.5))), Apply("add", (Apply("erf", (scaled,)), Const(value=1))))
        ):
            return x if scaled == Apply("mul", (x, Const(math.sqrt(0.5), DType.F32))) else None
    return None
