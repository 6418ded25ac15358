"""Register tiles for matrix products and convolutions: accumulators fill the registers, blocks fit the caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from math import prod

from compiler.devices.cpu.blocking import REST_PARTS, even_part, most_rows, rest_step
from compiler.devices.cpu.model import CALL_NS, IN_FLIGHT, STREAMING
from compiler.devices.cpu.products.row_cuts import MOST, busiest, sizes, with_row_cuts
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import open_axes
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.normal_form import Slots
from compiler.forms.operand import InPlace, operand, row_axes
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

MOST_VECTORS = 6
TASKS_PER_LANE = 4
"""Into how many tasks per lane the rows may be cut."""
GATHER_NS = 0.12
"""One element of A gathered into packed rows."""
STRETCH = 256
"""About so many products are summed in registers before the sums go to memory."""
MOST_BY_STRETCH = 32
"""Most register tiles of a block for which reading B once, segment by segment of k, may pay.

It keeps all of the block's sums in memory.
"""
SPLITS = 2
"""Blocks proposed for each register tile."""
TILE_LOADS = 60
"""What a register tile costs beside its sums, in loads."""
SAMPLED = 16
"""Sizes, evenly from the capacity down, at which rows that a size ends are costed: nobody knows which one will come."""


Split = tuple[int, int, int, bool]
"""Rows along y and m of a block, its panels, and whether B is read stretch by stretch."""


@dataclass(frozen=True)
class _Shape:
    """A register tile of y x m rows and `vectors` vectors."""

    y: int
    m: int
    vectors: int


def contraction_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles of rows x columns of registers, cheapest by the model first.

    Empty unless the kernel is a matrix product.
    """
    view = as_contraction(workload)
    if view is None:
        return []
    slots = Slots(workload)
    costs = [
        _Costs(workload, view, slots, shape, target, lanes) for shape in dict.fromkeys(_shapes(view, slots, target))
    ]
    options = [proposal for one in costs for proposal in one.proposals()]
    cuts = [(ns, one, split) for one in costs for ns, split in one.row_cuts()] if lanes > 1 else []
    # All are different tiles, so that others than these are not among the best beside `options`.
    best = nsmallest(len(options) + MOST, cuts, key=lambda cut: cut[0])
    return with_row_cuts(options, ((ns, one.proposal(split)) for ns, one, split in best), lanes)


def reads_whole_rows(workload: Workload) -> bool:
    """Whether A, which micro-kernels read where it lies, is in memory what they compute with."""
    view = as_contraction(workload)
    if view is None:
        return False
    buffers = Slots(workload).buffers
    return all(buffers[load.slot].element is None for load in view.a.loads if load.slot in buffers)


