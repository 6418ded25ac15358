"""Kernel: computation defined as loop nests.

    kernel k(in x: f32[1, 64, 56, 56], in w: f32[64, 64, 3, 3]; temp t: f32[1, 64, 56, 56]; out y: f32[1, 64, 56, 56])
      for n:1, k:64, oy:56, ox:56                        shared: every block runs inside these loops
        t[n, k, oy, ox] = sum c:64, r:3, s:3 . where(...)    a Block with a reduction
        y[n, k, oy, ox] = max(t[n, k, oy, ox], 0.0)          a Block without

A Block is a loop nest of its own axes inside the kernel's `shared` axes. Parallel axes may run in any order; reduction
axes combine by a monoid; sequential axes run in ascending order, so that a block may read what it, or a later block of
the same kernel, stored at an earlier position (a recurrent state). Blocks run in the order given at each point of the
shared axes. Temporaries connect blocks; one that is only touched at its own point of the shared axes needs no storage
across them, which is what fusion buys: a shared parallel axis that no access to it mentions may be left out of its
shape, and each point of that axis then has a temporary of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from compiler.errors import VerifyError
from compiler.ir.expr import FUNCTIONS, Apply, Expr, Load, Position, Where
from compiler.ir.graph import Attr
from compiler.ir.index import Axis, Index, print_axes
from compiler.ir.inside import leaving, may_leave
from compiler.ir.tensor import DType, Symbol, TensorType
from compiler.ir.text import print_kernel, print_routine


@dataclass(frozen=True)
class Monoid:
    """How a reduction combines: `width` values at once, each step associative."""

    name: str
    width: int = 1


MONOIDS: Mapping[str, Monoid] = {
    monoid.name: monoid
    for monoid in (
        Monoid("sum"),
        Monoid("prod"),
        Monoid("max"),
        Monoid("min"),
        Monoid("and"),
        Monoid("or"),
        Monoid("argmax_first", 2),
        Monoid("argmax_last", 2),
        Monoid("argmin_first", 2),
        Monoid("argmin_last", 2),
        Monoid("softmax", 2),
    )
}
"""`arg*` combine (value, index); `softmax` combines (max, sum of exp(x - max)), its inputs are (x, 1). An empty
reduction gives the identity: 0, 1, the least or greatest value, true, false; (least or greatest value, 0);
(-inf, 0)."""


@dataclass(frozen=True)
class Slot:
    """A tensor as a kernel sees it: its local name and logical type."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def _symbolic(*slots: Slot) -> str:
    """The first slot with a symbol for a dimension, and that symbol; empty where all are static."""
    found = ((slot, dim) for slot in slots for dim in slot.type.shape if isinstance(dim, Symbol))
    return next((f"the slot `{slot}` with the symbol {dim}" for slot, dim in found), "")


@dataclass(frozen=True)
class Store:
    """Where a block puts one of its values."""

    slot: str
    index: tuple[Index, ...]

    def __str__(self) -> str:
        return f"{self.slot}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Block:
    """stores = monoid over `reduction` of `values`, for each point of `axes`; without a monoid, stores = values.

    `sequential` names those of `axes` whose order matters. `accumulator` is the dtype in which a reduction is carried
    out; its result is cast to the slot's.
    """

    axes: tuple[Axis, ...]
    values: tuple[Expr, ...]
    stores: tuple[Store, ...]
    reduction: tuple[Axis, ...] = ()
    monoid: str = ""
    accumulator: DType | None = None
    sequential: tuple[Axis, ...] = ()

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the slots that values or indices of stores load."""
        return frozenset(load.slot for value in self.values for load in value.loads) | frozenset(
            load.slot for store in self.stores for index in store.index for load in _index_loads(index)
        )

    @cached_property
    def writes(self) -> frozenset[str]:
        """Names of the slots that are stored to."""
        return frozenset(store.slot for store in self.stores)

    def __str__(self) -> str:
        left = ", ".join(map(str, self.stores))
        right = ", ".join(map(str, self.values))
        head = f"for {print_axes(self.axes, self.sequential)}: " if self.axes else ""
        if not self.monoid:
            return f"{head}{left} = {right}"
        over = f" {print_axes(self.reduction)}" if self.reduction else ""
        return f"{head}{left} = {self.monoid}<{self.accumulator}>{over} . {right}"


def _index_loads(index: Index) -> tuple[Load, ...]:
    """Loads inside the indirect atoms of an index."""
    return Position(index).loads


def _axes(index: tuple[Index, ...]) -> frozenset[Axis]:
    return frozenset[Axis]().union(*(position.axes for position in index))


def _varying(block: Block, private: Mapping[str, frozenset[Axis]]) -> frozenset[Axis]:
    """The axes along which a block's values differ, through private temporaries too."""
    mentioned = frozenset[Axis]().union(*(value.axes for value in block.values))
    return mentioned.union(*(private.get(slot, frozenset()) for slot in block.reads))


