"""Kernels seen as recurrences: products with constant matrices and maps, step after step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from compiler.forms.normal_form import without_unit_axes
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where, conjuncts
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

CODES = (DType.I8, DType.I16)
"""Of matrices that whole numbers of 16 bits are multiplied by."""


@dataclass(frozen=True)
class Product:
    """A block temp[b, column] = sum over k of a[b, k] w[k, column], w being a part of a constant.

    `start` is w's first element in the row-major constant, `steps` its strides along k and the columns. `dtype` is that
    of w's elements; where it is an integer, `a` too is whole numbers, of 16 bits.
    """

    block: Block
    a: Expr
    matrix: str
    start: int
    steps: tuple[int, int]
    dtype: DType = DType.F32

    @property
    def column(self) -> Axis:
        """The axis of results."""
        return self.block.axes[0]

    @property
    def depth(self) -> Axis:
        """The axis that is summed over."""
        return self.block.reduction[0]

    @property
    def into(self) -> str:
        """The slot that the results are stored in."""
        return self.block.stores[0].slot


@dataclass(frozen=True)
class End:
    """How many steps an element of the batch has, a number that may depend on it.

    Beyond them all states stay what they are after the first step or a later one, and `stored` is what is stored: maps
    of states and inputs.
    """

    length: Expr
    stored: tuple[Block, ...]


@dataclass(frozen=True)
class Recurrence:
    """A kernel over the sequential axis `time`, and `batch` if there is more than one element.

    `blocks` are Products, maps along at most one axis of their own, and extremes along one. `ahead` are those products
    that need no earlier step. `end` is where it ends, if that is known only while running.
    """

    kernel: Kernel
    time: Axis
    batch: Axis | None
    blocks: tuple[Product | Block, ...]
    end: End | None = None

    @property
    def products(self) -> tuple[Product, ...]:
        """The blocks that are Products, in the order in which a step computes them."""
        return tuple(block for block in self.blocks if isinstance(block, Product))

    @property
    def ahead(self) -> frozenset[str]:
        """The temporaries of products whose rows depend on inputs alone: they can be made for many steps at a time."""
        temps = {temp.name for temp in self.kernel.temps}
        return frozenset(p.into for p in self.products if not any(load.slot in temps for load in p.a.loads))

    @property
    def codes(self) -> DType | None:
        """The type of the matrices that states are multiplied by, where they are integers."""
        return next((product.dtype for product in self.products if product.dtype is not DType.F32), None)

    @property
    def sequences(self) -> int:
        """Batch elements; 1 if the kernel has no batch axis."""
        return self.batch.extent if self.batch else 1

    def panels(self, matrix: str, panel: int) -> Panels:
        """How a matrix is packed: the parts that products read, in pieces of equal width, one after the other."""
        parts = [product for product in self.products if product.matrix == matrix]
        unit = self.unit(matrix)
        (depth, column), extent = parts[0].steps, parts[0].depth.extent
        starts = tuple(p.start + at * column for p in parts for at in range(0, p.column.extent, unit))
        return Panels(starts, extent, unit, panel, ((extent, depth), (unit, column)))

    def unit(self, matrix: str) -> int:
        """Columns of a piece of a matrix."""
        return gcd(*(product.column.extent for product in self.products if product.matrix == matrix))

    def first_piece(self, product: Product) -> int:
        """The number of a product's first piece among those of its matrix."""
        before = self.products[: self.products.index(product)]
        unit = self.unit(product.matrix)
        return sum(other.column.extent // unit for other in before if other.matrix == product.matrix)


def as_recurrence(workload: Workload) -> Recurrence | None:
    """A sequential kernel in fp32 of products with constants and maps, or None when it is not one."""
    if not isinstance(workload.kernel, Kernel) or len(workload.kernel.sequential) != 1:
        return None
    kernel = without_unit_axes(workload.kernel)
    if len(kernel.sequential) != 1 or len(kernel.shared) > 2 or kernel.shared[0] not in kernel.sequential:
        return None
    slots = (*kernel.temps, *kernel.outputs)
    if any(slot.type.dtype is not DType.F32 for slot in slots) or any(temp.type.rank != 2 for temp in kernel.temps):
        return None
    constants = {slot.name for slot, known in zip(kernel.inputs, workload.constant, strict=True) if known}
    blocks = []
    for block in kernel.blocks:
        seen = _product(block, kernel, constants) if block.monoid == "sum" else _map(block)
        if seen is None:
            return None
        blocks.append(seen)
    found = Recurrence(kernel, kernel.shared[0], kernel.shared[1] if len(kernel.shared) > 1 else None, tuple(blocks))
    found = replace(found, end=_end(found))
    by_matrix: dict[str, set[tuple[int, ...]]] = {}
    for product in found.products:
        by_matrix.setdefault(product.matrix, set()).add(
            (*product.steps, product.depth.extent, product.into in found.ahead)
        )
    return found if by_matrix and all(len(kinds) == 1 for kinds in by_matrix.values()) else None


def recurs_by(kernel: Kernel | Routine, slot: Slot) -> bool:
    """Whether a sum of products of a sequential kernel has a slot's elements, those of matrices, for one factor."""
    if not isinstance(kernel, Kernel) or not kernel.sequential or slot.type.rank < 2:
        return False
    sums = (block.values[0] for block in kernel.blocks if block.monoid == "sum")
    products = (value for value in sums if isinstance(value, Apply) and value.function == "mul")
    return any(isinstance(factor, Load) and factor.slot == slot.name for one in products for factor in one.args)


def _map(block: Block) -> Block | None:
    own = len(block.axes) + len(block.reduction) <= 1 and block.monoid in ("", "min", "max") and not block.sequential
    return block if own and all(value.dtype is DType.F32 for value in block.values) else None


def _product(block: Block, kernel: Kernel, constants: set[str]) -> Product | None:
    value = block.values[0]
    if block.monoid != "sum" or block.accumulator is not DType.F32 or len(block.axes) != 1 or len(block.reduction) != 1:
        return None
    if (
        not isinstance(value, Apply)
        or value.function != "mul"
        or block.stores[0].slot not in {t.name for t in kernel.temps}
    ):
        return None
    (column,), (depth,) = block.axes, block.reduction
    for a, w in (value.args, value.args[::-1]):
        whole = a.arg if isinstance(a, Cast) and a.arg.dtype is DType.I16 else None
        if whole is not None and isinstance(w, Cast) and w.arg.dtype in CODES:
            a, w = whole, w.arg
        if not isinstance(w, Load) or w.slot not in constants or column in a.axes:
            continue
        if w.type is not DType.F32 and a is not whole:
            continue
        flat = flatten(w.index, kernel.slots[w.slot].type.dims)
        along = flat.coefficient(depth), flat.coefficient(column)
        if flat.axes == {depth, column} and None not in along:
            return Product(block, a, w.slot, flat.const, (along[0] or 0, along[1] or 0), w.type)
    return None


def _end(found: Recurrence) -> End | None:
    """Where choices by one and the same length say all that happens beyond it."""
    temps = {temp.name for temp in found.kernel.temps}
    maps = [block for block in found.blocks if isinstance(block, Block)]
    choices = (part for block in maps for value in block.values for part in value.walk() if isinstance(part, Where))
    conditions = (condition for choice in choices for condition in conjuncts(choice.condition))
    lengths = dict.fromkeys(length for one in conditions if (length := _length(one, found.time)) is not None)
    if len(lengths) != 1:
        return None
    (length,) = lengths
    if any(load.slot in temps for load in length.loads):
        return None

    def settled(expr: Expr) -> Expr:
        if not isinstance(expr, Where):
            return expr
        beyond = any(_length(one, found.time) == length for one in conjuncts(expr.condition))
        return expr.otherwise if beyond else expr

    outputs = {slot.name for slot in found.kernel.outputs}
    ending = [replace(block, values=tuple(value.transform(settled) for value in block.values)) for block in maps]
    stored = tuple(block for block in ending if block.writes & outputs)
    states = frozenset().union(*(block.reads & temps for block in stored))
    stays = all(
        _stays(value, store, found.time)
        for block in ending
        for value, store in zip(block.values, block.stores, strict=True)
        if store.slot in states
    )
    made = {product.into for product in found.products}
    return End(length, stored) if stays and not states & made else None


def _length(condition: Expr, time: Axis) -> Expr | None:
    """The number of steps below which a condition holds; None for a condition of another form."""
    if not isinstance(condition, Apply) or condition.function != "lt":
        return None
    step, length = condition.args
    return length if step == Position(Index.of(time)) and time not in length.axes else None


def _stays(value: Expr, store: Store, time: Axis) -> bool:
    """Whether a state is given what it was before, at every step but the first."""
    later = Apply("gt", (Position(Index.of(time)), Const(0, DType.I64)))
    if isinstance(value, Where) and value.condition == later:
        value = value.then
    return value == Load(store.slot, store.index, value.dtype)
