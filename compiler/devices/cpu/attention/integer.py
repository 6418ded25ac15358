"""Both products of bytes around a softmax in fp32, for a block of queries at a time.

A block of queries has its scores summed in int32, the maps that follow applied, and their maxima taken; the scores stay
in a cache as floats. They become exponentials of their distances to the maximum; one more pass multiplies those by the
reciprocal of their sum, divided by the scale of the bytes that the weights are rounded to, and stores these bytes for
the second product.

So a weight is (e (1 / s)) / scale computed as e ((1 / s) / scale): a few units in the last place of fp32 away, which is
one step of its byte where it lies that near to a tie; that of the greatest score is the same bit by bit, and so are all
of a row whose scores are equal. Sums of bytes are exact, as `integer` has them, in either form:

    sum (A - p)(B - q) = sum a' b'  -  p' (sum b' - K q')  -  q' sum a'

in bytes, and in 16 bits, where both are held less their zero points, sum a' b'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.expressions import INTEGERS, Vector
from compiler.codegen.functions import decode, nest
from compiler.devices.cpu.attention.frame import Frame
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.dot_kernel import DotKernel
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.strips import panel_strips, store_vector, strips
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.byte_attention import ByteAttention
from compiler.forms.cache_lines import ALIAS_BYTES, LINE_BYTES, whole_lines
from compiler.forms.groups import LANE_BYTES
from compiler.forms.integer import Operand, plus
from compiler.forms.normal_form import is_contiguous
from compiler.ir.expr import Cast, Const, Expr, Load
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.tensor import DType


@dataclass(frozen=True)
class Held:
    """How a target holds the factors of a product for an instruction that adds products of groups.

    group    numbers in a 32-bit lane
    element  their C type in the first factor; `suffix` ends the names of C functions that store them
    dot      the C function of a step, first factor before the second; `lone` loads a group into the first lane
    shifts   what is added to either factor so that it is such a number
    zeros    what then stands for 0 in either
    """

    group: int
    element: str
    suffix: str
    dot: str
    lone: str
    shifts: tuple[int, int]
    zeros: tuple[int, int]

    @staticmethod
    def of(a: Operand, b: Operand, target: CpuTarget) -> Held:
        """Bytes where the target multiplies them, the second factor signed; else 16 bits less their zero points."""
        assert a.fixed_zero is not None
        assert b.fixed_zero is not None
        if not target.multiplies_bytes:
            return Held(2, "int16_t", "i16", "tw_dot_halves", "tw_lone_halves", (-a.fixed_zero, -b.fixed_zero), (0, 0))
        is_signed = a.value.dtype is DType.I8
        signed = target.takes_signed(is_signed)
        shifts = (0 if signed == is_signed else -128 if signed else 128, -128 if b.value.dtype is DType.U8 else 0)
        zeros = (a.fixed_zero + shifts[0], b.fixed_zero + shifts[1])
        return Held(4, "uint8_t", "u8", "tw_dot_signed" if signed else "tw_dot_bytes", "tw_lone_group", shifts, zeros)

    @property
    def ones(self) -> str:
        """A group of ones, in C."""
        return {4: "0x01010101", 2: "0x00010001"}[self.group]

    def groups(self, depth: int) -> int:
        """Steps along so many products; the last group may be padded."""
        return parts(depth, self.group)

    def row_bytes(self, depth: int) -> int:
        """Bytes from one row of the first factor to the next: whole vectors, and not all in one set of the cache."""
        found = whole_lines(self.groups(depth) * LANE_BYTES)
        return found + LINE_BYTES if found % ALIAS_BYTES == 0 else found


@dataclass(frozen=True)
class _Product:
    """One of both products, as it lies in the scratch.

    name      of what is packed, in C; `first` of the rows that it is multiplied with
    held      how both are held
    rows      the most rows of a register tile; `panel` the columns of a panel
    columns   the axis along panels; `depth` the axes that are summed over
    factor    what is packed
    """

    name: str
    first: str
    held: Held
    rows: int
    panel: int
    columns: Axis
    depth: tuple[Axis, ...]
    factor: Operand

    @property
    def deep(self) -> int:
        """Products of a sum."""
        return prod(axis.extent for axis in self.depth)

    @property
    def groups(self) -> int:
        return self.held.groups(self.deep)

    @property
    def panels(self) -> int:
        return parts(self.columns.extent, self.panel)

    @property
    def panel_bytes(self) -> int:
        return self.groups * self.panel * LANE_BYTES

    @property
    def row_bytes(self) -> int:
        return self.held.row_bytes(self.deep)


@dataclass
class Bytes:
    """The `Element` of `byte_attention`."""

    frame: Frame
    view: ByteAttention
    ends_at_sizes = False

    def __post_init__(self) -> None:
        frame, view, tile = self.frame, self.view, self.frame.tile
        self.writer, self.slots, self.lanes = frame.writer, frame.slots, frame.lanes
        self.row_floats = parts(view.keys.extent, self.lanes) * self.lanes
        score, mixed = ((tile.extent(level, "m"), tile.extent(level, "n")) for level in ("register", "vector"))
        by_score, by_value = Held.of(view.q, view.k, frame.target), Held.of(view.w, view.v, frame.target)
        self.scores = _Product("keys", "queries", by_score, *score, view.keys, view.depth, view.k)
        self.mixed = _Product("values", "weights", by_value, *mixed, view.columns, (view.keys,), view.v)

    @property
    def note(self) -> str:
        """How many numbers a lane holds."""
        return f"; groups of {self.scores.held.group}"

    def write_kernels(self) -> None:
        """One of each product for every number of rows."""
        for product in (self.scores, self.mixed):
            for rows in self.frame.cuts.counts(product.rows):
                self._write_kernel(product, rows)

    def declare(self) -> None:
        """Both factors of both products, what zero points add to sums, and scores."""
        frame, block = self.frame, self.frame.block
        for product in (self.scores, self.mixed):
            wide = product.panels * product.panel
            frame.region("char", product.name, product.panels * product.panel_bytes, "[panel][group][column]")
            frame.region("char", product.first, block * product.row_bytes, "[query][group]")
            if product.held.zeros[0]:
                frame.region("int32_t", f"{product.name}_terms", 4 * wide, "[column]: what zero points add to sums")
            if product.held.zeros[1]:
                frame.region("int32_t", f"{product.first}_terms", 4 * block, "[query]: the same")
        frame.region("float", "scores", 4 * block * self.row_floats, "[query][key], then their exponentials")
        if self._transposes_keys:
            size = self.lanes * self.scores.row_bytes
            frame.region("char", "staged", size, "[key][group]")
            self.writer.line(f"memset(staged, 0, {size});")
        self.writer.line(f"memset(queries, 0, {block * self.scores.row_bytes});")
        self.writer.line("long packed = -1;")
        self.writer.line(f"vf most[{block}];")

    def pack(self) -> None:
        """Keys, then values."""
        self._pack(self.scores)
        self._pack(self.mixed)

    def attend(self) -> None:
        """Scores of all keys, weights in bytes, and these times the values."""
        self._multiply(self.scores, self._score_row)
        self._weights()
        self._multiply(self.mixed, self._mixed_row)

    def end(self) -> None:
        """Nothing is left to do."""

    # Register tiles

    def _write_kernel(self, product: _Product, rows: int) -> None:
        """c[rows][panel] = the sums of products of groups, of rows that lie `row_bytes` apart with one panel."""
        held, panel, by_lane = product.held, product.panel, self.frame.target.multiplies_by_lane
        load, dot = (held.lone, f"{held.dot}_by") if by_lane else ("tw_group", held.dot)
        vectors, steps = panel // self.lanes, str(product.groups)
        kernel = DotKernel(rows, vectors, self.lanes, panel, product.row_bytes, steps, panel, load, dot, "int32_t")
        kernel.write(self.writer, f"{self.frame.name}_{product.name}_{rows}")

    def _multiply(self, product: _Product, row: Callable[[], None]) -> None:
        """Sums of a block of queries, panel by panel in register tiles; `row` writes what becomes of row `at` of one.

        It finds the sums at `held`, its number in the block in `own`, and the panel's first column in `place`.
        """
        writer = self.writer

        def tile(rows: int) -> None:
            writer.line(f"int32_t c[{rows * product.panel}] __attribute__((aligned(64)));")
            function = f"{self.frame.name}_{product.name}_{rows}"
            writer.line(f"{function}({product.first} + row * {product.row_bytes}L, b, c);")
            with writer.block(f"for (long at = 0; at < {rows}; at++)"):
                writer.line(f"const int32_t *const held = c + at * {product.panel};")
                writer.line("const long own = row + at, query = row0 + own;")
                decode(writer, self.view.rows, "query")
                row()

        with writer.block(f"for (long panel = 0; panel < {product.panels}; panel++)"):
            writer.line(f"const char *const b = {product.name} + panel * {product.panel_bytes}L;")
            self.frame.cuts.write(writer, product.rows, tile)

    def _sum(self, product: _Product, column: str) -> str:
        """The C name of a vector of sums, less what zero points add."""
        value, name = f"tw_load_i(held + {column})", self.writer.name("sums")
        if product.held.zeros[0]:
            value = f"tw_sub_i({value}, tw_load_i({product.name}_terms + panel * {product.panel} + {column}))"
        if product.held.zeros[1]:
            value = f"tw_sub_i({value}, tw_splat_i({product.first}_terms[own]))"
        self.writer.line(f"const vi {name} = {value};")
        return name

    # Factors brought into the form that register tiles read

    def copy_queries(self) -> None:
        """The rows of a block, and for each what the zero point of the keys adds to its sums."""
        writer, product = self.writer, self.scores
        with self.frame.rows():
            writer.line(f"char *const into = queries + row * {product.row_bytes}L;")
            self._stage(self.view.q.value, product, 0)
            if product.held.zeros[1]:
                writer.line("vi along = {0};")
                with writer.block(f"for (long at = 0; at < {product.row_bytes}; at += {LANE_BYTES} * TW_LANES)"):
                    ones = f"tw_splat_i({product.held.ones})"
                    writer.line(f"along = {product.held.dot}(along, tw_groups(into + at), {ones});")
                self._row_term(product, "row")

    def _row_term(self, product: _Product, row: str) -> None:
        """Of a row whose numbers are summed in the lanes of `along`."""
        zero = f"(uint32_t){product.held.zeros[1]}"
        self.writer.line(f"{product.first}_terms[{row}] = (int32_t)({zero} * (uint32_t)tw_sum_i(along));")

    def _stage(self, value: Expr, product: _Product, side: int) -> None:
        """The numbers of a row at `into`, along the depth; what pads it stays as it is."""
        writer, held = self.writer, product.held
        shift = held.shifts[side]
        *outer, inner = product.depth
        if isinstance(value, Load) and not outer and inner in value.axes and is_contiguous(value, inner, self.slots):
            pointer, offset = self.slots.address(value.slot, value.index)
            source = f"{pointer} + {self.frame.emitter().index(offset.substitute({inner: Index.of(0)}))}"
            if held.group == LANE_BYTES:
                writer.line(f"tw_copy_bytes((uint8_t *)into, {source}, {inner.extent}, {abs(shift)});")
            else:
                name = INTEGERS[value.dtype]
                writer.line(f"tw_copy_halves_{name}((int16_t *)into, {source}, {inner.extent}, {-shift});")
            return
        place, moved = row_major(product.depth), plus(Cast(value, DType.I32), shift)

        def strip(vector: Vector) -> None:
            emitter = self.frame.emitter(vector)
            to = f"({held.element} *)into + {emitter.index(place)}"
            store_vector(writer, to, emitter.vector_of(moved), vector, f"_{held.suffix}")

        with nest(writer, outer):
            strips(writer, inner, self.lanes, strip)

    @property
    def _transposes_keys(self) -> bool:
        """Whether keys lie along the depth, so that squares of their groups are transposed in registers."""
        value, view = self.view.k.value, self.view
        return is_contiguous(value, view.depth[-1], self.slots) and not is_contiguous(value, view.keys, self.slots)

    def _pack(self, product: _Product) -> None:
        """All panels of the second factor, with what the zero point of the first adds to sums of each column."""
        writer, lanes = self.writer, self.lanes
        with ExitStack() as stack:
            stack.enter_context(writer.block(f"for (long panel = 0; panel < {product.panels}; panel++)"))
            stack.enter_context(writer.block(f"for (long column = 0; column < {product.panel}; column += TW_LANES)"))
            writer.line("vi below = {0};")
            into = f"{product.name} + panel * {product.panel_bytes}L + column * {LANE_BYTES}"
            writer.line(f"char *const lines = {into};")
            if product is self.scores and self._transposes_keys:
                self._pack_squares(product)
            else:
                columns = product.columns
                writer.line(f"const long {columns} = panel * {product.panel} + column;")
                whole = columns.extent // lanes * lanes
                if whole:
                    with writer.block(f"if ({columns} < {whole})"):
                        self._pack_columns(product, Vector(columns))
                if columns.extent % lanes:
                    with writer.block(f"if ({columns} == {whole})"):
                        self._pack_columns(product, Vector(columns, str(columns.extent % lanes)))
            if product.held.zeros[0]:
                first, second = product.held.zeros
                below = f"tw_sub_i(below, tw_splat_i({product.deep * second}))" if second else "below"
                term = f"tw_mul_i(tw_splat_i({first}), {below})"
                writer.line(f"tw_store_i({product.name}_terms + panel * {product.panel} + column, {term});")

    def _pack_squares(self, product: _Product) -> None:
        """As many columns as a vector has lanes, staged one by one, their groups transposed a square at a time."""
        writer, columns, size = self.writer, product.columns, product.row_bytes
        with writer.block("for (long lane = 0; lane < TW_LANES; lane++)"):
            writer.line(f"const long {columns} = panel * {product.panel} + column + lane;")
            writer.line(f"char *const into = staged + lane * {size}L;")
            with writer.block(f"if ({columns} < {columns.extent})"):
                self._stage(product.factor.value, product, 1)
        with writer.block(f"for (long group = 0; group < {product.groups}; group += TW_LANES)"):
            writer.line("vf square[TW_LANES];")
            with writer.block("for (long lane = 0; lane < TW_LANES; lane++)"):
                writer.line(f"square[lane] = tw_bits(tw_groups(staged + lane * {size}L + group * {LANE_BYTES}));")
            writer.line("tw_transpose(square);")
            writer.line(f"const long some = tw_least_of({product.groups} - group, TW_LANES);")
            with writer.block("for (long at = 0; at < some; at++)"):
                self._line(product, "group + at", "tw_ibits(square[at])")

    def _line(self, product: _Product, group: str, value: str) -> None:
        """A vector of groups, one of each column."""
        to = f"(int32_t *)(lines + ({group}) * {product.panel * LANE_BYTES}L)"
        self.writer.line(f"tw_store_i({to}, {value});")
        if product.held.zeros[0]:
            self.writer.line(f"below = {product.held.dot}(below, tw_splat_i({product.held.ones}), {value});")

    def _pack_columns(self, product: _Product, vector: Vector) -> None:
        """All groups of a vector of columns, made of vectors along the columns."""
        group, deep = product.held.group, product.deep
        with self.writer.block(f"for (long group = 0; group < {deep // group}; group++)"):
            self._pack_group(product, vector, [f"(group * {group} + {at})" for at in range(group)], "group")
        if deep % group:
            rest = [f"{deep - deep % group + at}L" for at in range(deep % group)]
            with self.writer.block(""):
                self._pack_group(product, vector, rest, str(deep // group))

    def _pack_group(self, product: _Product, vector: Vector, places: Sequence[str], group: str) -> None:
        values, moved = [], plus(Cast(product.factor.value, DType.I32), product.held.shifts[1])
        for place in places:
            emitter, inner = self.frame.emitter(vector), product.deep
            for axis in product.depth:
                inner //= axis.extent
                emitter.names[axis] = f"({place} / {inner} % {axis.extent})" if len(product.depth) > 1 else place
            values.append(emitter.vector_of(moved))
        values += ["(vi){0}"] * (product.held.group - len(values))
        name = self.writer.name("lane")
        self.writer.line(f"const vi {name} = {'tw_four' if len(values) == 4 else 'tw_pair'}({', '.join(values)});")
        self._line(product, group, name)

    # One block of queries

    def _score_row(self) -> None:
        """scores[own] = what follows the sums of one query in one panel; most[own], lane by lane, the largest."""
        view, writer, lanes, product = self.view, self.writer, self.lanes, self.scores
        panel, keys = product.panel, view.keys.extent
        writer.line(f"float *const line = scores + own * {self.row_floats}L + panel * {panel};")
        writer.line("vf largest = panel ? most[own] : tw_splat(-INFINITY);")

        def score(vector: Vector, column: str) -> None:
            value = finish(
                self.frame.emitter(vector), self.slots, view.scores, view.maps, self._sum(product, column), DType.I32
            )
            if vector.count:
                writer.line(f"const vf live = tw_first_n({value}, {keys % lanes}, tw_splat(-INFINITY));")
                value = "live"
            writer.line(f"tw_store(line + {column}, {value});")
            writer.line(f"largest = tw_max({value}, largest);")

        panel_strips(writer, view.keys, panel, lanes, score)
        writer.line("most[own] = largest;")

    def _weights(self) -> None:
        """weights[row] = exponentials of distances to the largest score, each divided by their sum and rounded.

        Where no score is above -infinity distances are not numbers, nor are weights.
        """
        view, writer, product = self.view, self.writer, self.mixed
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("const float largest = tw_greatest(most[row]);")
            writer.line(f"float *const line = scores + row * {self.row_floats}L;")
            writer.line("vf sum = {0};")
            with writer.block(f"for (long at = 0; at < {self.row_floats}; at += TW_LANES)"):
                writer.include("tw_near.h")
                writer.line("const vf power = tw_exp_near(tw_load(line + at) - largest);")
                writer.line("tw_store(line + at, power);")
                writer.line("sum += power;")
            writer.line("most[row] = sum;")
        with writer.block("for (long row = 0; row < count; row++)"):
            scale = self.frame.emitter().scalar(Const(view.scale, DType.F32))
            writer.line(f"const float factor = 1 / tw_sum(most[row]) / {scale};")
            writer.line(f"const float *const line = scores + row * {self.row_floats}L;")
            element = product.held.element
            writer.line(f"{element} *const into = ({element} *)(weights + row * {product.row_bytes}L);")
            if product.held.zeros[1]:
                writer.line("vi along = {0};")
            strips(writer, view.keys, self.lanes, self._bytes)
            if product.held.zeros[1]:
                self._row_term(product, "row")

    def _bytes(self, vector: Vector) -> None:
        """A vector of weights rounded to bytes, and added to the sum of all where the values have a zero point."""
        view, writer, held = self.view, self.writer, self.mixed.held
        emitter, value = self.frame.emitter(vector), writer.name("weight")
        writer.line(f"const vf {value} = tw_load(line + {view.keys}) * factor;")
        emitter.held[view.weight] = value
        byte = emitter.vector_of(plus(Cast(view.rounded, DType.I32), held.shifts[0]))
        store_vector(writer, f"into + {view.keys}", byte, vector, f"_{held.suffix}")
        if held.zeros[1]:
            live = f"tw_first_n_i({byte}, {vector.count}, (vi){{0}})" if vector.count else byte
            writer.line(f"along = along + {live};")

    def _mixed_row(self) -> None:
        """What follows the sums of one query in one panel of the values' columns."""
        view, product = self.view, self.mixed

        def result(vector: Vector, column: str) -> None:
            finish(
                self.frame.emitter(vector), self.slots, view.mixed, view.epilogue, self._sum(product, column), DType.I32
            )

        panel_strips(self.writer, view.columns, product.panel, self.lanes, result)
