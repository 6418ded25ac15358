"""The `sparse` algorithm: products by the weights that are not zero (`compiler.forms.sparse`) as C.

A task is some output positions (`plane`) and all columns. Segment by segment of the input channels it stages what its
positions look at, in the lane's scratch, transposed: each channel a plane of neighbouring positions. Then group by
group of columns it runs through the group's stream: each step loads vectors of positions at the distance that an
element names, and multiplies them with the group's weights there. Sums stay in registers for a whole stream, and in
scratch from one segment to the next. At last they are transposed back, and the maps that follow are applied along the
columns.

A zero weight is never multiplied, so a NaN or an infinity that only zero weights would meet does not reach the result
(docs/decisions/zero-weights-are-not-multiplied.md).
"""

from __future__ import annotations

from contextlib import ExitStack

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import TaskGrid
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.sparse.plane import Plane
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.strips import strips
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import LINE
from compiler.forms.contraction import axes_of
from compiler.forms.normal_form import Slots
from compiler.forms.operand import guarded
from compiler.forms.sparse import as_sparse_product
from compiler.forms.windowed import Sweep
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


def sparse(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_sparse_product` accepts.

    Levels of `tile`: `block` (m rows of outputs, b images, k channels staged at a time), `register` (m positions, n
    columns).
    """
    return _Sparse(name, workload, tile, target)


class _Sparse(Lowering):
    def __init__(self, name: str, workload: Workload, tile: Tile, target: CpuTarget) -> None:
        view = as_sparse_product(workload)
        assert view is not None, "the tile stage offers `sparse` only to kernels of that form"
        self.name, self.workload, self.view = name, workload, view
        self.writer, self.slots, self.lanes = Writer(), Slots(workload), target.vector_floats
        self.plane = Plane.of(view, tile, self.lanes)
        self.position, self.streams = self.plane.streams(workload)
        self.load = self._plain_load()

    @property
    def grid(self) -> TaskGrid:
        return self.plane.grid

    def lower(self) -> Lowered:
        writer, view, plane, streams = self.writer, self.view, self.plane, self.streams
        self._sums_function()
        summed, zeros = streams.groups * plane.group * plane.sums_row, -(-view.depth.extent // LINE) * LINE
        notes = (
            f"rows {axes_of(view.free)} {' '.join(str(sweep.output) for sweep in view.sweeps)}; columns {view.column}; "
            f"channels {axes_of((view.depth,))}, {plane.segment} at a time; {streams.kept} places kept of "
            f"{streams.groups * streams.places}",
        )
        with kernel_function(writer, self.name, self.workload, *notes):
            _, order, values, distances, _ = streams.parts
            slot = self.workload.kernel.inputs[self.position].name
            writer.line(f"const char *const packed = (const char *){slot};")
            writer.line("const int32_t *const starts = (const int32_t *)packed;")
            writer.line(f"const int32_t *const order = (const int32_t *)(packed + {order});")
            writer.line(f"const float *const values = (const float *)(packed + {values});")
            writer.line(f"const uint16_t *const distances = (const uint16_t *)(packed + {distances});")
            writer.line("float *const staged = (float *)scratch; /* [channel][phase][position] */")
            writer.line(f"float *const sums = staged + {plane.floats}; /* [column][position] */")
            if self.load is not None:
                writer.line(f"float *const zeros = sums + {summed};")
                writer.line(f"memset(zeros, 0, {view.depth.extent} * sizeof(float));")
                writer.line(f"const float **const from = (const float **)(zeros + {zeros}); /* [phase][position] */")
            with Trimming(writer, view.kernel, self.slots, self.lanes).tasks(self.grid):
                self._task()
        pointers = 8 * len(plane.phases) * plane.pointed if self.load is not None else 0
        scratch = 4 * (plane.floats + summed + (zeros if self.load is not None else 0)) + pointers
        return Lowered(
            self.name,
            writer.text(),
            self.tasks,
            scratch,
            {self.position: streams},
            self.grid,
            headers=frozenset(writer.headers),
        )

    def _sums_function(self) -> None:
        """name_sums: a chunk of positions against the stream of one group."""
        writer, plane, lanes = self.writer, self.plane, self.lanes
        places = [(row, at) for row in range(plane.group) for at in range(plane.vectors)]
        arguments = "const float *x, const uint16_t *distances, const float *values, long count, float *c, long adds"
        with writer.block(f"static __attribute__((noinline)) void {self.name}_sums({arguments})"):
            for row, at in places:
                into = f"c + {row * plane.sums_row + at * lanes}"
                writer.line(f"vf sum{row}_{at} = adds ? tw_load({into}) : tw_splat(0.0f);")
            with writer.block("for (long at = 0; at < count; at++)"):
                writer.line("const float *const from = x + distances[at];")
                if plane.group > 1:
                    for at in range(plane.vectors):
                        writer.line(f"const vf x{at} = tw_load(from + {at * lanes});")
                for row in range(plane.group):
                    weight = f"values[at * {plane.group} + {row}]" if plane.group > 1 else "values[at]"
                    writer.line(f"const vf w{row} = tw_splat({weight});")
                    for at in range(plane.vectors):
                        value = f"x{at}" if plane.group > 1 else f"tw_load(from + {at * lanes})"
                        writer.line(f"sum{row}_{at} += w{row} * {value};")
            for row, at in places:
                writer.line(f"tw_store(c + {row * plane.sums_row + at * lanes}, sum{row}_{at});")
        writer.line()

    # A task

    def _task(self) -> None:
        writer, view, plane = self.writer, self.view, self.plane
        if plane.down is None:
            writer.line(f"const long first_row = tile * {plane.rows};")
        else:
            batches = Axis("batches", -(-plane.batch.extent // plane.images)) if plane.batch else None
            blocks = Axis("blocks", -(-plane.down.output.extent // plane.rows))
            decode(writer, (*plane.outer, *([batches] if batches else []), blocks), "tile")
            writer.line(f"const long first_row = blocks * {plane.rows};")
            if batches:
                writer.line(f"const long first_image = batches * {plane.images};")
        if self.load is not None:
            self._point()
        head = f"for (long segment = 0; segment < {self.streams.segments}; segment++)"
        with writer.block(head):
            writer.line(f"const long first_channel = segment * {plane.segment};")
            count = view.depth.extent
            writer.line(f"const long channels = tw_least_of({plane.segment}, {count} - first_channel);")
            if self.load is not None:
                self._stage_pointed()
            else:
                self._stage_computed()
            self._multiply()
        self._finish()

    def _multiply(self) -> None:
        writer, plane, streams = self.writer, self.plane, self.streams
        step = plane.vectors * self.lanes
        with (
            writer.block(f"for (long position = 0; position < {plane.summed}; position += {step})"),
            writer.block(f"for (long group = 0; group < {streams.groups}; group++)"),
        ):
            writer.line(f"const int32_t *const part = starts + segment * {streams.groups} + group;")
            many = f" * {plane.group}L" if plane.group > 1 else ""
            into = f"sums + group * {plane.group * plane.sums_row}L + position"
            writer.line(
                f"{self.name}_sums(staged + position, distances + part[0], values + part[0]{many}, "
                f"part[1] - part[0], {into}, segment);"
            )

    # What positions look at, as planes

    def _point(self) -> None:
        """from[phase][position] = where the first channel of a position lies, or zeros for one outside of the image."""
        load, writer, plane = self.load, self.writer, self.plane
        assert load is not None
        condition, _ = guarded(self.view.image.value)
        offset = self.slots.address(load.slot, load.index)[1].substitute({self.view.depth: Index.of(0)})
        for number, (down, over) in enumerate(plane.phases):
            with writer.block(""):
                writer.line(f"const float **to = from + {number * plane.pointed};")
                with ExitStack() as stack:
                    tests = self._positions(stack, down, over)
                    emitter = Emitter(writer, self.slots.address, None, self.slots.extents, self.slots.numerics)
                    tests += [emitter.scalar(condition)] if condition is not None else []
                    test = f"{' && '.join(tests)} ? " if tests else ""
                    writer.line(f"*to++ = {test}{load.slot} + {emitter.index(offset)}{' : zeros' if tests else ''};")
                writer.line(f"while (to < from + {(number + 1) * plane.pointed}) *to++ = zeros;")

    def _positions(self, stack: ExitStack, down: int, over: int) -> list[str]:
        """Loops over the staged positions of a phase in their order; the tests that one lies in the image."""
        writer, plane, view = self.writer, self.plane, self.view
        if plane.down is None:
            stack.enter_context(writer.block(f"for (long row = first_row; row < first_row + {plane.rows}; row++)"))
            decode(writer, view.free, "row")
            return [f"row < {view.rows}"] if view.rows % plane.rows else []
        tests = []
        rows = plane.staged // (plane.pitch * plane.images)
        stack.enter_context(writer.block(f"for (long row = 0; row < {rows}; row++)"))
        tests += self._swept(plane.down, "(first_row + row)", down)
        if plane.across is not None:
            stack.enter_context(writer.block(f"for (long column = 0; column < {plane.pitch}; column++)"))
            tests += self._swept(plane.across, "column", over)
        if plane.batch is not None:
            stack.enter_context(writer.block(f"for (long image = 0; image < {plane.images}; image++)"))
            writer.line(f"const long {plane.batch} = first_image + image;")
            tests += [f"{plane.batch} < {plane.batch.extent}"] if plane.batch.extent % plane.images else []
        return tests

    def _swept(self, sweep: Sweep, output: str, phase: int) -> list[str]:
        """Declares a swept position; the test that there is such a one."""
        first = f" + {phase}" if phase else ""
        self.writer.line(f"const long {sweep.position} = {output} * {sweep.stride}{first};")
        return [f"{sweep.position} < {sweep.position.extent}"]

    def _plain_load(self) -> Load | None:
        """The operand, where it is one tensor inside its padding whose channels are neighbours."""
        condition, value = guarded(self.view.image.value)
        if not isinstance(value, Load) or value.slot not in self.slots.buffers:
            return None
        if condition is not None and self.view.depth in condition.axes:
            return None
        offset = self.slots.address(value.slot, value.index)[1]
        plain = self.slots.buffers[value.slot].dtype is DType.F32 and value.type is DType.F32
        return value if plain and offset.coefficient(self.view.depth) == 1 else None

    def _stage_pointed(self) -> None:
        """The planes of the segment's channels, of what `from` points to."""
        writer, plane = self.writer, self.plane
        for number in range(len(plane.phases)):
            with writer.block(f"for (long first = 0; first < {plane.staged}; first += TW_LANES)"):
                writer.line(f"const float *const *const at = from + {number * plane.pointed} + first;")
                writer.line(f"float *const to = staged + {number * plane.size} + first;")
                with writer.block("for (long channel = 0; channel < channels; channel += TW_LANES)"):
                    writer.line("vf square[TW_LANES];")
                    place = "at[lane] + first_channel + channel"
                    whole = self.view.depth.extent % self.lanes == 0
                    with writer.block("" if whole else "if (channel + TW_LANES <= channels)"):
                        self._each_lane(f"square[lane] = tw_load({place});")
                    if not whole:
                        with writer.block("else"):
                            self._each_lane(f"square[lane] = tw_load_n({place}, channels - channel);")
                    writer.line("tw_transpose(square);")
                    self._each_lane(f"tw_store(to + (channel + lane) * {plane.channel}L, square[lane]);")

    def _stage_computed(self) -> None:
        """The same for an operand that is computed, element by element of its positions."""
        writer, plane, depth = self.writer, self.plane, self.view.depth
        for number, (down, over) in enumerate(plane.phases):
            with writer.block(""), ExitStack() as stack:
                writer.line(f"float *to = staged + {number * plane.size};")
                tests = self._positions(stack, down, over)
                writer.line("float *const place = to++;")
                with writer.block("for (long channel = 0; channel < channels; channel += TW_LANES)"):
                    writer.line("const long live = tw_least_of(TW_LANES, channels - channel);")
                    writer.line("vf value = {0};")
                    with writer.block(f"if ({' && '.join(tests) or '1'})"):
                        writer.line(f"const long {depth} = first_channel + channel;")
                        emitter = Emitter(
                            writer, self.slots.address, Vector(depth, "live"), self.slots.extents, self.slots.numerics
                        )
                        writer.line(f"value = {emitter.vf(self.view.image.value)};")
                    store = f"place[(channel + lane) * {plane.channel}L] = value[lane];"
                    writer.line(f"for (long lane = 0; lane < live; lane++) {store}")

    def _each_lane(self, statement: str) -> None:
        self.writer.line(f"#pragma GCC unroll {self.lanes}")
        self.writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) {statement}")

    # Back to outputs, and what follows

    def _finish(self) -> None:
        """The sums with columns as neighbours, and the maps after them, row by row of the outputs."""
        writer, plane = self.writer, self.plane
        if plane.down is None:
            past = f"tw_least_of({plane.rows}, {self.view.rows} - first_row)"
            row = "0"
        else:
            last = f"tw_least_of({plane.rows}, {plane.down.output.extent} - first_row)"
            past, row = str(plane.columns * plane.images), f"row * {plane.pitch * plane.images}L"
        with ExitStack() as stack:
            if plane.down is not None:
                stack.enter_context(writer.block(f"for (long row = 0; row < {last}; row++)"))
                writer.line(f"const long {plane.down.output} = first_row + row;")
            writer.line(f"const long past = {past};")
            stack.enter_context(writer.block("for (long first = 0; first < past; first += TW_LANES)"))
            writer.line(f"const float *const from_sums = sums + {row} + first;")
            writer.line("const long live = tw_least_of(TW_LANES, past - first);")
            strips(writer, self.view.column, self.lanes, self._columns)

    def _columns(self, vector: Vector) -> None:
        writer, column = self.writer, self.view.column
        writer.line("vf square[TW_LANES];")
        place = f"from_sums + order[{column} + lane] * {self.plane.sums_row}L"
        test = f"lane >= {vector.count} ? tw_splat(0.0f) : " if vector.count else ""
        self._each_lane(f"square[lane] = {test}tw_load({place});")
        writer.line("tw_transpose(square);")
        with writer.block("for (long lane = 0; lane < live; lane++)"):
            self._output()
            self._maps(vector)

    def _output(self) -> None:
        """Declares the axes of an output but for its row."""
        writer, plane = self.writer, self.plane
        if plane.down is None:
            decode(writer, self.view.free, "(first_row + first + lane)")
            return
        if plane.across is not None:
            apart = f" / {plane.images}" if plane.images > 1 else ""
            at = f"(first + lane){apart}" if apart else "first + lane"
            writer.line(f"const long {plane.across.output} = {at};")
        if plane.batch is not None:
            image = f" + (first + lane) % {plane.images}" if plane.images > 1 else ""
            writer.line(f"const long {plane.batch} = first_image{image};")
            if plane.batch.extent % plane.images:
                writer.line(f"if ({plane.batch} >= {plane.batch.extent}) continue;")

    def _maps(self, vector: Vector) -> None:
        """The product's stored value and the epilogue's maps, at one vector of one output position."""
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)
        value = self.writer.name("product")
        self.writer.line(f"const vf {value} = square[lane];")
        finish(emitter, self.slots, self.view.product, self.view.epilogue, value)