def _inside_first(expr: Expr) -> Iterable[Expr]:
    """All of an expression, so that a fault in a part is found before anything is asked of the whole."""
    return reversed(tuple(expr.walk()))


@dataclass(frozen=True)
class Kernel:
    """One operator, or many fused ones, as computation.

    `family` names the operators it came from, for people and records.
    """

    family: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    blocks: tuple[Block, ...]
    temps: tuple[Slot, ...] = ()
    shared: tuple[Axis, ...] = ()
    sequential: tuple[Axis, ...] = ()
    """Those of `shared` whose order matters."""

    @cached_property
    def slots(self) -> Mapping[str, Slot]:
        """Inputs, temporaries and outputs by name."""
        return {slot.name: slot for slot in (*self.inputs, *self.temps, *self.outputs)}

    @cached_property
    def private(self) -> Mapping[str, frozenset[Axis]]:
        """For each temporary, the shared parallel axes at whose points it holds different values.

        Only axes that no access mentions.
        """
        parallel = {axis for axis in self.shared if axis not in self.sequential and axis.extent > 1}
        mentioned: dict[str, frozenset[Axis]] = {temp.name: frozenset() for temp in self.temps}
        for block in self.blocks:
            loads = (load for value in block.values for load in value.loads)
            accesses: tuple[Store | Load, ...] = (*block.stores, *loads)
            for access in accesses:
                if access.slot in mentioned:
                    mentioned[access.slot] |= _axes(access.index)
        private: dict[str, frozenset[Axis]] = {temp.name: frozenset() for temp in self.temps}
        grown = True
        while grown:
            before = dict(private)
            for block in self.blocks:
                for slot in block.writes & private.keys():
                    private[slot] |= (_varying(block, private) & parallel) - mentioned[slot]
            grown = private != before
        return private

    def verify(self) -> None:
        """Raises VerifyError for a kernel that is not well-formed.

        Names must be unique, slots static and declared, ranks and dtypes fit, and values be read after they are stored.
        """
        names = [slot.name for slot in (*self.inputs, *self.temps, *self.outputs)]
        if len(set(names)) != len(names):
            raise VerifyError(f"kernel {self.family} names a slot twice: {names}\n{self}")
        if symbolic := _symbolic(*self.inputs, *self.temps, *self.outputs):
            raise VerifyError(f"kernel {self.family} has {symbolic}, which needs a number for each dimension\n{self}")
        if [axis for axis in self.shared if axis in self.sequential] != list(self.sequential):
            raise VerifyError(
                f"kernel {self.family} has sequential axes that are not shared, in the same order\n{self}"
            )
        stored = {slot.name for slot in self.inputs}
        carried = bool(self.sequential)
        for block in self.blocks:
            self._verify_block(block)
            missing = block.reads - stored
            if missing and not (carried or block.sequential):
                raise VerifyError(f"`{block}` reads {sorted(missing)} before a block stores it\n{self}")
            stored |= block.writes
        if unwritten := [slot.name for slot in self.outputs if slot.name not in stored]:
            raise VerifyError(f"no block stores {unwritten}\n{self}")

    def verify_inside(self) -> None:
        """Raises VerifyError unless each load that is taken, and each store, is shown to lie inside its slot."""
        shapes = {name: slot.type.dims for name, slot in self.slots.items()}
        for block in self.blocks:
            if not all(axis.extent for axis in (*self.shared, *block.axes)):
                continue
            for store in block.stores:
                if where := may_leave(store.index, shapes[store.slot], {}):
                    raise VerifyError(f"`{block}` may store outside of `{self.slots[store.slot]}`, {where}\n{self}")
            places = [Position(index) for store in block.stores for index in store.index]
            values = block.values if all(axis.extent for axis in block.reduction) else ()
            if found := leaving((*places, *values), shapes):
                raise VerifyError(f"`{block}` {found}, which may be outside\n{self}")

    def _verify_block(self, block: Block) -> None:
        scope = {*self.shared, *block.axes, *block.reduction}
        if len({axis.name for axis in scope}) != len(self.shared) + len(block.axes) + len(block.reduction):
            raise VerifyError(f"`{block}` uses an axis twice\n{self}")
        if [axis for axis in block.axes if axis in block.sequential] != list(block.sequential):
            raise VerifyError(f"`{block}` has sequential axes that are not axes of it, in the same order\n{self}")
        if len(block.values) != len(block.stores):
            raise VerifyError(f"`{block}` has {len(block.values)} values for {len(block.stores)} stores\n{self}")
        if bool(block.monoid) != (block.accumulator is not None) or (block.reduction and not block.monoid):
            raise VerifyError(f"`{block}` needs a monoid and an accumulator, or no reduction\n{self}")
        if block.monoid and block.monoid not in MONOIDS:
            raise VerifyError(f"`{block}` reduces by {block.monoid}, which is no monoid\n{self}")
        if block.monoid and MONOIDS[block.monoid].width != len(block.values):
            raise VerifyError(f"`{block}`: {block.monoid} combines {MONOIDS[block.monoid].width} values\n{self}")
        self._verify_stores(block)
        for store, value in zip(block.stores, block.values, strict=True):
            if loose := value.axes - scope:
                raise VerifyError(f"`{block}` reads axis {sorted(map(str, loose))}, which is no axis of it\n{self}")
            for expr in _inside_first(value):
                self._verify_expr(block, expr)
            if not block.monoid and value.dtype is not self.slots[store.slot].type.dtype:
                raise VerifyError(f"`{block}` stores {value.dtype} into `{self.slots[store.slot]}`\n{self}")
            self._verify_race(block, store)

    def _verify_stores(self, block: Block) -> None:
        for store in block.stores:
            self._verify_access(block, store.slot, store.index)
            if any(slot.name == store.slot for slot in self.inputs):
                raise VerifyError(f"`{block}` stores into the input {store.slot}\n{self}")
            if loose := _axes(store.index) - {*self.shared, *block.axes}:
                raise VerifyError(f"`{block}` stores at {sorted(map(str, loose))}, which is no axis of it\n{self}")
            for index in store.index:
                for expr in _inside_first(Position(index)):
                    self._verify_expr(block, expr)

    def _verify_race(self, block: Block, store: Store) -> None:
        """A value that differs along a parallel axis must be stored at a place that does."""
        ordered = {*self.sequential, *block.sequential, *block.reduction}
        placed = _axes(store.index) | self.private.get(store.slot, frozenset())
        if racing := {axis for axis in _varying(block, self.private) - placed - ordered if axis.extent > 1}:
            raise VerifyError(
                f"`{block}` stores one {store} for all of {sorted(map(str, racing))}, in no order\n{self}"
            )

    def _verify_expr(self, block: Block, expr: Expr) -> None:
        if isinstance(expr, Load):
            self._verify_access(block, expr.slot, expr.index)
            if expr.type is not self.slots[expr.slot].type.dtype:
                raise VerifyError(f"`{expr}` is declared {expr.type} but {self.slots[expr.slot]}\n{self}")
        if isinstance(expr, Apply):
            function = FUNCTIONS.get(expr.function)
            if function is None or len(expr.args) != function.arity:
                raise VerifyError(f"`{expr}` is no function of {len(expr.args)} arguments\n{self}")
            if len({arg.dtype for arg in expr.args}) != 1:
                raise VerifyError(f"`{expr}` mixes dtypes {[str(arg.dtype) for arg in expr.args]}\n{self}")
        if isinstance(expr, Where):
            if expr.condition.dtype is not DType.BOOL:
                raise VerifyError(f"`{expr}` has a condition of dtype {expr.condition.dtype}, not bool\n{self}")
            if expr.then.dtype is not expr.otherwise.dtype:
                raise VerifyError(f"`{expr}` mixes dtypes {expr.then.dtype} and {expr.otherwise.dtype}\n{self}")

    def _verify_access(self, block: Block, slot: str, index: tuple[Index, ...]) -> None:
        if slot not in self.slots:
            raise VerifyError(f"`{block}` mentions {slot}, which is not declared\n{self}")
        if len(index) != self.slots[slot].type.rank:
            raise VerifyError(f"`{block}` indexes {self.slots[slot]} with {len(index)} positions\n{self}")

    def __str__(self) -> str:
        return print_kernel(self)


@dataclass(frozen=True)
class Routine:
    """A computation that is no loop nest (sort, top-k, non-maximum suppression).

    It is written by hand for each kind of device. `name` selects it in `compiler.codegen`, `params` are its
    compile-time parameters.
    """

    family: str
    name: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    params: Mapping[str, Attr] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.family, self.name, self.inputs, self.outputs, tuple(sorted(self.params.items()))))

    def verify(self) -> None:
        """Raises VerifyError when a slot is named twice or has a symbol for a dimension."""
        names = [slot.name for slot in (*self.inputs, *self.outputs)]
        if len(set(names)) != len(names):
            raise VerifyError(f"routine {self.name} names a slot twice: {names}")
        if symbolic := _symbolic(*self.inputs, *self.outputs):
            raise VerifyError(f"routine {self.name} has {symbolic}, which needs a number for each dimension")

    def __str__(self) -> str:
        return print_routine(self)
