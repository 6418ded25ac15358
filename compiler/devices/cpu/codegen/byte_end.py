"""Maps after a product that end in bytes: a float that is rounded to bytes, and perhaps a function of that byte.

A quantised network rounds before an activation and after it. What lies between two roundings is a function of one byte,
and so a table of 256, however it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.codegen.expressions import quantised, table_index
from compiler.ir.arithmetic import bounds
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

BYTES = (DType.U8, DType.I8)
TYPES = (DType.F32, DType.I32, DType.BOOL, *BYTES)
"""In which a function of a byte may be written."""
SIZE = 256
ROUNDED_ALIKE = frozenset(
    ["add", "sub", "mul", "div", "min", "max", "neg", "abs", "round", "lt", "le", "gt", "ge", "eq", "ne", "and", "or"]
)
"""Functions that give the same here as in any kernel, bit by bit."""


@dataclass(frozen=True)
class ByteEnd:
    """Where the last of some maps ends in bytes.

    maps   those before `value`, an fp32 that is rounded to bytes of `dtype` with the zero point `zero`
    store  where the last result goes, of the type `result`
    table  that result for each byte, in ascending order: numbers, or the load of an element of such a table in memory;
           None where the byte itself is the result
    """

    maps: tuple[Block, ...]
    value: Expr
    dtype: DType
    zero: int
    store: Store
    result: DType
    table: np.ndarray | Load | None = None


def byte_end(maps: Sequence[Block], kept: frozenset[str], *, tables: bool) -> ByteEnd | None:
    """How maps end in bytes; None where they do not.

    kept    slots in memory: what lies between the last rounding but one and the end must not be stored there
    tables  functions of a byte may become tables
    """
    if not maps or len(maps[-1].stores) > 1:
        return None
    (store,), (value,) = maps[-1].stores, maps[-1].values
    if value.dtype not in BYTES or store.slot not in kept:
        return None
    if tables:
        for at in range(len(maps) - 1):
            table = _after(maps, at, kept)
            if table is not None:
                (rounded,) = maps[at].values
                real = quantised(rounded)
                assert real is not None
                return ByteEnd((*maps[:at],), real[0], rounded.dtype, real[1], store, value.dtype, table)
    real = quantised(value)
    return ByteEnd((*maps[:-1],), real[0], value.dtype, real[1], store, value.dtype) if real else None


def _after(maps: Sequence[Block], at: int, kept: frozenset[str]) -> np.ndarray | Load | None:
    """What follows map number `at` as a table of its byte; None where that is no byte, or what follows none of it."""
    between = maps[at:-1]
    if any(len(block.stores) > 1 or block.stores[0].slot in kept for block in between):
        return None
    (rounded,), (where,) = maps[at].values, maps[at].stores
    if rounded.dtype not in BYTES or quantised(rounded) is None:
        return None
    byte = Load(where.slot, where.index, rounded.dtype)
    whole: dict[Expr, Expr] = {}
    for block in maps[at + 1 :]:
        (value,), (store,) = block.values, block.stores
        value = value.transform(lambda expr: whole.get(expr, expr))
        whole[Load(store.slot, store.index, value.dtype)] = value
    if isinstance(value, Load) and table_index(value) == byte:
        return value
    return _computed(value, byte)


def _computed(value: Expr, byte: Load) -> np.ndarray | None:
    """An expression for each value of a byte; None where it reads anything else, or a function that rounds its way."""
    place = Axis("byte", SIZE)
    given = Load("x", (Index.of(place),), byte.type)
    expr = value.transform(lambda one: given if one == byte else one)
    if expr.axes != {place} or {*expr.loads} != {given}:
        return None
    if any(isinstance(part, Apply) and part.function not in ROUNDED_ALIKE for part in expr.walk()):
        return None
    if any(part.dtype not in TYPES for part in expr.walk()):
        return None
    slots = (Slot("x", TensorType(byte.type, (SIZE,))), Slot("y", TensorType(value.dtype, (SIZE,))))
    block = Block((), (expr,), (Store("y", (Index.of(place),)),))
    low = bounds(byte.type)[0]
    (found,) = evaluate(
        Kernel("table", slots[:1], slots[1:], (block,), shared=(place,)),
        [np.arange(low, low + SIZE).astype(byte.type.numpy)],
    )
    return found
