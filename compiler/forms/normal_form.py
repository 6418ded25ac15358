"""Kernels in the form that lowering takes: temporaries with the axes they need, axes joined and ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from compiler.forms.numerics import Numerics
from compiler.ir.buffers import Buffer
from compiler.ir.evaluate import with_whole_temps
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, FloorDiv, Index, Indirect, Mod
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import TensorType

Address = Callable[[str, tuple[Index, ...]], tuple[str, Index]]
"""Turns a slot and a logical index into the name of the memory and the element offset in it."""


class Slots:
    """The buffers of a workload by slot name."""

    def __init__(self, workload: Workload) -> None:
        kernel = workload.kernel
        bound = zip((*kernel.inputs, *kernel.outputs), (*workload.inputs, *workload.outputs), strict=True)
        self.buffers: dict[str, Buffer] = {slot.name: buffer for slot, buffer in bound}
        self.numerics = Numerics.of(workload)

    @property
    def extents(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each slot."""
        return {slot: buffer.type.dims for slot, buffer in self.buffers.items()}

    def address(self, slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        """The slot and the element offset of a logical index from the buffer's first element."""
        buffer = self.buffers[slot]
        return slot, buffer.address(index) - buffer.offset


def is_contiguous(value: Expr, axis: Axis, slots: Slots) -> bool:
    """Whether all loads of an expression that an axis moves step by one element along it."""
    loads = [load for load in value.loads if axis in load.axes]
    return all(slots.address(load.slot, load.index)[1].coefficient(axis) == 1 for load in loads)


def reduces_then_maps(kernel: Kernel) -> bool:
    """Whether a kernel is one reduction at each point of its shared axes and maps of its result at that point.

    The order of the shared axes does not matter.
    """
    if kernel.sequential or any(temp.type.rank for temp in kernel.temps) or not kernel.blocks:
        return False
    first, *rest = kernel.blocks
    return bool(first.reduction) and not first.axes and not any(block.axes or block.monoid for block in rest)


def accesses(kernel: Kernel, slot: str) -> list[tuple[Index, ...]]:
    """Every index at which a slot is read or written."""
    found = [
        load.index for block in kernel.blocks for value in block.values for load in value.loads if load.slot == slot
    ]
    return found + [store.index for block in kernel.blocks for store in block.stores if store.slot == slot]


def contract_temps(kernel: Kernel) -> Kernel:
    """Drops from each temporary the dimensions that every access takes at one place, fixed at each shared point.

    Where temporaries then still mention shared parallel axes, blocks reach across points: the kernel must run block
    after block, so its shared axes move into the blocks and its temporaries are whole. Sequential kernels keep their
    shared axes: there a temporary that carries values from one position to the next is whole.
    """
    if kernel.sequential:
        kernel = with_whole_temps(kernel)
    shared, carried = set(kernel.shared), carried_temps(kernel)
    kept: dict[str, tuple[int, ...]] = {}
    for temp in kernel.temps:
        indices = accesses(kernel, temp.name)
        kept[temp.name] = tuple(
            dim
            for dim in range(temp.type.rank)
            if temp.name in carried
            or len({index[dim] for index in indices}) > 1
            or not all(index[dim].axes <= shared for index in indices)
        )
    is_contracted = all(len(kept[temp.name]) == temp.type.rank for temp in kernel.temps)
    contracted = kernel if is_contracted else keep_dims(kernel, kept)
    crossing = any(
        index.axes & shared for temp in contracted.temps for at in accesses(contracted, temp.name) for index in at
    )
    if kernel.sequential or not crossing:
        return contracted
    kernel = with_whole_temps(kernel)
    return replace(
        kernel, shared=(), blocks=tuple(replace(block, axes=(*kernel.shared, *block.axes)) for block in kernel.blocks)
    )


def carried_temps(kernel: Kernel) -> frozenset[str]:
    """Temporaries that are loop-carried along a sequential axis: read before they are stored, or at other places."""
    temps = {temp.name for temp in kernel.temps}
    carried: set[str] = set()
    stored: set[str] = set()
    for block in kernel.blocks:
        carried |= (block.reads & temps) - stored
        stored |= block.writes
    ordered = {*kernel.sequential, *(axis for block in kernel.blocks for axis in block.sequential)}
    for temp in temps - carried:
        indices = set(accesses(kernel, temp))
        if len(indices) > 1 and any(index.axes & ordered for at in indices for index in at):
            carried.add(temp)
    return frozenset(carried)


def keep_dims(kernel: Kernel, kept: Mapping[str, tuple[int, ...]]) -> Kernel:
    """Temporaries with some of their dimensions only; all are in `kept`."""

    def shorten(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.slot in kept:
            return Load(expr.slot, tuple(expr.index[dim] for dim in kept[expr.slot]), expr.type)
        return expr

    def store(target: Store) -> Store:
        return (
            Store(target.slot, tuple(target.index[dim] for dim in kept[target.slot])) if target.slot in kept else target
        )

    temps = tuple(
        Slot(temp.name, TensorType(temp.type.dtype, tuple(temp.type.shape[dim] for dim in kept[temp.name])))
        for temp in kernel.temps
    )
    blocks = tuple(
        replace(
            block,
            values=tuple(value.transform(shorten) for value in block.values),
            stores=tuple(store(target) for target in block.stores),
        )
        for block in kernel.blocks
    )
    return replace(kernel, temps=temps, blocks=blocks)


def without_unit_axes(kernel: Kernel) -> Kernel:
    """Axes of extent 1 dropped: no index mentions them."""

    def wide(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(axis for axis in axes if axis.extent != 1)

    blocks = tuple(
        replace(block, axes=wide(block.axes), reduction=wide(block.reduction), sequential=wide(block.sequential))
        for block in kernel.blocks
    )
    return replace(kernel, shared=wide(kernel.shared), sequential=wide(kernel.sequential), blocks=blocks)


def rename_axes(kernel: Kernel, name: Callable[[str], str]) -> Kernel:
    """Every axis under another name; a number keeps names apart that `name` makes equal."""
    new: dict[Axis, Axis] = {}
    taken: set[str] = set()
    for axis in (*kernel.shared, *(axis for block in kernel.blocks for axis in (*block.axes, *block.reduction))):
        if axis not in new:
            wanted = name(axis.name)
            free = next(full for full in _numbered(wanted) if full not in taken)
            taken.add(free)
            new[axis] = Axis(free, axis.extent)
    mapping = {old: Index.of(axis) for old, axis in new.items()}

    def renamed(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(new[axis] for axis in axes)

    blocks = tuple(
        replace(
            substitute(block, mapping),
            axes=renamed(block.axes),
            reduction=renamed(block.reduction),
            sequential=renamed(block.sequential),
        )
        for block in kernel.blocks
    )
    return replace(kernel, shared=renamed(kernel.shared), sequential=renamed(kernel.sequential), blocks=blocks)


def _numbered(name: str) -> Iterator[str]:
    """The name, then the name with 2, 3, .. behind it."""
    yield name
    yield from (f"{name}_{number}" for number in count(2))


def rename_slots(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """Slots under the names that `names` has for them, in blocks and declarations."""

    def renamed(expr: Expr) -> Expr:
        return Load(names.get(expr.slot, expr.slot), expr.index, expr.type) if isinstance(expr, Load) else expr

    def declared(slots: Sequence[Slot]) -> tuple[Slot, ...]:
        return tuple(Slot(names.get(slot.name, slot.name), slot.type) for slot in slots)

    def stored(store: Store) -> Store:
        index = tuple(part.substitute({}, lambda expr: expr.transform(renamed)) for part in store.index)
        return Store(names.get(store.slot, store.slot), index)

    blocks = tuple(
        replace(
            block,
            values=tuple(value.transform(renamed) for value in block.values),
            stores=tuple(map(stored, block.stores)),
        )
        for block in kernel.blocks
    )
    inputs, temps, outputs = map(declared, (kernel.inputs, kernel.temps, kernel.outputs))
    return replace(kernel, blocks=blocks, inputs=inputs, temps=temps, outputs=outputs)


def in_normal_form(workload: Workload, has_form: Callable[[Kernel], bool]) -> tuple[Kernel, Slots] | None:
    """A workload's kernel with its temporaries contracted and without unit axes, and its slots.

    None where it is a routine, or has another form.
    """
    if not isinstance(workload.kernel, Kernel):
        return None
    kernel = without_unit_axes(contract_temps(workload.kernel))
    return (kernel, Slots(workload)) if has_form(kernel) else None


def substitute(block: Block, mapping: Mapping[Axis, Index]) -> Block:
    """A block with axes replaced in its values and stores."""
    return replace(
        block,
        values=tuple(value.substitute(mapping) for value in block.values),
        stores=tuple(
            Store(store.slot, tuple(index.substitute(mapping) for index in store.index)) for store in block.stores
        ),
    )


def anything(outer: Axis, inner: Axis) -> bool:
    """The test of `join_shared` that lets every pair be joined."""
    return True


def join_shared(kernel: Kernel, address: Address, may_join: Callable[[Axis, Axis], bool] = anything) -> Kernel:
    """Adjacent shared axes (a, b) become one where every address and condition stays free of divisions by it."""
    position = 0
    while position + 1 < len(kernel.shared):
        outer, inner = kernel.shared[position : position + 2]
        if outer in kernel.sequential or inner in kernel.sequential or not may_join(outer, inner):
            position += 1
            continue
        joined, mapping = _join(outer, inner)
        candidate = replace(
            kernel,
            shared=(*kernel.shared[:position], joined, *kernel.shared[position + 2 :]),
            blocks=tuple(substitute(block, mapping) for block in kernel.blocks),
        )
        if all(_is_plain_in(joined, index) for index in positions(candidate, address)):
            kernel = candidate
            position = max(position - 1, 0)
        else:
            position += 1
    return kernel


def join_reduction(block: Block, address: Address) -> Block:
    """Adjacent reduction axes become one where every address and condition stays free of divisions by it."""
    position = 0
    while position + 1 < len(block.reduction):
        joined, mapping = _join(*block.reduction[position : position + 2])
        reduction = (*block.reduction[:position], joined, *block.reduction[position + 2 :])
        candidate = replace(substitute(block, mapping), reduction=reduction)
        if all(_is_plain_in(joined, index) for index in block_positions(candidate, address)):
            block = candidate
            position = max(position - 1, 0)
        else:
            position += 1
    return block


def split_shared(kernel: Kernel, address: Address) -> Kernel:
    """Shared axes become two where an address divides one by a divisor of its extent.

    What was divided at every point becomes a loop.

    Valid after: fewer divisions and remainders, none by a divisor that such an axis could still be split by.
    """
    position = 0
    while position < len(kernel.shared):
        axis = kernel.shared[position]
        divisors = () if axis in kernel.sequential else _divisors(axis, positions(kernel, address))
        for divisor in divisors:
            outer, inner = Axis(f"{axis.name}Outer", axis.extent // divisor), Axis(f"{axis.name}Inner", divisor)
            mapping = {axis: Index.of(outer) * divisor + inner}
            candidate = replace(
                kernel,
                shared=(*kernel.shared[:position], outer, inner, *kernel.shared[position + 1 :]),
                blocks=tuple(substitute(block, mapping) for block in kernel.blocks),
            )
            if _divisions(positions(candidate, address)) < _divisions(positions(kernel, address)):
                kernel = candidate
                break
        else:
            position += 1
    return kernel


def _divisors(axis: Axis, found: Sequence[Index]) -> tuple[int, ...]:
    """What an axis on its own is divided by, least first."""
    divisors = {
        atom.divisor
        for index in found
        for atom, _ in index.terms
        if isinstance(atom, FloorDiv | Mod) and atom.index == Index.of(axis) and axis.extent % atom.divisor == 0
    }
    return tuple(sorted(divisors))


def _divisions(found: Sequence[Index]) -> int:
    return sum(isinstance(atom, FloorDiv | Mod) for index in found for atom, _ in index.terms)


def joined_axis(outer: Axis, inner: Axis) -> Axis:
    """The axis that two become."""
    return Axis(f"{outer.name}{inner.name}", outer.extent * inner.extent)


def _join(outer: Axis, inner: Axis) -> tuple[Axis, Mapping[Axis, Index]]:
    joined = joined_axis(outer, inner)
    if not inner.extent:
        return joined, {outer: Index.of(0), inner: Index.of(0)}  # no point has positions
    whole = Index.of(joined)
    return joined, {outer: whole // inner.extent, inner: whole % inner.extent}


def positions(kernel: Kernel, address: Address) -> list[Index]:
    """Every element offset and every index used as a number."""
    found: list[Index] = []
    for block in kernel.blocks:
        found += block_positions(block, address)
    return found


def block_positions(block: Block, address: Address) -> list[Index]:
    """The element offsets of a block's loads and stores, and its indices used as numbers, each as often as it stands.

    What several hold is worked out once.
    """
    found = [address(store.slot, store.index)[1] for store in block.stores]
    offsets: dict[Load, Index] = {}
    for value in block.values:
        for expr in value.walk():
            if isinstance(expr, Load):
                if expr not in offsets:
                    offsets[expr] = address(expr.slot, expr.index)[1]
                found.append(offsets[expr])
            else:
                found += expr.indices
    return found


def _is_plain_in(axis: Axis, index: Index) -> bool:
    """Whether an axis enters an index without divisions; loads inside an indirect atom are looked at on their own."""
    for atom, _ in index.terms:
        if isinstance(atom, FloorDiv | Mod) and axis in atom.index.axes:
            return False
        if (
            isinstance(atom, Indirect)
            and axis in atom.expr.axes
            and not all(_is_plain_in(axis, i) for i in atom.expr.indices)
        ):
            return False
    return True
