"""What a kernel means in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Cast, Const, Expr, Load
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType


def in_float64(kernel: Kernel, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs of an fp32 kernel whose every number is a double instead."""

    def slots(declared: Sequence[Slot]) -> tuple[Slot, ...]:
        return tuple(replace(slot, type=TensorType(_wide(slot.type.dtype), slot.type.shape)) for slot in declared)

    def expr(part: Expr) -> Expr:
        if isinstance(part, Load):
            return Load(part.slot, part.index, _wide(part.type))
        if isinstance(part, Cast):
            return replace(part, type=_wide(part.type))
        return Const(part.value, _wide(part.type)) if isinstance(part, Const) else part

    def block(old: Block) -> Block:
        stores = tuple(
            Store(s.slot, tuple(i.substitute({}, lambda e: e.transform(expr)) for i in s.index)) for s in old.stores
        )
        accumulator = _wide(old.accumulator) if old.accumulator else None
        return replace(old, values=tuple(v.transform(expr) for v in old.values), stores=stores, accumulator=accumulator)

    wide = replace(
        kernel,
        inputs=slots(kernel.inputs),
        temps=slots(kernel.temps),
        outputs=slots(kernel.outputs),
        blocks=tuple(map(block, kernel.blocks)),
    )
    wide.verify()
    arrays = [array.astype(np.float64) if array.dtype == np.float32 else array for array in inputs]
    with np.errstate(all="ignore"):
        return evaluate(wide, arrays)


def _wide(dtype: DType) -> DType:
    return DType.F64 if dtype is DType.F32 else dtype