def _shapes(view: Contraction, slots: Slots, target: CpuTarget) -> Iterator[_Shape]:
    """Rectangles of rows that fill the registers.

    `vectors` vectors of B and a broadcast element of A take some of them.
    """
    gathered = operand(view, slots, {}) is None
    y, m = _row_extents(view, gathered)
    is_open = _open_rows(view, gathered)[-1]
    for vectors in range(1, MOST_VECTORS + 1):
        if vectors > 1 and vectors * target.vector_floats - view.columns >= target.vector_floats:
            break
        most = most_rows(vectors, target)
        yield _Shape(1, even_part(m, most), vectors)
        if is_open and most > REST_PARTS:
            yield _Shape(1, min(most // REST_PARTS * REST_PARTS, m), vectors)
        if m <= most // 2 and y > 1:
            yield _Shape(even_part(y, most // m), m, vectors)


def _row_extents(view: Contraction, gathered: bool) -> tuple[int, int]:
    """Of the two innermost row axes, 1 for those there are not; gathered rows are one axis."""
    extents = [view.rows] if gathered else [axis.extent for axis in view.m[-2:]]
    return (1, 1, *extents)[-2], (1, 1, *extents)[-1]


def _open_rows(view: Contraction, gathered: bool) -> tuple[bool, bool]:
    """Of the rows of `_row_extents`, whether a size that is known while running ends them."""
    ended = open_axes(view.kernel)
    rows = [bool(ended & {*view.m[:1]})] if gathered else [axis in ended for axis in view.m[-2:]]
    return (False, False, *rows)[-2], (False, False, *rows)[-1]


def _cuts(extent: int, part: int, is_open: bool = False) -> list[tuple[int, int]]:
    """How an axis is cut into parts: (how many, how long), the remainder last; rounded up where a size ends it."""
    whole, rest = divmod(extent, part)
    if is_open and rest:
        step = rest_step(part)
        rest = min(-(-rest // step) * step, part)
    return [*([(whole, part)] if whole else []), *([(1, rest)] if rest else [])]


class _Costs:
    """Blocks for one register tile and what they should cost, in nanoseconds of one core."""

    def __init__(
        self, workload: Workload, view: Contraction, slots: Slots, shape: _Shape, target: CpuTarget, lanes: int
    ) -> None:
        self.workload, self.view, self.shape, self.target, self.lanes = workload, view, shape, target, lanes
        self.rates = target.rates
        self.panel = shape.vectors * target.vector_floats
        self.packed = packing_of(view, workload, self.panel) is not None
        self.access = operand(view, slots, self._blocks(shape.y, shape.m))
        self.y, self.m = _row_extents(view, self.access is None)
        self.open = _open_rows(view, self.access is None)
        self.outer = 1 if self.access is None else prod(axis.extent for axis in view.m[:-2])
        self.panels = -(-view.columns // self.panel)
        self.ways = (False, True) if self.packed and view.depth > STRETCH else (False,)
        """Whether B is read stretch by stretch."""
        self.products = {by_stretch: self._products(by_stretch) for by_stretch in self.ways}
        self.ns: dict[Split, float] = {}

    def proposals(self) -> list[Proposal]:
        """The cheapest blocks of rows and columns; where B is large, read once stretch by stretch and not."""
        found = []
        for by_stretch in self.ways:
            splits = {split: self._busiest(split) for split in self._splits(by_stretch)}
            found += [self.proposal(split) for split in sorted(splits, key=lambda split: splits[split])[:SPLITS]]
        return found

    def row_cuts(self) -> Iterator[tuple[float, Split]]:
        """Blocks of which each lane has some rows, with what the slowest lane takes.

        None for batches, whose tasks are cut there first.
        """
        for by_stretch in self.ways if self.view.batches == 1 else ():
            for split in self._splits(by_stretch):
                y, m, panels, _ = split
                if self._row_blocks(y, m) >= self.lanes:
                    columns = sizes(self.panels, panels)
                    rows = [tall * long for tall in sizes(self.y, y) * self.outer for long in sizes(self.m, m)]
                    tasks = len(rows) * len(columns)
                    uneven = busiest(rows, columns, self.lanes) * tasks / -(-tasks // self.lanes)
                    yield self._busiest(split) * uneven, split

    def proposal(self, split: Split) -> Proposal:
        """The tile of these blocks."""
        y, m, panels, by_stretch = split
        lines = (("y", y),) if self.y > 1 else ()
        depth = (("k", STRETCH),) if by_stretch else ()
        tile = Tile(
            "contraction",
            (
                Level("block", (*lines, ("m", m), ("n", panels * self.panel), *depth)),
                Level("register", (*((("y", self.shape.y),) if lines else ()), ("m", self.shape.m), ("n", self.panel))),
                Level("vector", (("n", self.target.vector_floats),)),
            ),
            in_registers(self.view.kernel),
        )
        blocks = self._row_blocks(y, m) if self.view.batches == 1 else 1
        return Proposal(tile, 1e-9 * (CALL_NS + self._busiest(split) * self.lanes), row_blocks=blocks)

    # Blocks

    def _splits(self, by_stretch: bool) -> Iterator[Split]:
        """From as few blocks as fit half the second-level cache, up to some for each lane."""
        parts_of_columns = (1, self.lanes, 2 * self.lanes) if self.lanes > 1 else (1,)
        column_parts = {-(-self.panels // parts) for parts in parts_of_columns if parts <= self.panels}
        whole, part = (self.y, self.shape.y) if self.y > 1 else (self.m, self.shape.m)
        lines = -(-whole // part)
        for size in sorted({-(-lines // parts) for parts in range(1, lines + 1)}, reverse=True):
            rows = min(size * part, whole)
            y, m = (rows, self.m) if self.y > 1 else (1, rows)
            too_large = self._block_bytes(y, m) > self.target.l2_bytes // 2 or (
                by_stretch and self._tiles(y, m) > MOST_BY_STRETCH
            )
            if not (too_large and size > 1):
                yield from ((y, m, panels, by_stretch) for panels in column_parts)
            if not too_large and -(-lines // size) >= TASKS_PER_LANE * self.lanes:
                break

    def _row_blocks(self, y: int, m: int) -> int:
        return self.outer * -(-self.y // y) * -(-self.m // m)

    def _tiles(self, y: int, m: int) -> int:
        return -(-y // self.shape.y) * -(-m // self.shape.m)

    def _staged(self, y: int, m: int) -> int:
        """Elements of A copied for a block of rows."""
        if self.access is None:
            return y * m * self.view.depth
        if isinstance(self.access, InPlace):
            return 0
        return self.access.floats(self._blocks(y, m), self.view.m[-1] if self.view.m else None)

    def _blocks(self, y: int, m: int) -> dict[Axis, int]:
        extents = {"y": y, "m": m}
        return {**dict.fromkeys(self.view.m, 1), **{axis: extents[role] for role, axis in row_axes(self.view).items()}}

    def _block_bytes(self, y: int, m: int) -> int:
        """What a block keeps in the second-level cache: its rows of A and of the result."""
        return 4 * (self._staged(y, m) or y * m * self.view.depth) + 4 * y * m * self.view.columns

    # Costs

    def _busiest(self, split: Split) -> float:
        """Nanoseconds of the lane with most to do."""
        if split not in self.ns:
            self.ns[split] = self._busiest_ns(*split)
        return self.ns[split]

    def _busiest_ns(self, y: int, m: int, panels: int, by_stretch: bool) -> float:
        row_blocks = self._row_blocks(y, m)
        column_blocks = -(-self.panels // panels)
        tasks = self.view.batches * row_blocks * column_blocks
        mine = -(-tasks // self.lanes)
        share = mine / tasks * self.view.batches
        products = share * self.outer * self.products[by_stretch]
        copied = -(-mine // column_blocks) * self._staged(y, m) * (GATHER_NS if self.access is None else self._copy_ns)
        if not self.packed:
            again = mine if column_blocks > 1 else min(mine, self.view.batches)
            return products + copied + again * panels * self.panel * self.view.depth * 2 * self._copy_ns
        streamed = share * 4 * self.view.depth * self.view.columns / self.rates.weights_per_ns
        hidden = by_stretch or 4 * self.view.depth * self.panel < self.target.l2_bytes // 3
        fetched = (
            max(products, streamed) if hidden and self._tiles(y, m) > 1 else max(products, streamed) + streamed / 2
        )
        return fetched + copied

    @property
    def _copy_ns(self) -> float:
        """One element read from the second-level cache and written to it."""
        return 8 / self.rates.l2_per_ns

    def _products(self, by_stretch: bool) -> float:
        """All rows of a batch's point of the outer axes against all columns: whole register tiles, and remainders.

        Where a size ends rows, the mean over sizes of what it takes for each row that is there, times all rows.
        """
        if not any(self.open):
            return self._products_of(self.y, self.m, by_stretch)
        taken = []
        for part in range(1, SAMPLED + 1):
            y, m = (
                -(-extent * part // SAMPLED) if is_open else extent
                for extent, is_open in zip((self.y, self.m), self.open, strict=True)
            )
            taken.append(self._products_of(y, m, by_stretch) * self.y * self.m / (y * m))
        return sum(taken) / SAMPLED

    def _products_of(self, y: int, m: int, by_stretch: bool) -> float:
        vectors = -(-self.view.columns // self.target.vector_floats)
        whole, rest = divmod(vectors, self.shape.vectors)
        of_y, of_m = (
            _cuts(extent, part, is_open)
            for extent, part, is_open in zip((y, m), (self.shape.y, self.shape.m), self.open, strict=True)
        )
        return sum(
            count * ways * panels * self._tile(tall * long, wide, by_stretch)
            for ways, tall in of_y
            for count, long in of_m
            for panels, wide in ((whole, self.shape.vectors), (1, rest))
            if wide
        )

    def _tile(self, rows: int, vectors: int, by_stretch: bool) -> float:
        return tile_ns(rows, vectors, self.view.depth, self.panel, self.target, by_stretch)


def tile_ns(rows: int, vectors: int, depth: int, panel: int, target: CpuTarget, by_stretch: bool) -> float:
    """One register tile: bound by multiply-adds, their latency, loads or B's level; then its results.

    As many loads as multiply-adds start in a cycle.
    """
    sums, rates = rows * vectors, target.rates
    near = 4 * depth * panel <= target.l1_bytes // 2
    b_ns = 4 * target.vector_floats * vectors / (rates.l1_per_ns if near else rates.l2_per_ns / STREAMING)
    step = max(max(sums, IN_FLIGHT, rows + vectors) / rates.fma_per_ns, b_ns)
    stretches = -(-depth // STRETCH)
    passes = stretches + 1 + by_stretch if stretches > 1 else 1
    return depth * step + (2 * passes * sums + TILE_LOADS) / rates.fma_per_ns
