"""Plain loops: one tile, whose blocking the code generator derives from the kernel's axes."""

from __future__ import annotations

from math import prod

from compiler.ir.expr import Apply, Expr
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.model import CALL_NS, Proposal, read_rate

QUICK = frozenset(
    {"add", "sub", "mul", "min", "max", "neg", "abs", "bit_and", "bit_or", "bit_xor", "bit_not", "lt", "le", "gt", "ge"}
    | {"eq", "ne", "and", "or", "xor", "not", "floor", "ceil", "round", "shift_left", "shift_right", "isnan", "isinf"}
)
"""Functions that are one vector instruction."""
SLOW_OPERATIONS = 12
"""Vector operations that any other function takes."""
OPERATION_NS = 0.5
"""A vector operation of a plain loop: dependent on the one before it, its operands addressed one by one."""
ROUTINE_NS = 10.0
"""One element through a hand-written routine."""


def loop_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The one tile of the `loops` algorithm; for a Routine, its hand-written form."""
    kernel = workload.kernel
    if not isinstance(kernel, Kernel):
        elements = sum(buffer.type.elements for buffer in workload.inputs)
        return [Proposal(Tile("routine"), 1e-9 * (CALL_NS + ROUTINE_NS * elements))]
    shared = prod(axis.extent for axis in kernel.shared)
    compute = shared * sum(map(_operations, kernel.blocks)) * OPERATION_NS / target.vector_floats
    moved = sum(buffer.type.bytes for buffer in (*workload.inputs, *workload.outputs))
    return [Proposal(Tile("loops"), 1e-9 * (CALL_NS + max(compute, moved / read_rate(moved, target))))]


def _operations(block: Block) -> int:
    """Scalar operations of all points of a block."""
    points = prod(axis.extent for axis in (*block.axes, *block.reduction))
    return points * sum(_operations_of(expr) for value in block.values for expr in value.walk())


def _operations_of(expr: Expr) -> int:
    return SLOW_OPERATIONS if isinstance(expr, Apply) and expr.function not in QUICK else 1
