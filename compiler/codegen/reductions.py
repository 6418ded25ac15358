"""Reductions as text: the order of their loops, what they begin from, one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.expressions import INTEGERS
from compiler.codegen.scalars import apply, literal
from compiler.forms.normal_form import Address, Slots, block_positions, join_shared, split_shared
from compiler.ir.expr import Cast, Expr
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel
from compiler.ir.tensor import DType

IDENTITY = {"sum": 0.0, "prod": 1.0, "and": 1, "or": 0}


def widened(kernel: Kernel, narrow: tuple[DType, ...] = (DType.BF16,)) -> Kernel:
    """Reductions in `narrow` dtypes done in fp32, which compares alike and rounds once: C has no bf16 arithmetic."""

    def in_fp32(block: Block) -> Block:
        if block.accumulator not in narrow:
            return block
        values = tuple(Cast(value, DType.F32) if value.dtype in narrow else value for value in block.values)
        return replace(block, accumulator=DType.F32, values=values)

    return replace(kernel, blocks=tuple(map(in_fp32, kernel.blocks)))


def temp_aware(kernel: Kernel, slots: Slots) -> Address:
    """Addresses of slots, and of temporaries as dense arrays."""
    dims = {temp.name: temp.type.dims for temp in kernel.temps}

    def address(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        return (slot, flatten(index, dims[slot])) if slot in dims else slots.address(slot, index)

    return address


def by_stride(kernel: Kernel, slots: Slots) -> tuple[Axis, ...]:
    """Shared axes in the order of the first output in memory, outermost first; sequential ones stay in front."""
    first = next((store for block in kernel.blocks for store in block.stores if store.slot in slots.buffers), None)
    if first is None:
        return kernel.shared
    offset = slots.address(first.slot, first.index)[1]
    moving = [axis for axis in kernel.shared if axis not in kernel.sequential]

    def stride(axis: Axis) -> int:
        return abs(offset.coefficient(axis) or 0)

    return (*kernel.sequential, *sorted(moving, key=stride, reverse=True))


def with_plain_axes(kernel: Kernel, slots: Slots) -> Kernel:
    """Shared axes split and joined until addresses divide as little as may be, in the order of memory."""
    kernel = split_shared(kernel, temp_aware(kernel, slots))
    return join_shared(replace(kernel, shared=by_stride(kernel, slots)), temp_aware(kernel, slots))


def kinds_of(block: Block) -> list[DType]:
    """The dtypes of a reduction's accumulators."""
    assert block.accumulator is not None
    return [block.accumulator, *(value.dtype for value in block.values[1:])]


def step(block: Block, names: Sequence[str], values: Sequence[str], *, wide: bool = False) -> str:
    """One step of a block's reduction: accumulators combined with values, or with other accumulators."""
    if len(names) == 1:
        return single_step(block.monoid, names[0], values[0], kinds_of(block)[0], wide=wide)
    return pair_step(block.monoid, names[0], names[1], values[0], values[1])


def single_step(monoid: str, acc: str, value: str, dtype: DType, *, wide: bool) -> str:
    """One step of a reduction of single values, on vectors or scalars."""
    steps = {
        "sum": f"{acc} += {value};",
        "prod": f"{acc} *= {value};",
        "and": f"{acc} &= {value};",
        "or": f"{acc} |= {value};",
    }
    kind = ("_i" if dtype in INTEGERS else "") if wide else "1"
    if wide and dtype in INTEGERS:
        steps["sum"] = f"{acc} = tw_add_i({acc}, {value});"
    elif dtype.is_integer and monoid in ("sum", "prod"):
        step = apply("add" if monoid == "sum" else "mul", [acc, value], dtype)
        steps[monoid] = f"{acc} = {step};"
    return steps.get(monoid) or f"{acc} = tw_{monoid}{kind}({value}, {acc});"


def reduction_order(block: Block, guards: Sequence[Expr], address: Address, along: Axis | None) -> list[Axis]:
    """Guarded axes outermost, then by falling stride of the loads; the vectorised one last."""
    guarded = frozenset(axis for guard in guards for axis in guard.axes)

    def stride(axis: Axis) -> int:
        return max((abs(offset.coefficient(axis) or 0) for offset in block_positions(block, address)), default=0)

    return sorted(block.reduction, key=lambda axis: (axis == along, axis not in guarded, -stride(axis)))


def identity(block: Block, kinds: Sequence[DType]) -> list[str]:
    """C text of the monoid's identity."""
    if block.monoid in IDENTITY:
        return [literal(IDENTITY[block.monoid], kinds[0])]
    if block.monoid in ("max", "min"):
        return [extreme(kinds[0], block.monoid == "max")]
    if block.monoid == "softmax":
        return [literal(float("-inf"), kinds[0]), literal(0.0, kinds[1])]
    return [extreme(kinds[0], block.monoid.startswith("argmax")), extreme(kinds[1], block.monoid.endswith("last"))]


def extreme(dtype: DType, least: bool) -> str:
    """The least or greatest value of a dtype as C text."""
    if dtype.is_float:
        return literal(float("-inf") if least else float("inf"), dtype)
    if dtype is DType.BOOL:
        return "0" if least else "1"
    bits = 8 * dtype.bytes
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed else (0, 2**bits - 1)
    return literal(low if least else high, dtype)


def pair_step(monoid: str, first: str, second: str, x: str, y: str) -> str:
    """One step of a reduction of pairs, on accumulators `first` and `second`. NaN is beyond every number, and stays."""
    if monoid == "softmax":
        return (
            f"if ({x} > {first} || {x} != {x}) {{ {second} = {second} * exp({first} - {x}) + {y}; {first} = {x}; }} "
            f"else if ({x} == {first}) {second} += {y}; "
            f"else if ({first} == {first}) {second} += {y} * exp({x} - {first});"
        )
    better = ">" if monoid.startswith("argmax") else "<"
    sooner = "<" if monoid.endswith("first") else ">"
    equal = f"({x} == {first} || ({x} != {x} && {first} != {first}))"
    return (
        f"if ({x} {better} {first} || ({x} != {x} && {first} == {first}) || ({equal} && {y} {sooner} {second})) "
        f"{{ {first} = {x}; {second} = {y}; }}"
    )
