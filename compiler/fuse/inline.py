"""A map's expression put into a kernel that reads it: the tensor between them is never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod

from compiler.forms.dequantised import dequantised
from compiler.forms.normal_form import substitute
from compiler.fuse.draft import Draft, Op, bind, is_guarded_copy, joined_family, only_block, size, store_axes, work
from compiler.ir.expr import Expr, Load, Position, Where
from compiler.ir.index import Axis, FloorDiv, Index, Indirect, Mod
from compiler.ir.kernel import Block, Kernel
from compiler.ir.tensor import DType, Layout

BYTES = (DType.U8, DType.I8)
MAX_EXPR = 160
"""Forms in one block's expressions after inlining: keeps generated code and compile times in bounds."""
MAX_REPEATED_WORK = 2.5
"""How often an element of a map with arithmetic may be computed again by the kernel that takes it in."""
MAX_TAPS = 25
"""How often a byte may be made a float by the windows of a pool along whose channels it lies in memory."""
CHEAP_WORK = 6
"""Work per element (see `work`) up to which repetition is tolerated at all."""


def inline(producer: Op, consumer: Op, draft: Draft) -> Op | str:
    """The consumer with the producer's expression in place of its loads, or the reason why not."""
    block = only_block(producer)
    if block is None or not isinstance(consumer.kernel, Kernel) or not isinstance(producer.kernel, Kernel):
        return "the producer is not a map"
    value = producer.outputs[0]
    axes = store_axes(block.stores[0], draft.types[value].dims)
    if axes is None:
        return "the map does not store its output in order"
    slot = next(s.name for s, bound in zip(consumer.kernel.inputs, consumer.inputs, strict=True) if bound == value)
    most = MAX_TAPS if _lie_in_channels(producer, draft) else 1
    if reason := _refusal(block.values[0], consumer.kernel, slot, draft.types[value].elements, most):
        return reason
    inner = {name.name: f"p_{name.name}" for name in producer.kernel.inputs}
    taken = block.values[0].transform(_renamed(inner))

    def take_in(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.slot != slot:
            return expr
        mapping = {axis: index for axis, index in zip(axes, expr.index, strict=True) if axis is not None}
        return taken.substitute(mapping)

    kernel = consumer.kernel
    blocks = tuple(replace(b, values=tuple(v.transform(take_in) for v in b.values)) for b in kernel.blocks)
    if is_guarded_copy(block.values[0]) or _quantises(block.values[0]):
        blocks = tuple(_in_even_steps(b) if _is_product(b) or b.monoid in ("max", "min") else b for b in blocks)
        if any(_scatters(b, inner.values()) for b in blocks if _is_product(b)):
            return "the product would gather its operand element by element"
    if any(
        load.slot == slot for b in kernel.blocks for store in b.stores for i in store.index for load in _loads_in(i)
    ):
        return "the value decides where elements are stored"
    slots = tuple(replace(s, name=inner[s.name]) for s in producer.kernel.inputs)
    joined = replace(
        kernel,
        family=joined_family(producer.kernel.family, kernel.family),
        inputs=(*(s for s in kernel.inputs if s.name != slot), *slots),
        blocks=blocks,
    )
    inputs = {s.name: bound for s, bound in zip(kernel.inputs, consumer.inputs, strict=True)}
    inputs |= {inner[s.name]: bound for s, bound in zip(producer.kernel.inputs, producer.inputs, strict=True)}
    outputs = {s.name: bound for s, bound in zip(kernel.outputs, consumer.outputs, strict=True)}
    return bind(joined, inputs, outputs, (*producer.sources, *consumer.sources))


def _renamed(names: Mapping[str, str]) -> Callable[[Expr], Expr]:
    def rename(expr: Expr) -> Expr:
        return Load(names[expr.slot], expr.index, expr.type) if isinstance(expr, Load) and expr.slot in names else expr

    return rename


def _loads_in(index: Index) -> tuple[Load, ...]:
    return Position(index).loads


def _lie_in_channels(producer: Op, draft: Draft) -> bool:
    """Whether what a map reads has its channels last in memory, where pools run in vectors of bytes."""
    if len(producer.inputs) != 1:
        return False
    (read,) = producer.inputs
    return draft.layouts.get(read) == Layout.channels_last(draft.types[read].rank)


def _refusal(expr: Expr, consumer: Kernel, slot: str, elements: int, most: int) -> str:
    """Why taking the expression in would cost more than storing it; empty when it would not.

    A pool may make a byte a float `most` times.
    """
    moves = is_guarded_copy(expr)
    for block in consumer.blocks:
        loads = [load for value in block.values for load in value.loads if load.slot == slot]
        if not loads:
            continue
        if block.sequential or consumer.sequential:
            return "the consumer runs in sequence and would compute it at every step"
        if sum(size(value) for value in block.values) + len(loads) * size(expr) > MAX_EXPR:
            return f"the expression would grow past {MAX_EXPR} forms"
        points = prod(axis.extent for axis in (*consumer.shared, *block.axes, *block.reduction))
        if _is_product(block):
            points = _operand_points(loads, consumer, block.values[0])
        repeated = len(loads) * points / max(elements, 1)
        if repeated > 1 and _quantises(expr):
            return f"its bytes would be made {repeated:.1f} times of longer elements"
        if repeated <= most and dequantised(expr) is not None and _pools(block, slot):
            continue
        if not moves and repeated > 1 and (repeated > MAX_REPEATED_WORK or work(expr) > CHEAP_WORK):
            return f"its {work(expr)} units of work would be done {repeated:.1f} times per element"
    return ""


def _quantises(expr: Expr) -> bool:
    """Whether bytes are made of longer elements: stored they are read faster, and copied without computing anything."""
    return expr.dtype in BYTES and any(load.dtype.bytes > 1 for load in expr.loads)


def _pools(block: Block, slot: str) -> bool:
    """Whether a block combines elements of a slot as they are, but for those that lie beside it."""
    value = block.values[0]
    while isinstance(value, Where) and not value.otherwise.loads:
        value = value.then
    return bool(block.monoid) and isinstance(value, Load) and value.slot == slot


def _is_product(block: Block) -> bool:
    """Whether a block sums products."""
    return block.monoid == "sum" and bool(block.reduction) and len(block.values[0].children) == 2


def _operand_points(loads: list[Load], consumer: Kernel, product: Expr) -> int:
    """How many elements of one operand of a product are brought into packed form."""
    operand = next(child for child in product.children if any(load in child.loads for load in loads))
    return prod(axis.extent for axis in operand.axes)


def _in_even_steps(block: Block) -> Block:
    """Reduction axes become two where a load divides one by a divisor of its extent, as after a shuffle of channels.

    Along each of the two the load then moves in even steps.
    """
    for axis in block.reduction:
        for divisor in _divisors(block, axis):
            outer, inner = Axis(f"{axis.name}Outer", axis.extent // divisor), Axis(f"{axis.name}Inner", divisor)
            split = substitute(block, {axis: Index.of(outer) * divisor + inner})
            if not _divisors(split, outer) and not _divisors(split, inner):
                at = block.reduction.index(axis)
                block = replace(split, reduction=(*block.reduction[:at], outer, inner, *block.reduction[at + 1 :]))
                break
    return block


def _divisors(block: Block, axis: Axis) -> list[int]:
    """What loads divide an axis by, least first."""
    found = {
        atom.divisor
        for atom in _divisions(load for value in block.values for load in value.loads)
        if axis in atom.index.axes and axis.extent % atom.divisor == 0
    }
    return sorted(found)


def _divisions(loads: Iterable[Load]) -> list[FloorDiv | Mod]:
    return [
        atom for load in loads for index in load.index for atom, _ in index.terms if isinstance(atom, FloorDiv | Mod)
    ]


def _scatters(block: Block, slots: Iterable[str]) -> bool:
    """Whether loads of some slots divide at each step of a sum, or get their positions there from other values.

    A packed operand would do so for every element.
    """
    named, steps = frozenset(slots), frozenset(block.reduction)
    loads = [load for value in block.values for load in value.loads if load.slot in named]
    indirect = [atom for load in loads for index in load.index for atom, _ in index.terms if isinstance(atom, Indirect)]
    return bool(_divisions(loads)) or any(atom.expr.axes & steps for atom in indirect)
