"""The `contraction` algorithm: matrix products and convolutions as register-blocked C.

A task works on a block of rows. Rows of A are read in place where they form one strided matrix, else gathered into the lane's
scratch (an implicit im2col of a few rows, which also applies whatever was fused into the operand). B is packed in panels of
`n` columns, ahead of time when it is a constant. The inner kernel keeps m x n accumulators in registers, and the maps that
follow are applied to each finished tile while it is in the first-level cache.

The register tile and its place among the cache levels follow Goto and van de Geijn (ACM TOMS 34(3), 2008), without reordering
loops by blocks of k: panels of B stream from the second level, whose bandwidth an m of ten or more rows hides. Long sums are
still taken in stretches of k, which keeps rounding errors from growing with the depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from compiler.codegen.c_expr import Emitter, Vector
from compiler.codegen.c_micro import MicroKernel
from compiler.codegen.lowered import Lowered, declarations, decode
from compiler.codegen.writer import Writer
from compiler.ir.contraction import (
    Contraction,
    Direct,
    as_contraction,
    axes_of,
    direct_access,
    guarded,
    packing_of,
)
from compiler.ir.expr import Const, Expr, Load, Where, conjunction, conjuncts
from compiler.ir.index import Axis, Index
from compiler.ir.machine import Workload
from compiler.ir.normal_form import Slots
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget


def lower_contraction(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowered:
    """A kernel that `as_contraction` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n."""
    view = as_contraction(workload)
    assert view is not None, "the tile stage offers `contraction` only to kernels of that form"
    slots = Slots(workload)
    vectors = tile.extent("register", "n") // target.vector_floats
    packing = packing_of(view, workload, tile.extent("register", "n"))
    shape = _Shape(
        rows=min(tile.extent("register", "m"), view.rows),
        vectors=vectors,
        panel=vectors * target.vector_floats,
        block_m=tile.extent("block", "m"),
        block_n=tile.extent("block", "n"),
    )
    return _Contraction(name, workload, view, slots, shape, target, packing, direct_access(view, slots)).lower()


@dataclass(frozen=True)
class _Shape:
    """Register tile of rows x vectors; panel columns; block of rows and columns of a task."""

    rows: int
    vectors: int
    panel: int
    block_m: int
    block_n: int


@dataclass
class _Contraction:
    name: str
    workload: Workload
    view: Contraction
    slots: Slots
    shape: _Shape
    target: CpuTarget
    packing: tuple[int, Panels] | None
    direct: Direct | None

    def __post_init__(self) -> None:
        self.writer = Writer()
        depth, lanes = self.view.depth, 16
        self.row_floats = -(-depth // lanes) * lanes
        if self.row_floats * 4 % 4096 == 0:
            self.row_floats += lanes
        self.panels = -(-self.view.columns // self.shape.panel)
        self.block_panels = -(-self.shape.block_n // self.shape.panel)
        self.row_blocks = -(-self.view.rows // self.shape.block_m)
        assert self.row_blocks == 1 or self.shape.block_m % self.shape.rows == 0, "a block holds whole register tiles"
        self.column_blocks = -(-self.panels // self.block_panels)

    @property
    def _a_bytes(self) -> int:
        return 0 if self.direct else self.shape.block_m * self.row_floats * 4

    @property
    def _b_bytes(self) -> int:
        return 0 if self.packing else self.block_panels * self.shape.panel * self.view.depth * 4

    def lower(self) -> Lowered:
        view = self.view
        tails = view.rows % self.shape.rows
        self._micro(self.shape.rows)
        if tails and tails != self.shape.rows:
            self._micro(tails)
        self.writer.line(f"/* {view.kernel.family}: {', '.join(str(slot.type) for slot in view.kernel.inputs)}")
        self.writer.line(f" * -> {', '.join(str(slot.type) for slot in view.kernel.outputs)}")
        self.writer.line(
            f" * batch {axes_of(view.batch)}; m {axes_of(view.m)}; n {axes_of((view.n,))}; k {axes_of(view.k)} */"
        )
        with self.writer.block(f"void {self.name}(void *const *p, char *scratch, long begin, long end)"):
            self._declare()
            with self.writer.block("for (long tile = begin; tile < end; tile++)"):
                self._task()
        tiles = view.batches * self.row_blocks * self.column_blocks
        packings = {self.packing[0]: self.packing[1]} if self.packing else {}
        return Lowered(self.name, self.writer.text(), tiles, self._a_bytes + self._b_bytes, packings)

    def _micro(self, rows: int) -> None:
        """c[rows][panel] = a[rows][depth] b[depth][panel]."""
        row, step = (self.direct.rows, self.direct.depth) if self.direct else (self.row_floats, 1)
        offsets = tuple(row * at for at in range(rows))
        kernel = MicroKernel(offsets, ((self.view.depth, step),), self.shape.vectors, self.target.vector_floats)
        kernel.write(self.writer, f"{self.name}_{rows}")

    def _declare(self) -> None:
        for line in declarations(self.workload):
            self.writer.line(line)
        for slot in self.workload.kernel.inputs:
            self.writer.line(f"(void){slot.name};")
        self.writer.line("(void)scratch;")
        if not self.direct:
            self.writer.line("float *const rows = (float *)scratch;")
        if not self.packing:
            self.writer.line(f"float *const panels = (float *)(scratch + {self._a_bytes});")
        self.writer.line("long packed_rows = -1, packed_panels = -1;")
        self.writer.line("(void)packed_rows, (void)packed_panels;")

    # A task: one block of rows against one block of columns

    def _task(self) -> None:
        writer, view, shape = self.writer, self.view, self.shape
        writer.line(f"const long column_block = tile % {self.column_blocks};")
        writer.line(f"const long row_block = tile / {self.column_blocks} % {self.row_blocks};")
        writer.line(f"const long batch = tile / {self.column_blocks * self.row_blocks};")
        decode(writer, view.batch, "batch")
        writer.line(f"const long first_row = row_block * {shape.block_m};")
        writer.line(
            f"const long past_row = first_row + {shape.block_m} < {view.rows} ? first_row + {shape.block_m} : {view.rows};"
        )
        writer.line(f"const long first_panel = column_block * {self.block_panels};")
        past = f"first_panel + {self.block_panels}"
        writer.line(f"const long past_panel = {past} < {self.panels} ? {past} : {self.panels};")
        if not self.direct:
            with writer.block(f"if (packed_rows != tile / {self.column_blocks})"):
                writer.line(f"packed_rows = tile / {self.column_blocks};")
                self._pack_rows()
        if not self.packing:
            with writer.block(f"if (packed_panels != batch * {self.column_blocks} + column_block)"):
                writer.line(f"packed_panels = batch * {self.column_blocks} + column_block;")
                self._pack_panels()
        with (
            writer.block("for (long panel = first_panel; panel < past_panel; panel++)"),
            writer.block(f"for (long row0 = first_row; row0 < past_row; row0 += {shape.rows})"),
        ):
            self._product()
            self._epilogue()

    def _product(self) -> None:
        writer, view, shape = self.writer, self.view, self.shape
        size = shape.panel * view.depth
        if self.packing:
            batch = Index.of(0)
            for axis in view.batch:
                if axis in view.b.axes:
                    batch = batch * axis.extent + axis
            b = f"{self.workload.kernel.inputs[self.packing[0]].name} + ({self._index(batch)}) * {self.panels * size}L + panel * {size}"
        else:
            b = f"panels + (panel - first_panel) * {size}"
        writer.line(f"const float *const b = {b};")
        if self.direct:
            assert isinstance(view.a, Load)
            slot, offset = self.slots.address(view.a.slot, view.a.index)
            rest = Index(
                tuple((atom, factor) for atom, factor in offset.terms if atom not in (*view.m, *view.k)), offset.const
            )
            writer.line(f"const float *const a = {slot} + {self._index(rest)} + row0 * {self.direct.rows};")
        else:
            writer.line(f"const float *const a = rows + (row0 - first_row) * {self.row_floats};")
        writer.line(f"float c[{shape.rows * shape.panel}] __attribute__((aligned(64)));")
        tail = view.rows % shape.rows
        if not tail:
            writer.line(f"const long count = {shape.rows};")
            writer.line(f"{self.name}_{shape.rows}(a, b, c);")
            return
        writer.line(f"const long count = past_row - row0 < {shape.rows} ? past_row - row0 : {shape.rows};")
        if view.rows > shape.rows:
            writer.line(f"if (count == {shape.rows}) {self.name}_{shape.rows}(a, b, c);")
            writer.line(f"else {self.name}_{tail}(a, b, c);")
        else:
            writer.line(f"{self.name}_{tail}(a, b, c);")

    def _index(self, index: Index) -> str:
        return Emitter(self.writer, self.slots.address).index(index)

    # What follows the product, on one finished tile

    def _epilogue(self) -> None:
        writer, view, shape = self.writer, self.view, self.shape
        lanes, n = self.target.vector_floats, view.n
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("const long m = row0 + row;")
            decode(writer, view.m, "m")
            writer.line(f"const float *const held = c + row * {shape.panel};")
            whole = view.columns // lanes * lanes
            limit = "" if view.columns % shape.panel == 0 else f" && panel * {shape.panel} + column < {whole}"
            with writer.block(f"for (long column = 0; column < {shape.panel}{limit}; column += TW_LANES)"):
                writer.line(f"const long {n} = panel * {shape.panel} + column;")
                self._maps(Vector(n), "tw_load(held + column)")
            if view.columns % lanes:
                begin = whole % shape.panel
                with writer.block(f"if (panel == {self.panels - 1})"):
                    writer.line(f"const long {n} = {whole};")
                    self._maps(Vector(n, str(view.columns % lanes)), f"tw_load(held + {begin})")

    def _maps(self, vector: Vector, tile_value: str) -> None:
        """The product's stored value and the epilogue's maps, at one vector of the tile."""
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents)
        value = self.writer.name("product")
        self.writer.line(f"const vf {value} = {tile_value};")
        self._put(emitter, self.view.product.stores[0].slot, self.view.product.stores[0].index, value)
        for block in self.view.epilogue:
            for store, expr in zip(block.stores, block.values, strict=True):
                self._put(emitter, store.slot, store.index, emitter.vf(expr))

    def _put(self, emitter: Emitter, slot: str, index: tuple[Index, ...], value: str) -> None:
        if slot in self.slots.buffers:
            emitter.store(slot, index, value, self.slots.buffers[slot].type.dtype)
            emitter.held[Load(slot, index, DType.F32)] = value
        else:
            emitter.held[Load(slot, (), DType.F32)] = value

    # Operands brought into the form the inner kernel reads

    def _pack_rows(self) -> None:
        """rows[m - first_row][k] = A[m][k] for the task's block of rows."""
        view, writer = self.view, self.writer
        condition, value = guarded(view.a)
        guards = conjuncts(condition) if condition is not None else []
        with writer.block("for (long m = first_row; m < past_row; m++)"):
            decode(writer, view.m, "m")
            writer.line(f"float *const row = rows + (m - first_row) * {self.row_floats};")
            self._gather(list(view.k), guards, value, Index.of(0), Emitter(writer, self.slots.address))

    def _gather(self, axes: list[Axis], guards: Sequence[Expr], value: Expr, place: Index, emitter: Emitter) -> None:
        """Loops over k, testing each guard as soon as its axes are known; what it excludes is zero."""
        writer = self.writer
        ready = [guard for guard in guards if not guard.axes & set(axes)]
        waiting = [guard for guard in guards if guard not in ready]
        inner = 1
        for axis in axes:
            inner *= axis.extent
        with ExitStack() as stack, emitter.scope():
            if ready:
                test = " && ".join(emitter.scalar(guard) for guard in ready)
                zero = f"memset(row + {emitter.index(place * inner)}, 0, {inner} * sizeof(float));"
                writer.line(f"if (!({test})) {zero}")
                stack.enter_context(writer.block("else"))
                stack.enter_context(emitter.scope())
            self._gather_inner(axes, waiting, value, place, emitter)

    def _gather_inner(
        self, axes: list[Axis], guards: Sequence[Expr], value: Expr, place: Index, emitter: Emitter
    ) -> None:
        writer = self.writer
        if not axes:
            writer.line(f"row[{emitter.index(place)}] = {emitter.scalar(value)};")
            return
        axis, rest = axes[0], axes[1:]
        position = place * axis.extent + axis
        if not rest and self._is_contiguous(value, axis):
            self._gather_strip(axis, guards, value, position, emitter)
            return
        with writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"), emitter.scope():
            self._gather(rest, guards, value, position, emitter)

    def _is_contiguous(self, value: Expr, axis: Axis) -> bool:
        loads = [load for load in value.loads if axis in load.axes]
        return all(self.slots.address(load.slot, load.index)[1].coefficient(axis) == 1 for load in loads)

    def _gather_strip(self, axis: Axis, guards: Sequence[Expr], value: Expr, position: Index, emitter: Emitter) -> None:
        """The innermost k axis in vectors; guards along it become conditions on lanes."""
        condition = conjunction(list(guards))
        expr = value if condition is None else Where(condition, value, Const(0.0, DType.F32))
        lanes = self.target.vector_floats
        whole = axis.extent // lanes * lanes
        writer = self.writer

        def strip(vector: Vector) -> None:
            inner = Emitter(writer, emitter.address, vector, self.slots.extents)
            result = inner.vf(expr)
            place = f"row + {inner.index(position)}"
            writer.line(
                f"tw_store_n({place}, {result}, {vector.count});" if vector.count else f"tw_store({place}, {result});"
            )

        if whole:
            with writer.block(f"for (long {axis} = 0; {axis} < {whole}; {axis} += TW_LANES)"):
                strip(Vector(axis))
        if axis.extent % lanes:
            with writer.block(""):
                writer.line(f"const long {axis} = {whole};")
                strip(Vector(axis, str(axis.extent % lanes)))

    def _pack_panels(self) -> None:
        """panels[panel - first_panel][k][column] = B[k][n] for the task's block of columns, padded with zeros."""
        view, writer, shape = self.view, self.writer, self.shape
        lanes, n = self.target.vector_floats, view.n
        with writer.block("for (long panel = first_panel; panel < past_panel; panel++)"), ExitStack() as stack:
            place = Index.of(0)
            for axis in view.k:
                stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
                place = place * axis.extent + axis
            depth = self._index(place)
            writer.line(
                f"float *const line = panels + ((panel - first_panel) * {view.depth} + {depth}) * {shape.panel};"
            )
            with writer.block(f"for (long column = 0; column < {shape.panel}; column += TW_LANES)"):
                writer.line(f"const long {n} = panel * {shape.panel} + column;")
                with writer.block(f"if ({n} + TW_LANES <= {view.columns})"):
                    value = Emitter(writer, self.slots.address, Vector(n), self.slots.extents).vf(view.b)
                    writer.line(f"tw_store(line + column, {value});")
                with writer.block(f"else if ({n} < {view.columns})"):
                    writer.line(f"const long live = {view.columns} - {n};")
                    value = Emitter(writer, self.slots.address, Vector(n, "live"), self.slots.extents).vf(view.b)
                    writer.line(f"tw_store(line + column, {value});")
                writer.line("else tw_store(line + column, tw_splat(0.0f));")
        assert lanes * shape.vectors == shape.panel
