"""Kernels seen as matrix products: C[b, m, n] = sum over k of A[b, m, k] B[b, k, n], then a map over C.

Every convolution and matrix product has this form once its axes are sorted by the operand they index: `n` axes index B
only, `m` axes A only (or neither), batch axes both. Convolution is the case where A's index mixes m and k. How A's rows
are reached, `compiler.forms.operand` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product as points
from math import prod

from compiler.forms.normal_form import (
    Address,
    Slots,
    in_normal_form,
    join_reduction,
    join_shared,
    joined_axis,
    reduces_then_maps,
    substitute,
)
from compiler.ir.expr import Apply, Expr, Load
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

MIN_COLUMNS = 2
"""Narrower products are left to plain loops."""
MIN_ROWS = 4
"""Rows that repay packing an operand at run time."""


@dataclass(frozen=True)
class Contraction:
    """A kernel in matrix form: the reducing block `product`, the maps after it `epilogue`; axes outermost first."""

    kernel: Kernel
    product: Block
    epilogue: tuple[Block, ...]
    a: Expr
    b: Expr
    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: Axis
    k: tuple[Axis, ...]

    @cached_property
    def rows(self) -> int:
        """M: rows of A and of the result, of one batch element."""
        return prod(axis.extent for axis in self.m)

    @cached_property
    def columns(self) -> int:
        """N: columns of B and of the result."""
        return self.n.extent

    @cached_property
    def depth(self) -> int:
        """K: products that an element of the result sums."""
        return prod(axis.extent for axis in self.k)

    @cached_property
    def batches(self) -> int:
        """Matrix products that the kernel computes, of `rows` x `depth` by `depth` x `columns`."""
        return prod(axis.extent for axis in self.batch)


@lru_cache(maxsize=256)
def as_contraction(workload: Workload) -> Contraction | None:
    """The matrix form of a kernel; None if it is not an fp32 sum of products and maps, or too narrow to pay."""
    found = in_normal_form(workload, _has_form)
    if found is None:
        return None
    kernel, slots = found
    sides = [sorted_axes(kernel, at, slots) for at in (0, 1)]
    options = [option for option in sides if option and _repays_packing(option, workload)]
    return max(options, key=lambda option: merit(option, workload, slots), default=None)


def sums_products(kernel: Kernel, dtype: DType) -> bool:
    """Whether a kernel is a sum of products at each point, in one dtype, and maps of it at that point."""
    if not reduces_then_maps(kernel):
        return False
    first = kernel.blocks[0]
    value = first.values[0]
    if first.monoid != "sum" or first.accumulator is not dtype:
        return False
    return isinstance(value, Apply) and value.function == "mul" and value.dtype is dtype


def _has_form(kernel: Kernel) -> bool:
    if not sums_products(kernel, DType.F32):
        return False
    first, *rest = kernel.blocks
    if any(value.dtype is not DType.F32 for block in rest for value in block.values):
        return False
    shortened = {
        slot for block in kernel.blocks for slot in block.writes if kernel.slots[slot].type.dtype is not DType.F32
    }
    if any(block.reads & shortened for block in rest):
        return False
    return all(any(load.slot for load in arg.loads) for arg in first.values[0].children)


def sorted_axes(kernel: Kernel, first: int, slots: Slots) -> Contraction | None:
    """Axes by role when factor `first` of the product is A, joined where addresses permit.

    n is the innermost axis of B's own, the others of them count as batch.
    """
    product = _with_rising_taps(kernel.blocks[0], first, slots)
    a, b = _factors(product, first)
    roles = {axis: ("b" if axis in a.axes else "n") if axis in b.axes else "m" for axis in kernel.shared}
    stride = output_strides(kernel, slots)
    by_role = {role: sorted((x for x in kernel.shared if roles[x] == role), key=lambda x: -stride[x]) for role in "bmn"}
    if not by_role["n"]:
        return None
    ordered = replace(kernel, shared=(*by_role["b"], *by_role["m"], *by_role["n"]))
    ordered = replace(ordered, blocks=(replace(product, reduction=_depth_order(product, a, slots)), *kernel.blocks[1:]))
    joined = join_shared(ordered, _address(slots), _same_role(roles))
    block = join_reduction(joined.blocks[0], _address(slots))
    joined = replace(joined, blocks=(block, *joined.blocks[1:]))
    a, b = _factors(block, first)
    axes = {role: [axis for axis in joined.shared if _role_of(axis, a, b) == role] for role in "bmn"}
    if not axes["n"] or axes["n"][-1].extent < MIN_COLUMNS:
        return None
    batch = (*axes["b"], *axes["n"][:-1])
    return Contraction(joined, block, joined.blocks[1:], a, b, batch, tuple(axes["m"]), axes["n"][-1], block.reduction)


def _factors(product: Block, first: int) -> tuple[Expr, Expr]:
    """A and B, A being factor `first`."""
    value = product.values[0]
    assert isinstance(value, Apply)
    return value.args[first], value.args[1 - first]


def _with_rising_taps(product: Block, first: int, slots: Slots) -> Block:
    """Reduction axes along which A is read backwards, as the taps of a transposed convolution are, reversed."""
    a, _ = _factors(product, first)
    offsets = [slots.address(load.slot, load.index)[1] for load in a.loads if load.slot in slots.buffers]
    backwards = {
        axis: Index.of(axis.extent - 1) - axis
        for axis in product.reduction
        if any((offset.coefficient(axis) or 0) < 0 for offset in offsets)
    }
    return substitute(product, backwards) if backwards else product


def _repays_packing(option: Contraction, workload: Workload) -> bool:
    """Whether B is packed ahead of time, or read by enough rows to be worth packing in every inference.

    A depthwise window is not.
    """
    return (isinstance(option.b, Load) and is_constant(workload, option.b.slot)) or option.rows >= MIN_ROWS


def _same_role(roles: dict[Axis, str]) -> Callable[[Axis, Axis], bool]:
    """A test that lets axes of one role be joined, and keeps the role of what they become."""

    def may_join(outer: Axis, inner: Axis) -> bool:
        if roles[outer] != roles[inner]:
            return False
        roles[joined_axis(outer, inner)] = roles[outer]
        return True

    return may_join


def _role_of(axis: Axis, a: Expr, b: Expr) -> str:
    return ("b" if axis in a.axes else "n") if axis in b.axes else "m"


def _address(slots: Slots) -> Address:
    def address(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        return slots.address(slot, index) if slot in slots.buffers else (slot, Index.of(0))

    return address


def output_strides(kernel: Kernel, slots: Slots) -> dict[Axis, int]:
    """How far apart neighbours along each shared axis lie in the last result."""
    store = next(store for block in reversed(kernel.blocks) for store in block.stores if store.slot in slots.buffers)
    offset = slots.address(store.slot, store.index)[1]
    return {axis: abs(offset.coefficient(axis) or 0) for axis in kernel.shared}


def _depth_order(product: Block, a: Expr, slots: Slots) -> tuple[Axis, ...]:
    """Reduction axes by falling stride of A, so that rows of A are read along memory."""
    offsets = [slots.address(load.slot, load.index)[1] for load in a.loads if load.slot in slots.buffers]

    def stride(axis: Axis) -> int:
        return max((abs(offset.coefficient(axis) or 0) for offset in offsets), default=0)

    return tuple(sorted(product.reduction, key=stride, reverse=True))


def merit(option: Contraction, workload: Workload, slots: Slots) -> tuple[int, int, int]:
    """Prefers what is read and stored contiguous along n, then a constant B, then a wide n.

    What is stored counts twice: its cache lines are read and written.
    """

    def is_apart(slot: str, index: tuple[Index, ...]) -> bool:
        return slots.address(slot, index)[1].coefficient(option.n) not in (0, 1)

    constant = isinstance(option.b, Load) and is_constant(workload, option.b.slot)
    mapped = {load for block in option.epilogue for value in block.values for load in value.loads}
    read = mapped if constant else mapped | {*option.b.loads}
    apart = sum(is_apart(load.slot, load.index) for load in read if load.slot in slots.buffers)
    return (-apart - 2 * (output_strides(option.kernel, slots)[option.n] != 1), int(constant), option.columns)


def is_constant(workload: Workload, slot: str) -> bool:
    """Whether a slot is bound to a constant."""
    names = [declared.name for declared in workload.kernel.inputs]
    return slot in names and workload.constant[names.index(slot)]


def packing_of(view: Contraction, workload: Workload, panel: int) -> tuple[int, Panels] | None:
    """How B is packed ahead of time, with its input position; None if B is not constant with even steps of k and n."""
    b = view.b
    if not isinstance(b, Load) or not is_constant(workload, b.slot):
        return None
    position = [slot.name for slot in workload.kernel.inputs].index(b.slot)
    flat = flatten(b.index, workload.kernel.inputs[position].type.dims)
    axes = (*view.k, view.n)
    strides = [flat.coefficient(axis) for axis in axes]
    if any(stride is None for stride in strides):
        return None
    source = tuple((axis.extent, stride or 0) for axis, stride in zip(axes, strides, strict=True))
    first = flat.substitute({axis: Index.of(0) for axis in axes})
    starts = [first.substitute(point) for point in _points([axis for axis in view.batch if axis in b.axes])]
    if not all(start.is_const for start in starts):
        return None
    return position, Panels(tuple(start.const for start in starts), view.depth, view.columns, panel, source)


def _points(axes: Sequence[Axis]) -> Iterator[dict[Axis, Index]]:
    """Every point of the axes, the last one fastest."""
    for point in points(*(range(axis.extent) for axis in axes)):
        yield {axis: Index.of(at) for axis, at in zip(axes, point, strict=True)}


def axes_of(axes: Sequence[Axis]) -> str:
    """Axis names, for comments."""
    return " ".join(f"{axis.name}:{axis.extent}" for axis in axes) or "1"
