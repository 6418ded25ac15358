"""The `recurrent` algorithm: recurrent layers as one task that goes through time.

What the gates get from the input needs no earlier step: for some steps at a time it is one matrix product by the
micro-kernel. Then, step by step, follow products of the state with packed weights, read at the speed of the cache they
stay in, and maps along the hidden units. All elements of the batch go through a block before the next block begins, so
that up to MAX_ROWS of them share what is read of the weights.

A tile says for how many steps at a time the products of the input are made, and the panels of both kinds of products.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.writer import Writer
from compiler.devices.cpu.blocking import most_rows
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.micro_kernel import MicroKernel
from compiler.devices.cpu.codegen.rows import FLOATS, NARROW, RowsKernel, codes, is_fetched
from compiler.devices.cpu.codegen.strips import copy_row, store_vector, strips
from compiler.devices.cpu.model import CALL_NS, INT24_ERROR, read_rate, widen_cost
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.int24 import INT24, INT24_BYTES
from compiler.forms.cache_lines import whole_lines
from compiler.forms.gemv import MAX_ROWS, group_of
from compiler.forms.groups import Pairs
from compiler.forms.int24_panels import Int24Panels
from compiler.forms.normal_form import Slots
from compiler.forms.recurrence import Product, Recurrence, as_recurrence
from compiler.ir.index import Index, flatten
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

STEPS = 64
"""Whose input products are made at a time: enough rows to be bound by arithmetic, few enough to stay in a cache."""
VECTORS = 4
EXTREMES = {"min": "least", "max": "greatest"}
MAP_NS = 20.0
"""One vector of hidden units through the gates' functions."""


def recurrent_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """One tile, and where the workload allows it the same with the weights of the state in 24 bits.

    Where these are codes, that of `recurrent8`, which multiplies by them as they are.

    Empty unless the kernel is a recurrence.
    """
    view = as_recurrence(workload)
    if view is None:
        return []
    floats = target.vector_floats
    streams, vectors = _group(view, target)
    wide = VECTORS if target.vector_registers >= 32 else 2
    levels = (
        Level("block", (("t", STEPS), ("n", streams * vectors * floats))),
        Level("register", (("m", most_rows(wide, target)), ("n", wide * floats))),
        Level("vector", (("n", vectors * floats),)),
    )
    if view.codes:
        return [Proposal(Tile("recurrent8", levels), _seconds(view, view.codes.bytes, 0.0, target))]
    proposals = [Proposal(Tile("recurrent", levels), _seconds(view, DType.F32.bytes, 0.0, target))]
    bound = zip(workload.kernel.inputs, workload.encodings, strict=True)
    narrow = {slot.name for slot, encodings in bound if INT24 in encodings}
    if all(product.matrix in narrow for product in view.products if product.into not in view.ahead):
        seconds = _seconds(view, INT24_BYTES, widen_cost(target), target)
        proposals.append(Proposal(Tile("recurrent24", levels), seconds, INT24_ERROR))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _group(view: Recurrence, target: CpuTarget) -> tuple[int, int]:
    """Panels read side by side, and vectors in each, for the narrowest of the products that wait for the state."""
    floats = target.vector_floats
    columns = min((view.unit(p.matrix) for p in view.products if p.into not in view.ahead), default=floats)
    return group_of(min(view.sequences, MAX_ROWS), columns, target.vector_registers, floats)


