"""Recurrences seen as chains of hidden units: what each unit needs of the others at every step, and what is its own.

A chain is one direction of a recurrent layer. Its temporaries are [batch, gates * units], and each map is one unit's
matter: it reads and stores the unit's elements of every gate. Only the right operands of products reach across units,
so units can be dealt out to blocks of threads which exchange nothing but the state that a product reads:

    xs[b, g * units + j] = sum over i of x[t, b, i] W[i, g * units + j]       ahead of the steps
    hs[b, g * units + j] = sum over k of h[b, k] R[k, g * units + j]          h of all units, at the step before
    c[b, j], h[b, j]     = maps of xs, hs, c, h at unit j
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compiler.forms.normal_form import substitute
from compiler.forms.recurrence import Product, Recurrence, as_recurrence
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType

THREADS = 512
"""Of a block that has some of the units."""
COLUMNS = 4
"""Of one thread in a product."""
LEAST_UNITS = 4
"""Of which a chain has to have more than one thread's share."""


@dataclass(frozen=True)
class UnitColumns:
    """Parts of a constant as the blocks of a cluster read them.

    For each part and block [k][gate][unit of the block], zero-padded. A part is (first element, depth, gates, stride
    along k, stride along columns), in elements of the row-major constant; a block has `share` of the `units`.
    """

    parts: tuple[tuple[int, int, int, int, int], ...]
    units: int
    blocks: int
    share: int
    dtype: DType = DType.F32

    @property
    def elements(self) -> int:
        """fp32 elements of all parts, units that fill the last block included."""
        return sum(self.part_elements(part) for part in range(len(self.parts)))

    def part_elements(self, part: int) -> int:
        """Of one part, for all blocks."""
        _, depth, gates, _, _ = self.parts[part]
        return self.blocks * depth * gates * self.share

    def first(self, part: int) -> int:
        """Where a part begins among the packed elements."""
        return sum(map(self.part_elements, range(part)))

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The parts as the class describes them, float32 with one axis."""
        flat = constant.astype(np.float32, copy=False).reshape(-1)
        packed = []
        for start, depth, gates, along, across in self.parts:
            unit = np.arange(self.blocks * self.share)
            column = np.arange(gates)[:, None] * self.units + np.minimum(unit, self.units - 1)[None, :]
            part = flat[start + np.arange(depth)[:, None, None] * along + column * across]
            part = np.where(unit < self.units, part, 0.0).reshape(depth, gates, self.blocks, self.share)
            packed.append(part.transpose(2, 0, 1, 3).reshape(-1))
        return np.concatenate(packed).astype(self.dtype.numpy)


def share_of(units: int, blocks: int) -> int:
    """Hidden units of one block: whole vectors of columns."""
    return -(-units // (blocks * COLUMNS)) * COLUMNS


@dataclass(frozen=True)
class Chain:
    """One direction: Products, and maps along `unit`, in the order of a step."""

    view: Recurrence
    unit: Axis
    blocks: tuple[Product | Block, ...]

    @property
    def units(self) -> int:
        """Units of the hidden state."""
        return self.unit.extent

    @property
    def products(self) -> tuple[Product, ...]:
        """The products among the blocks of a step."""
        return tuple(block for block in self.blocks if isinstance(block, Product))

    @cached_property
    def exchanged(self) -> frozenset[str]:
        """The temporaries that products read, of all units."""
        return frozenset(source_of(p).slot for p in self.products if p.into not in self.view.ahead)

    @cached_property
    def temps(self) -> Mapping[str, int]:
        """The temporaries of this chain, and for how many gates each has elements."""
        stored = {slot for block in self.blocks for slot in _stores(block)}
        widths = {temp.name: temp.type.dims[1] for temp in self.view.kernel.temps}
        return {temp: width // self.units for temp, width in widths.items() if temp in stored}


def source_of(product: Product) -> Load:
    """The state that a product reads, at any step but the first."""
    a = product.a.then if isinstance(product.a, Where) else product.a
    assert isinstance(a, Load), a
    return a


def initial_of(product: Product) -> Expr | None:
    """What a product reads at the first step, where that is not the state."""
    return product.a.otherwise if isinstance(product.a, Where) else None


def as_chains(workload: Workload) -> tuple[Chain, ...] | None:
    """A recurrent layer as chains that do not touch one another.

    None where units need more of each other than products give.
    """
    view = as_recurrence(workload)
    if view is None or view.codes:
        return None
    chains = []
    for blocks in _connected(view):
        chain = _chain(view, blocks)
        if chain is None:
            return None
        chains.append(chain)
    return tuple(chains)


def _stores(block: Product | Block) -> list[str]:
    inner = block.block if isinstance(block, Product) else block
    return [store.slot for store in inner.stores]


def _loads(block: Product | Block) -> list[Load]:
    values: Iterable[Expr] = (block.a,) if isinstance(block, Product) else block.values
    return [load for value in values for load in value.loads]


def _connected(view: Recurrence) -> list[list[Product | Block]]:
    """The blocks in groups that share no temporary, in the order of the step."""
    temps = {temp.name for temp in view.kernel.temps}
    groups: list[tuple[set[str], list[Product | Block]]] = []
    for block in view.blocks:
        touched = ({load.slot for load in _loads(block)} | set(_stores(block))) & temps
        meeting = [group for group in groups if group[0] & touched]
        joined = (touched.union(*(slots for slots, _ in meeting)), [one for _, blocks in meeting for one in blocks])
        groups = [group for group in groups if group not in meeting]
        groups.append((joined[0], [*joined[1], block]))
    order = list(map(id, view.blocks))
    return [sorted(blocks, key=lambda block: order.index(id(block))) for _, blocks in groups]


def _chain(view: Recurrence, blocks: Sequence[Product | Block]) -> Chain | None:
    maps = [block for block in blocks if isinstance(block, Block)]
    if not maps or any(len(block.axes) != 1 for block in maps):
        return None
    unit = maps[0].axes[0]
    if unit.extent < LEAST_UNITS or any(block.axes[0].extent != unit.extent for block in maps):
        return None
    along = tuple(
        replace(substitute(block, {block.axes[0]: Index.of(unit)}), axes=(unit,)) if isinstance(block, Block) else block
        for block in blocks
    )
    chain = Chain(view, unit, along)
    return chain if _keeps_apart(chain) else None


def _keeps_apart(chain: Chain) -> bool:
    """Whether maps touch their own unit's elements alone, and products one state each.

    Maps have stored that state for all units. A step begins with such a product.
    """
    view, batch = chain.view, Index.of(chain.view.batch) if chain.view.batch else Index.of(0)
    widths = {temp.name: temp.type.dims[1] for temp in view.kernel.temps}
    stored: set[str] = set()
    for product in chain.products:
        columns, depth = Index.of(product.column), Index.of(product.depth)
        if product.block.stores[0].index != (batch, columns) or product.column.extent % chain.units:
            return False
        if product.into not in view.ahead and not _reads_state(product, view.time, (batch, depth), widths):
            return False
    results = {product.into for product in chain.products}
    recurrent = [product for product in chain.products if product.into not in view.ahead]
    before = [block for block in chain.blocks if isinstance(block, Block) or block in recurrent]
    states = [source_of(product).slot for product in recurrent]
    if not recurrent or before[0] is not recurrent[0] or len(set(states)) < len(states):
        return False
    for block in chain.blocks:
        if isinstance(block, Block):
            for load in _loads(block):
                if load.slot in widths and not _is_own(load.index, batch, chain.unit):
                    return False
                if load.slot in results - stored:
                    return False
            if any(store.slot in widths and store.index != (batch, Index.of(chain.unit)) for store in block.stores):
                return False
        if stored & set(_stores(block)) & widths.keys():
            return False
        stored.update(_stores(block))
    return all(widths[slot] == chain.units and slot not in results for slot in chain.exchanged)


def _is_own(index: tuple[Index, ...], batch: Index, unit: Axis) -> bool:
    """Whether an element of a temporary is that of the unit, of any gate."""
    return index[0] == batch and (index[1] - index[1].const) == Index.of(unit) and index[1].const % unit.extent == 0


def _reads_state(product: Product, time: Axis, index: tuple[Index, ...], widths: Mapping[str, int]) -> bool:
    """Whether a product reads a temporary, at the first step perhaps something else that no step has stored."""
    a = product.a
    if isinstance(a, Where):
        later = Apply("gt", (Position(Index.of(time)), Const(0, DType.I64)))
        if a.condition != later or any(load.slot in widths or time in load.axes for load in a.otherwise.loads):
            return False
        a = a.then
    return isinstance(a, Load) and a.index == index and widths.get(a.slot) == product.depth.extent
