"""Plain loops: one tile, whose blocking the code generator derives from the kernel's axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from compiler.devices.cpu.model import CALL_NS, read_rate
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.contraction import output_strides
from compiler.forms.normal_form import Slots, contract_temps, join_shared, without_unit_axes
from compiler.forms.transpose import as_transpose
from compiler.ir.expr import Apply, Load
from compiler.ir.index import Axis, Index, Indirect, flatten
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

QUICK = frozenset(
    {"add", "sub", "mul", "min", "max", "neg", "abs", "bit_and", "bit_or", "bit_xor", "bit_not", "lt", "le", "gt", "ge"}
    | {"eq", "ne", "and", "or", "xor", "not", "floor", "ceil", "round", "shift_left", "shift_right", "isnan", "isinf"}
)
"""Functions that are one vector instruction."""
SLOW_OPERATIONS = 12
"""Vector operations that any other function takes."""
OPERATION_NS = 0.06
"""An operation of a plain loop on a vector, or on an element."""
STEP_NS = 0.4
"""A step of a reduction in vectors: it waits for the one before."""
TRANSPOSE_NS = 0.06
"""An element that is read along one axis and written along another, a square of them at a time."""
STRIDED_NS, FAR_STRIDED_NS = 0.15, 1.0
"""An element loaded or stored on its own because its neighbours in the vector are not beside it in memory.

FAR where operands are beyond the second-level cache: the rest of its line has left the cache before it is used.
"""
INDIRECT_NS, SCATTERED_NS = 0.5, 2.5
"""An element read, or written, where another value says."""
BRANCH_NS = 4.0
"""A step of an extreme of single elements: a branch that the processor cannot predict."""
FEWEST = 4
"""Points of an axis that is worth vectors."""
VECTOR_MONOIDS = frozenset({"sum", "prod", "max", "min"})


def loop_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The one tile of the `loops` algorithm; empty for a Routine."""
    if not isinstance(workload.kernel, Kernel):
        return []
    moved = sum(buffer.type.bytes for buffer in (*workload.inputs, *workload.outputs))
    if as_transpose(workload):
        compute = TRANSPOSE_NS * sum(buffer.type.elements for buffer in workload.outputs)
    else:
        compute = _Loops.of(workload, target, moved).ns
    return [Proposal(Tile("loops"), 1e-9 * (CALL_NS + max(compute, moved / read_rate(moved, target))))]


@dataclass(frozen=True)
class _Loops:
    """A kernel as loops over memory: shared axes in the order of its results, the last one innermost."""

    kernel: Kernel
    slots: Slots
    width: int
    strided_ns: float

    @staticmethod
    def of(workload: Workload, target: CpuTarget, moved: int) -> _Loops:
        assert isinstance(workload.kernel, Kernel)
        kernel, slots = without_unit_axes(contract_temps(workload.kernel)), Slots(workload)
        strides = output_strides(kernel, slots)
        moving = sorted(
            (axis for axis in kernel.shared if axis not in kernel.sequential), key=lambda axis: -strides[axis]
        )
        strided_ns = FAR_STRIDED_NS if moved > target.l2_bytes else STRIDED_NS
        loops = _Loops(replace(kernel, shared=(*kernel.sequential, *moving)), slots, target.vector_floats, strided_ns)
        return replace(loops, kernel=join_shared(loops.kernel, loops.address))

    def address(self, slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        """Of an element, temporaries as dense arrays."""
        if slot in self.slots.buffers:
            return self.slots.address(slot, index)
        return slot, flatten(index, self.kernel.slots[slot].type.dims)

    @property
    def ns(self) -> float:
        """Of all blocks."""
        blocks = self.kernel.blocks
        shared = (
            None
            if self.kernel.sequential or not all(map(_has_vectors, blocks))
            else self._best(blocks, self.kernel.shared)
        )
        return sum(self._block_ns(block, shared or self._own(block)) for block in blocks)

    def _own(self, block: Block) -> Axis | None:
        """An axis along which one block is computed in vectors."""
        axes = (*block.axes, *(block.reduction if block.monoid in VECTOR_MONOIDS else ()))
        return self._best((block,), axes) if _has_vectors(block) else None

    def _best(self, blocks: Sequence[Block], axes: Sequence[Axis]) -> Axis | None:
        """The axis along which most is contiguous."""
        long = [axis for axis in axes if axis.extent >= FEWEST]
        best = max(long, key=lambda axis: self._contiguity(blocks, axis), default=None)
        return best if best is not None and self._contiguity(blocks, best) > 0 else None

    def _contiguity(self, blocks: Sequence[Block], axis: Axis) -> int:
        """How much more is contiguous along an axis than is not; stores and repeated reads count most."""
        score = 0
        for block in blocks:
            score += sum((4 if block.monoid else 1) * _merit(self._step(load, axis)) for load in _loads(block))
            score += sum(2 * _merit(self._step(store, axis)) for store in block.stores)
        return score

    def _step(self, access: Load | Store, axis: Axis) -> int | None:
        return self.address(access.slot, access.index)[1].coefficient(axis)

    def _block_ns(self, block: Block, along: Axis | None) -> float:
        points = prod(axis.extent for axis in (*self.kernel.shared, *block.axes, *block.reduction))
        results = points // max(prod(axis.extent for axis in block.reduction), 1)
        operations = sum(_operations(block))
        accesses = [(load, points) for load in _loads(block)] + [(store, results) for store in block.stores]
        singly = sum(count * self._single_ns(access, along) for access, count in accesses)
        if along is None:
            return points * (operations * OPERATION_NS + self._branch_ns(block)) + singly
        steps = points // along.extent * -(-along.extent // self.width)
        return steps * (operations * OPERATION_NS + (STEP_NS if block.monoid else 0.0)) + singly

    def _single_ns(self, access: Load | Store, along: Axis | None) -> float:
        """What an element costs that is not accessed in vectors."""
        if any(isinstance(atom, Indirect) for index in access.index for atom, _ in index.terms):
            return SCATTERED_NS if isinstance(access, Store) else INDIRECT_NS
        return self.strided_ns if along is not None and self._step(access, along) not in (0, 1) else 0.0

    def _branch_ns(self, block: Block) -> float:
        """Of a step of an extreme that the C compiler cannot vectorise, since results are not written along memory."""
        inner = (*self.kernel.shared, *block.axes)[-1:]
        written = all(self._step(store, axis) == 1 for store in block.stores for axis in inner)
        near = all(abs(self._step(load, axis) or 0) <= FEWEST for load in _loads(block) for axis in inner)
        return BRANCH_NS if block.monoid in ("max", "min") and not (written and near) else 0.0


def _loads(block: Block) -> list[Load]:
    """Each once."""
    return list(dict.fromkeys(load for value in block.values for load in value.loads))


def _merit(step: int | None) -> int:
    return -4 if step is None else {0: 0, 1: 2}.get(step, -3)


def _operations(block: Block) -> list[int]:
    """Of the forms of a block's values at one point."""
    return [
        SLOW_OPERATIONS if isinstance(expr, Apply) and expr.function not in QUICK else 1
        for value in block.values
        for expr in value.walk()
    ]


def _has_vectors(block: Block) -> bool:
    """Whether vectors of floats can hold what a block computes."""
    floats = {DType.F32, DType.BOOL, DType.I32}
    return (
        not block.sequential and block.monoid in (*VECTOR_MONOIDS, "") and all(v.dtype in floats for v in block.values)
    )