def _seconds(view: Recurrence, element_bytes: int, widening: float, target: CpuTarget) -> float:
    """Every step reads the weights, or multiplies with them if that takes longer, and maps the hidden units.

    The weights are read from the level in which they stay. `widening` is what a vector of them takes each time beside
    the multiply-adds of its sequences, in multiply-adds.
    """
    floats = target.vector_floats
    elements = sum(product.column.extent * product.depth.extent for product in view.products)
    times = -(-view.sequences // MAX_ROWS)
    compute = (view.sequences + times * widening) * elements / floats / target.rates.fma_per_ns
    octets = element_bytes * elements
    read = times * octets / read_rate(octets, target)
    maps = view.sequences * sum(temp.type.dims[1] for temp in view.kernel.temps) / floats * MAP_NS
    return 1e-9 * (CALL_NS + view.time.extent * (max(compute, read) + maps))


def recurrent(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_recurrence` accepts.

    Levels: `block` t, steps whose input products are made at a time, and n, columns of the others that are worked on at
    a time; `register` m and n, the register tile of the former; `vector` n, columns of a panel of the latter, which
    under `recurrent24` holds 24 bits for each element (`compiler.encodings`), and under `recurrent8` integers, which
    states of 16 bits are multiplied by in pairs: nothing saturates, as pairs of bytes do on machines without VNNI.
    """
    view = as_recurrence(workload)
    assert view is not None, "the tile stage offers `recurrent` only to kernels of that form"
    return Recurrent(name, workload, view, tile, target)


@dataclass
class Recurrent(Lowering):
    """A recurrence as one task, under a tile of `recurrent_tiles`."""

    name: str
    workload: Workload
    view: Recurrence
    tile: Tile
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.slots = Slots(self.workload)
        self.lanes = self.target.vector_floats
        self.steps = min(self.tile.extent("block", "t"), self.view.time.extent)
        self.rows = self.tile.extent("register", "m")
        self.narrow = self.tile.algorithm == "recurrent24"
        self.temps = {temp.name: temp.type.dims for temp in self.view.kernel.temps}
        self.scratch = 0

    @property
    def grid(self) -> None:
        """None: one task does it all."""

    def lower(self) -> Lowered:
        """The C functions of the products, and that of the kernel."""
        view, writer = self.view, self.writer
        for number, product in enumerate(view.products):
            if product.into in view.ahead:
                self._write_tiles(f"{self.name}_{number}", product)
            else:
                self._write_rows(f"{self.name}_{number}", product)
        with kernel_function(writer, self.name, self.workload):
            self._declare()
            writer.line("if (begin == end) return;")
            end = self._end()
            with writer.block(f"for (long first = 0; first < {end}; first += {self.steps})"):
                writer.line(f"const long past = tw_least_of(first + {self.steps}, {end});")
                for number, product in enumerate(view.products):
                    if product.into in view.ahead:
                        self._many_steps(f"{self.name}_{number}", product)
                with self._each_step():
                    self._one_step()
            if view.end:
                with writer.block(f"for (long {view.time} = {end}; {view.time} < {view.time.extent}; {view.time}++)"):
                    for block in view.end.stored:
                        with self._each_sequence():
                            self._map(block)
        names = [slot.name for slot in view.kernel.inputs]
        matrices = dict.fromkeys(product.matrix for product in view.products)
        packings = {names.index(matrix): self._packing(matrix) for matrix in matrices}
        return Lowered(self.name, writer.text(), self.tasks, self.scratch, packings, headers=frozenset(writer.headers))

    def _end(self) -> str:
        """How many steps are taken: one at least, which gives states their first values."""
        view, writer = self.view, self.writer
        if view.end is None:
            return str(view.time.extent)
        writer.line("long steps = 1;")
        with self._each_sequence():
            writer.line(f"const long length = (long)({self._emitter(None).value(view.end.length)});")
            writer.line("if (length > steps) steps = length;")
        writer.line(f"if (steps > {view.time.extent}) steps = {view.time.extent};")
        return "steps"

    def _one_step(self) -> None:
        """Every block that is not made ahead, for all elements of the batch."""
        products = {id(product): number for number, product in enumerate(self.view.products)}
        for block in self.view.blocks:
            if isinstance(block, Block):
                with self._each_sequence():
                    self._map(block)
            elif block.into not in self.view.ahead:
                self._product(f"{self.name}_{products[id(block)]}", block)

    def _each_step(self) -> AbstractContextManager[None]:
        time = self.view.time
        return self.writer.block(f"for (long {time} = first; {time} < past; {time}++)")

    def _each_sequence(self) -> AbstractContextManager[None]:
        batch = self.view.batch
        return self.writer.block(f"for (long {batch} = 0; {batch} < {batch.extent}; {batch}++)" if batch else "")

    # Memory

    def _declare(self) -> None:
        view = self.view
        for temp, (_, width) in self.temps.items():
            self._region(temp, self._steps_of(temp) * view.sequences * width)
        gathered = (self._steps_of(product.into) * product.depth.extent for product in view.products)
        self._region("rows", max(gathered) * view.sequences)

    def _steps_of(self, temp: str) -> int:
        """For how many steps a temporary has places."""
        return self.steps if temp in self.view.ahead else 1

    def _region(self, name: str, floats: int) -> None:
        self.writer.line(f"float *const {name} = (float *)(scratch + {self.scratch});")
        self.scratch += whole_lines(4 * floats)

    def _address(self, slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        if slot not in self.temps:
            return self.slots.address(slot, index)
        flat = flatten(index, self.temps[slot])
        if slot not in self.view.ahead:
            return slot, flat
        size = self.view.sequences * self.temps[slot][1]
        return f"({slot} - first * {size})", flat + Index.of(self.view.time) * size

    def _emitter(self, vector: Vector | None) -> Emitter:
        extents = {**self.slots.extents, **self.temps}
        return Emitter(self.writer, self._address, vector, extents, self.slots.numerics)

    # Matrices

    def _panel(self, product: Product) -> int:
        """Columns of a panel of the product's matrix."""
        level = "register" if product.into in self.view.ahead else "vector"
        return self.tile.extent(level, "n")

    def _packing(self, matrix: str) -> Packing:
        product = next(product for product in self.view.products if product.matrix == matrix)
        panels = self.view.panels(matrix, self._panel(product))
        if product.dtype is not DType.F32:
            return Pairs(panels, product.dtype)
        return Int24Panels(panels) if self.narrow and product.into not in self.view.ahead else panels

    @contextmanager
    def _each_piece(self, product: Product, apart: int, ctype: str = "float") -> Iterator[int]:
        """A loop over the pieces of a product's matrix, whose first panels are `apart` from each other.

        `piece_b` is a piece's first panel. Yields the columns of a piece.
        """
        unit = self.view.unit(product.matrix)
        size = -(-unit // self._panel(product)) * apart
        first, count = self.view.first_piece(product), product.column.extent // unit
        with self.writer.block(f"for (long piece = 0; piece < {count}; piece++)"):
            matrix = f"(const {ctype} *){product.matrix}"
            self.writer.line(f"const {ctype} *const piece_b = {matrix} + ({first} + piece) * {size}L;")
            yield unit

    def _store(self, product: Product, unit: int, rows: int, width: int) -> None:
        """The sums `c` of some rows from `row` on, as wide as `width`, to the product's temporary.

        They go there from `column` of the piece on.
        """
        writer = self.writer
        writer.line(f"const long live = tw_least_of({unit} - column, {width});")
        place = f"{product.into} + (row + at) * {product.column.extent} + piece * {unit} + column"
        with writer.block(f"for (long at = 0; at < {rows}; at++)"):
            writer.line(f"memcpy({place}, c + at * {width}, live * sizeof(float));")

    def _gather(self, product: Product, into: str, factor: str = "") -> None:
        """A row of the left operand at this step and element of the batch."""
        copy_row(self.writer, self._emitter, self.lanes, (product.depth,), product.a, into, factor=factor)

    def _gather_codes(self, product: Product, into: str) -> None:
        """The same of integers of 16 bits; behind an odd number of them any integer may stand, which is times 0."""

        def copy(vector: Vector) -> None:
            text = self._emitter(vector).vi(product.a)
            store_vector(self.writer, f"{into} + {product.depth}", text, vector, "_i16")

        self.writer.include("tw_integer.h")
        strips(self.writer, product.depth, self.lanes, copy)

    # Products of many steps at a time

    def _write_tiles(self, name: str, product: Product) -> None:
        for rows in sorted({self.rows, 1}):
            offsets = tuple(row * product.depth.extent for row in range(rows))
            vectors = self._panel(product) // self.lanes
            MicroKernel(offsets, ((product.depth.extent, 1),), vectors, self.lanes).write(self.writer, f"{name}_{rows}")

    def _many_steps(self, name: str, product: Product) -> None:
        """The product for the steps first .. past: [step][b][column]."""
        writer, view, deep, panel = self.writer, self.view, product.depth.extent, self._panel(product)
        with self._each_step(), self._each_sequence():
            place = f"(({view.time} - first) * {view.sequences} + {view.batch or 0}) * {deep}"
            self._gather(product, f"rows + {place}")
        with (
            self._each_piece(product, panel * deep) as unit,
            writer.block(f"for (long column = 0; column < {unit}; column += {panel})"),
        ):
            writer.line("long row = 0;")
            for rows in sorted({self.rows, 1}, reverse=True):
                with writer.block(f"for (; row + {rows} <= (past - first) * {view.sequences}; row += {rows})"):
                    writer.line(f"float c[{rows * panel}] __attribute__((aligned(64)));")
                    writer.line(f"{name}_{rows}(rows + row * {deep}, piece_b + column * {deep}L, c);")
                    self._store(product, unit, rows, panel)

    # Products of one step

    def _write_rows(self, name: str, product: Product) -> None:
        for rows, panels in itertools.product(self._row_counts(), self._group_sizes(product)):
            self._rows_kernel(product, rows, panels).write(self.writer, f"{name}_{rows}_{panels}")

    def _rows_kernel(self, product: Product, rows: int, panels: int) -> RowsKernel:
        fetch = is_fetched(self._packing(product.matrix), self.target.l2_bytes)
        vectors = self._panel(product) // self.lanes
        floats = NARROW if self.narrow else FLOATS
        elements = floats if product.dtype is DType.F32 else codes(product.dtype)
        return RowsKernel(rows, product.depth.extent, panels, vectors, self.lanes, elements, fetch)

    def _row_counts(self) -> list[int]:
        """How many elements of the batch share what is read of the weights: the most there are, and those left over."""
        most = min(self.view.sequences, MAX_ROWS)
        return sorted({most, self.view.sequences % most} - {0}, reverse=True)

    def _group_sizes(self, product: Product) -> list[int]:
        """Panels that are read side by side in a piece, and those left over."""
        panels = -(-self.view.unit(product.matrix) // self._panel(product))
        most = min(self.tile.extent("block", "n") // self._panel(product), panels)
        return sorted({most, panels % most} - {0}, reverse=True)

    def _product(self, name: str, product: Product) -> None:
        """The product at this step, for all elements of the batch."""
        writer, panel = self.writer, self._panel(product)
        matrix = self._rows_kernel(product, 1, 1)
        of = matrix.elements
        x, pitch = "rows" if of.x == "float" else f"({of.x} *)rows", of.depth * matrix.steps
        with self._each_sequence():
            place = f"{x} + {self.view.batch or 0} * {pitch}"
            if of.whole:
                self._gather_codes(product, place)
            else:
                self._gather(product, place, of.scale)
        with self._each_piece(product, matrix.apart, of.ctype) as unit:
            writer.line("long column = 0;")
            wide = -(-unit // panel) * panel
            for panels in self._group_sizes(product):
                width = panels * panel
                with writer.block(f"for (; column + {width} <= {wide}; column += {width})"):
                    writer.line(f"const {of.ctype} *const b = piece_b + column / {panel} * {matrix.apart}L;")
                    writer.line("long row = 0;")
                    for rows in self._row_counts():
                        with writer.block(f"for (; row + {rows} <= {self.view.sequences}; row += {rows})"):
                            writer.line(f"float c[{rows * width}] __attribute__((aligned(64)));")
                            writer.line(f"{name}_{rows}_{panels}({x} + row * {pitch}, b, c);")
                            if of.behind:
                                self._scale(matrix, rows, width)
                            self._store(product, unit, rows, width)

    def _scale(self, matrix: RowsKernel, rows: int, width: int) -> None:
        """The sums of 24-bit numbers times their columns' factors."""
        writer = self.writer
        with writer.block(f"for (long at = 0; at < {width}; at += TW_LANES)"):
            writer.line(f"const vf factor = {matrix.factor('at')};")
            for row in range(rows):
                place = f"c + {row * width} + at"
                writer.line(f"tw_store({place}, tw_load({place}) * factor);")

    # Maps

    def _map(self, block: Block) -> None:
        """A map at this step and element of the batch, along its axis; or the extreme along one."""
        if block.monoid:
            self._extreme(block)
            return

        def values(vector: Vector | None) -> None:
            emitter = self._emitter(vector)
            computed = [emitter.value(value) for value in block.values]
            for store, value in zip(block.stores, computed, strict=True):
                emitter.store(store.slot, store.index, value)

        if block.axes:
            strips(self.writer, block.axes[0], self.lanes, values)
        else:
            values(None)

    def _extreme(self, block: Block) -> None:
        """The least or greatest along the reduction axis."""
        writer, ((value,), (store,)) = self.writer, (block.values, block.stores)
        with writer.block(""):
            writer.line(f"vf best = tw_splat({'-' if block.monoid == 'max' else ''}INFINITY);")

            def step(vector: Vector) -> None:
                each = self._emitter(vector).vf(value)
                each = f"tw_first_n({each}, {vector.count}, best)" if vector.count else each
                writer.line(f"best = tw_{block.monoid}(best, {each});")

            strips(writer, block.reduction[0], self.lanes, step)
            self._emitter(None).store(store.slot, store.index, f"tw_{EXTREMES[block.monoid]}(best)")
