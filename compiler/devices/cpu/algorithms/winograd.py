"""The `winograd` algorithm: convolutions of unit stride by minimal filtering (`compiler.forms.winograd`) as C.

A task is a block of output tiles against a block of output channels. It transforms the inputs of its tiles, V = B^T d
B, one vector of channels at a time, into the lane's scratch: a matrix of tiles x channels for each element of a
transformed tile. Panel by panel of output channels it multiplies each of them with the transformed weights, M = V U. It
transforms back, Y = A^T M A, with the maps that follow applied on the way to memory. V and one panel's M stay in the
second-level cache; the weights are read once per block of tiles.

A transform is written out for one axis and applied along each axis in turn. Points come in pairs +-p, whose rows share
what is even and what is odd in p.

A tile says how many outputs it has along each axis, and how many tiles and channels are worked on at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from math import prod

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.blocking import even_part, most_rows, parts, rest_step
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.micro_kernel import MicroKernel
from compiler.devices.cpu.codegen.strips import panel_strips, strips
from compiler.devices.cpu.codegen.trimming import Span, Trimming
from compiler.devices.cpu.codegen.winograd_transforms import write_input, write_output
from compiler.devices.cpu.model import CALL_NS, IN_FLIGHT, STREAMING
from compiler.devices.cpu.products.row_cuts import PER_LANE, busiest, sizes, with_row_cuts
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import open_axes
from compiler.forms.cache_lines import LINE
from compiler.forms.contraction import axes_of
from compiler.forms.normal_form import Slots
from compiler.forms.winograd import (
    POSITIVE_POINTS,
    Convolution,
    Form,
    Inside,
    as_convolution,
    form,
    inside_of,
    relative_error,
    transformed_panels,
    transforms_of,
)
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

LEAST_OUTPUTS = 2
MOST_VECTORS = 4
TASKS_PER_LANE = 4
"""Blocks for each lane from which on it does not matter that the lanes' shares differ by one."""
INPUT_NS, OUTPUT_NS = 3.0, 2.0
"""One vector of one element, transformed along both axes."""
BLOCK_L2 = 0.5
"""The part of the second-level cache that a block's V and M may fill; weights stream through the rest."""
SAMPLED = 4
"""Sizes, evenly from the capacity down, at which tiles that a size ends are costed: nobody knows which will come."""
WORTHWHILE = 1.25
"""A form is left out where the model thinks another one, no less exact, this much faster."""


def winograd_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles of every form, cheapest by the model first; empty for a kernel that is no convolution of unit stride.

    Each states the error that its form adds; whoever asks chooses what a job can bear.
    """
    view = as_convolution(workload)
    if view is None or view.column.extent < target.vector_floats:
        return []
    choices = [_outputs(sweep.tap.extent, sweep.output.extent) for sweep in view.sweeps]
    widths = range(1, min(MOST_VECTORS, -(-view.column.extent // target.vector_floats)) + 1)
    offered = {
        one: sorted((tile for vectors in widths for tile in one.proposals(vectors, target, lanes)), key=_seconds_of)
        for one in (_Filtering.of(view, outputs) for outputs in product(*choices))
    }
    heads = [options[0] for options in offered.values()]
    kept = [one for one, own in offered.items() if not any(_outdoes(head, own[0]) for head in heads)]
    cuts = [
        (cut.seconds * busiest(*_blocks(view, one.outputs, cut.tile), lanes), cut)
        for one in kept
        for vectors in widths
        for count in ((lanes, PER_LANE * lanes) if lanes > 1 else ())
        for cut in one.proposals(vectors, target, lanes, count)
    ]
    return with_row_cuts([tile for one in kept for tile in offered[one]], cuts, lanes)


def _blocks(view: Convolution, outputs: tuple[int, ...], tile: Tile) -> tuple[list[int], list[int]]:
    """Tiles and channels of the blocks of an image."""
    tiles, columns = prod(view.tiles(outputs)), view.column.extent
    return sizes(tiles, tile.extent("block", "m")), sizes(columns, tile.extent("block", "n"))


def _seconds_of(proposal: Proposal) -> float:
    return proposal.seconds


def _outdoes(one: Proposal, other: Proposal) -> bool:
    return one.error <= other.error and one.seconds * WORTHWHILE < other.seconds


def _outputs(taps: int, extent: int) -> list[int]:
    """How many outputs a tile may have along an axis.

    Where two choices make equally many tiles, the smaller has the smaller error.
    """
    possible = [elements - taps + 1 for elements in POSITIVE_POINTS if elements - taps + 1 >= LEAST_OUTPUTS]
    fewest: dict[int, int] = {}
    for outputs in sorted(possible, reverse=True):
        fewest[-(-extent // outputs)] = outputs
    return sorted(fewest.values())


@dataclass(frozen=True, eq=False)
class _Filtering:
    """A convolution by one form.

    outputs  along each swept axis
    elements of a transformed tile
    tiles    of all images and groups' rows
    sampled  see `_sampled`
    error    relative, that the form adds
    """

    view: Convolution
    outputs: tuple[int, ...]
    elements: int
    tiles: int
    sampled: Sequence[tuple[int, float]]
    error: float

    @classmethod
    def of(cls, view: Convolution, outputs: tuple[int, ...]) -> _Filtering:
        """`view` by tiles of so many outputs."""
        forms = [form(many, sweep.tap.extent) for many, sweep in zip(outputs, view.sweeps, strict=True)]
        elements, error = prod(one.elements for one in forms), relative_error(forms, view.depth.extent)
        return cls(view, outputs, elements, prod(view.tiles(outputs)), _sampled(view, outputs), error)

    def proposals(self, vectors: int, target: CpuTarget, lanes: int, count: int = 0) -> list[Proposal]:
        """Register tiles of so many vectors, at blocks of different size, or at `count` equal ones."""
        view, tiles, panel = self.view, self.tiles, vectors * target.vector_floats
        rows = even_part(tiles, most_rows(vectors, target))
        tile_bytes = self.elements * (view.depth.extent + panel) * 4
        fit = max(int(BLOCK_L2 * target.l2_bytes) // tile_bytes // rows, 1)
        panels = -(-view.column.extent // panel)
        groups, all_rows = prod(axis.extent for axis in view.groups), parts(tiles, rows)
        found = []
        for block in {min(parts(all_rows, count), fit) * rows} if count else {rows, min(fit, all_rows) * rows}:
            blocks = -(-tiles // block) * groups
            # lanes share the blocks of tiles, or, where those are too few, the panels: then each transforms all inputs
            across = 1 if blocks % lanes == 0 or blocks >= TASKS_PER_LANE * lanes else min(lanes, panels)
            width = max(panels // across, 1) * panel
            levels = (
                Level("transform", tuple(zip("yx"[-len(self.outputs) :], self.outputs, strict=True))),
                Level("block", (("m", block), ("n", width))),
                Level("register", (("m", rows), ("n", panel))),
            )
            tile = Tile("winograd", levels, in_registers(view.kernel))
            taken = [
                _seconds(view, self.elements, many, rows, vectors, block, target) / share
                for many, share in self.sampled
            ]
            seconds = sum(taken) / len(taken)
            found.append(Proposal(tile, seconds, self.error, blocks if groups == 1 else 1))
        return found


def _sampled(view: Convolution, outputs: tuple[int, ...]) -> list[tuple[int, float]]:
    """Tiles of an image, and which share of all outputs they make: at several sizes where these end a sweep."""
    swept = [sweep.output for sweep in view.sweeps]
    ended = open_axes(view.kernel)
    found = []
    for part in range(1, SAMPLED + 1) if ended & {*swept} else (SAMPLED,):
        extents = [-(-axis.extent * part // SAMPLED) if axis in ended else axis.extent for axis in swept]
        tiles = prod(axis.extent for axis in view.free) * prod(map(parts, extents, outputs))
        found.append((tiles, prod(extents) / prod(axis.extent for axis in swept)))
    return found


def _seconds(
    view: Convolution, elements: int, tiles: int, rows: int, vectors: int, block: int, target: CpuTarget
) -> float:
    """Products, beside which weights arrive once, and come from L2 for each register tile; then the transforms."""
    rates, vector_bytes = target.rates, target.vector_floats * 4
    groups, depth = prod(axis.extent for axis in view.groups), view.depth.extent
    panels = -(-view.column.extent // (vectors * target.vector_floats))
    last = tiles % block or block
    register_tiles = tiles // block * -(-block // rows) + (-(-last // rows) if tiles % block else 0)
    step = max(rows * vectors, IN_FLIGHT, rows + vectors) / rows
    products = elements * panels * depth * tiles * step / rates.fma_per_ns
    weights = elements * panels * depth * vectors * vector_bytes
    streamed = STREAMING * register_tiles * weights / rates.l2_per_ns
    moved = elements * tiles * (INPUT_NS * -(-depth // target.vector_floats) + OUTPUT_NS * panels * vectors)
    return 1e-9 * (CALL_NS + groups * (max(products, weights / rates.weights_per_ns, streamed) + moved))


AHEAD = 128
"""Steps of k by which weights are fetched before they are read.

Each is read once per block of tiles, from beyond the second-level cache.
"""


def winograd(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_convolution` accepts.

    Levels of `tile`: `transform` (outputs of a tile along y and x), `block` (m tiles and n channels of a task),
    `register` (m tiles, n channels).
    """
    return _Winograd(name, workload, tile, target)


class _Winograd(Lowering):
    """`v_row`, `v_plane` and `m_plane` are distances in floats: between tiles, and between elements of V and of M.

    `number` is the number of a block's tile t, in C.
    """

    def __init__(self, name: str, workload: Workload, tile: Tile, target: CpuTarget) -> None:
        view = as_convolution(workload)
        assert view is not None, "the tile stage offers `winograd` only to kernels of that form"
        self.name, self.workload, self.view = name, workload, view
        self.writer, self.slots, self.lanes = Writer(), Slots(workload), target.vector_floats
        outputs = transforms_of(tile)
        self.forms = [form(many, sweep.tap.extent) for many, sweep in zip(outputs, view.sweeps, strict=True)]
        self.elements = prod(one.elements for one in self.forms)
        counts = view.tiles(outputs)
        names = [f"tile_{sweep.output.name.lower()}" for sweep in view.sweeps]
        self.places = [Axis(name, count) for name, count in zip(names, counts[len(view.free) :], strict=True)]
        self.tiles = prod(counts)
        self.rows, self.panel = tile.extent("register", "m"), tile.extent("register", "n")
        self.block = min(tile.extent("block", "m"), self.tiles)
        self.row_blocks = -(-self.tiles // self.block)
        self.panels = -(-view.column.extent // self.panel)
        self.block_panels = tile.extent("block", "n") // self.panel
        self.column_blocks = -(-self.panels // self.block_panels)
        self.v_row = _apart(-(-view.depth.extent // self.lanes) * self.lanes)
        self.v_plane = _apart(self.block * self.v_row)
        self.m_plane = _apart(self.block * self.panel)
        self.weights = [slot.name for slot in workload.kernel.inputs].index(view.weights.slot)
        self.packing = transformed_panels(view, outputs, self.panel)
        self.trimming = Trimming(self.writer, view.kernel, self.slots, self.lanes)
        self.ends = self.trimming.ends_any((*view.free, *(sweep.output for sweep in view.sweeps)))
        self.number = "live[t]" if self.ends else "(first + t)"

    def lower(self) -> Lowered:
        writer = self.writer
        for rows in self._row_counts():
            offsets = tuple(row * self.v_row for row in range(rows))
            vectors = self.panel // self.lanes
            kernel = MicroKernel(offsets, ((self.view.depth.extent, 1),), vectors, self.lanes, AHEAD)
            kernel.write(writer, f"{self.name}_{rows}")
        self._input_transform()
        self._output_transform()
        with kernel_function(writer, self.name, self.workload, *self._notes()):
            writer.line("/* v[element][tile][channel], m[element][tile][channel of the panel] */")
            writer.line("float *const v = (float *)scratch;")
            writer.line(f"float *const m = v + {self.elements * self.v_plane};")
            if self.ends:
                self._live_blocks()
            else:
                writer.line("long transformed = -1;")
                with self.trimming.tasks(self.grid):
                    self._task()
        scratch = 4 * self.elements * (self.v_plane + self.m_plane)
        return Lowered(
            self.name,
            writer.text(),
            self.tasks,
            scratch,
            {self.weights: self.packing},
            self.grid,
            headers=frozenset(writer.headers),
        )

    @property
    def grid(self) -> TaskGrid:
        """As `_task` takes a tile's number apart."""
        view = self.view
        tiles = (*view.free, *(sweep.output for sweep in view.sweeps))
        steps = (*(1 for _ in view.free), *(one.outputs for one in self.forms))
        columns = Cut((view.column,), self.block_panels * self.panel)
        return TaskGrid(view.kernel, (*one_by_one(view.groups), Cut(tiles, self.block, steps), columns))

    def _row_counts(self) -> list[int]:
        """Heights of the register tiles that occur: whole ones, and what remains of a block and of the last block.

        Where sizes end tiles a block has any number of them, and the least height that suffices is taken.
        """
        last = self.tiles - (self.row_blocks - 1) * self.block
        blocks = {last, self.block}
        whole = {self.rows} if self.block >= self.rows else set()
        step = rest_step(self.rows)
        shorter = range(step, min(self.rows, self.block), step) if self.ends else ()
        return sorted(whole | {*shorter} | {block % self.rows for block in blocks} - {0}, reverse=True)

    def _notes(self) -> tuple[str, str]:
        """For the comment above the kernel: its forms, tiles and channels."""
        view = self.view
        pairs = zip(self.forms, view.sweeps, strict=True)
        swept = ", ".join(f"{one} along {sweep.output}:{sweep.output.extent}" for one, sweep in pairs)
        return (
            f"{swept}; {self.tiles} tiles of {self.elements} elements",
            f"groups {axes_of(view.groups)}; channels {axes_of((view.depth,))} -> {axes_of((view.column,))}",
        )

    # Transforms of one tile at one vector of channels

    def _input_transform(self) -> None:
        """name_input: v = B^T d B for the inputs at d + i * row + j * step."""
        writer, name, forms = self.writer, f"{self.name}_input", self.forms
        self._along_one_axis(name, write_input)
        self._input_tile("")
        image = inside_of(self.view)
        if image is not None and self.slots.buffers[image.load.slot].element is DType.BF16:
            head = f"{name}_{_suffix(forms[0])}_bf16(const tw_bf16 *x, long x_step, float *y, long y_step)"
            with writer.block(f"static inline void {head}"):
                writer.include("tw_short.h")
                write_input(writer, forms[0], "tw_load_bf16")
            writer.line()
            self._input_tile("_bf16")

    def _input_tile(self, ending: str) -> None:
        """name_input, which reads what the C functions of this ending do."""
        writer, name, (*outer, inner) = self.writer, f"{self.name}_input", self.forms
        kind = "tw_bf16" if ending else "float"
        with writer.block(f"static void {name}{ending}(const {kind} *d, long row, long step, float *v)"):
            if not outer:
                writer.line("(void)row;")
                writer.line(f"{name}_{_suffix(inner)}{ending}(d, step, v, {self.v_plane});")
            else:
                self._nested(
                    (outer[0].elements, inner.elements),
                    f"{name}_{_suffix(outer[0])}{ending}(d + j * step, row, {{half}}, {{row}});",
                    f"{name}_{_suffix(inner)}({{half}}, {{step}}, v + i * {inner.elements * self.v_plane}, "
                    f"{self.v_plane});",
                )
        writer.line()

    def _output_transform(self) -> None:
        """name_output: y = A^T m A, the outputs of a tile as dense rows of vectors."""
        writer, name, forms = self.writer, f"{self.name}_output", self.forms
        self._along_one_axis(name, write_output)
        *outer, inner = forms
        with writer.block(f"static void {name}(const float *m, float *y)"):
            if not outer:
                writer.line(f"{name}_{_suffix(inner)}(m, {self.m_plane}, y, {self.lanes});")
            else:
                self._nested(
                    (outer[0].outputs, inner.elements),
                    f"{name}_{_suffix(outer[0])}(m + j * {self.m_plane}, {inner.elements * self.m_plane}, "
                    f"{{half}}, {{row}});",
                    f"{name}_{_suffix(inner)}({{half}}, {{step}}, y + i * {inner.outputs * self.lanes}, {self.lanes});",
                )
        writer.line()

    def _along_one_axis(self, name: str, write: Callable[[Writer, Form], None]) -> None:
        """A function for each form, which transforms along one axis: y from x, both in constant steps."""
        for one in dict.fromkeys(self.forms):
            head = f"static inline void {name}_{_suffix(one)}(const float *x, long x_step, float *y, long y_step)"
            with self.writer.block(head):
                write(self.writer, one)
            self.writer.line()

    def _nested(self, half: tuple[int, int], along_y: str, along_x: str) -> None:
        """Each column along y into `half`, then each row of that along x."""
        writer, lanes, (high, wide) = self.writer, self.lanes, half
        writer.line(f"float half[{high * wide * lanes}] __attribute__((aligned(64)));")
        line = along_y.format(half=f"half + j * {lanes}", row=wide * lanes)
        writer.line(f"for (long j = 0; j < {wide}; j++) {line}")
        line = along_x.format(half=f"half + i * {wide * lanes}", step=lanes)
        writer.line(f"for (long i = 0; i < {high}; i++) {line}")

    # A task: one block of tiles against one block of panels

    def _task(self) -> None:
        writer = self.writer
        writer.line(f"const long column_block = tile % {self.column_blocks};")
        writer.line(f"const long row_block = tile / {self.column_blocks} % {self.row_blocks};")
        writer.line(f"const long group = tile / {self.column_blocks * self.row_blocks};")
        decode(writer, self.view.groups, "group")
        writer.line(f"const long first = row_block * {self.block};")
        writer.line(f"const long count = tw_least_of({self.tiles} - first, {self.block});")
        with writer.block(f"if (transformed != tile / {self.column_blocks})"):
            writer.line(f"transformed = tile / {self.column_blocks};")
            self._transform_inputs()
        self._panels()

    def _panels(self) -> None:
        """The products of a block's tiles, panel by panel, and their outputs."""
        writer = self.writer
        writer.line(f"const long first_panel = column_block * {self.block_panels};")
        writer.line(f"const long past_panel = tw_least_of(first_panel + {self.block_panels}, {self.panels});")
        with writer.block("for (long panel = first_panel; panel < past_panel; panel++)"):
            self._multiply()
            self._transform_outputs()

    def _live_blocks(self) -> None:
        """All tasks where sizes end tiles: those that lie beyond a size as a whole are left out, and stored.

        The others are listed, and worked on in whole blocks, whichever task they are of. Where the next task has other
        channels or another group, and at the end, the last block has what is left.
        """
        writer, block, columns = self.writer, self.block, self.column_blocks
        writer.line(f"long live[{2 * block}], listed = 0; /* tiles to work on */")
        writer.line("long of = 0; /* their group and block of channels */")
        with writer.block("for (long tile = begin; tile <= end; tile++)"):
            writer.line(
                f"const long own = tile < end ? tile / {columns * self.row_blocks} * {columns} + tile % {columns} : -1;"
            )
            with writer.block(f"while (listed >= {block} || (listed > 0 && own != of))"):
                writer.line(f"const long count = tw_least_of(listed, {block});")
                self._channels("of")
                self._transform_inputs()
                self._panels()
                writer.line("listed -= count;")
                writer.line("memmove(live, live + count, listed * sizeof *live);")
            writer.line("if (tile == end) break;")
            writer.line("of = own;")
            self.trimming.skip(self.grid)
            self._channels("own")
            self._list_tiles()

    def _channels(self, number: str) -> None:
        """Declares the group and the block of channels of a number that counts both."""
        self.writer.line(f"const long column_block = {number} % {self.column_blocks};")
        self.writer.line(f"const long group = {number} / {self.column_blocks};")
        decode(self.writer, self.view.groups, "group")

    def _list_tiles(self) -> None:
        """Appends the tiles of a task to those to work on; what lies beyond a size as a whole is stored."""
        writer, width = self.writer, self.panel * self.block_panels
        writer.line(f"const long first = tile / {self.column_blocks} % {self.row_blocks} * {self.block};")
        writer.line(f"const long past = tw_least_of({self.tiles}, first + {self.block});")
        writer.line(f"const long past_column = tw_least_of({self.view.column.extent}, (column_block + 1) * {width});")
        (tiles,) = (level for level in self.grid.levels if level.axes[-1] == self.view.sweeps[-1].output)
        columns = Span((self.view.column,), f"column_block * {width}", "past_column")
        self.trimming.list_live(Span(tiles.axes, "first", "past", tiles.steps), "live", "listed", (columns,))

    def _tile_of(self) -> None:
        """Declares the free axes and the place along each sweep of tile t of a block."""
        decode(self.writer, (*self.view.free, *self.places), self.number)

    def _transform_inputs(self) -> None:
        """V for each tile t of the block, as v[element][t].

        A tile is read in place where all of it lies inside the padding, else by way of a patch.
        """
        writer, depth, lanes = self.writer, self.view.depth, self.lanes
        whole = depth.extent // lanes * lanes
        with writer.block("for (long t = 0; t < count; t++)"):
            self._tile_of()
            writer.line(f"float *const to = v + t * {self.v_row};")
            inside = inside_of(self.view)
            if whole:
                with ExitStack() as stack:
                    if inside is not None:
                        with writer.block(f"if ({self._meets_no_padding(inside)})"):
                            self._read_in_place(inside.load, whole)
                        stack.enter_context(writer.block("else"))
                    stack.enter_context(writer.block(f"for (long {depth} = 0; {depth} < {whole}; {depth} += TW_LANES)"))
                    self._read_patch(Vector(depth))
            if whole < depth.extent:
                strips(writer, depth, lanes, self._read_patch, whole)

    def _meets_no_padding(self, inside: Inside) -> str:
        """The condition that all of a tile lies inside the padding."""
        tests = []
        for place, one, (begin, end) in zip(self.places, self.forms, inside.bounds, strict=True):
            first, past = -(-begin // one.outputs), (end - one.elements) // one.outputs + 1
            tests += [f"{place} >= {first}"] if first > 0 else []
            tests += [f"{place} < {past}"] if past < place.extent else []
        return " && ".join(tests) or "1"

    def _read_in_place(self, load: Load, whole: int) -> None:
        view, writer = self.view, self.writer
        slot, offset = self.slots.address(load.slot, load.index)
        emitter = Emitter(writer, self.slots.address, numerics=self.slots.numerics)
        for sweep, place, one in zip(view.sweeps, self.places, self.forms, strict=True):
            emitter.names[sweep.position] = f"({place} * {one.outputs})"
        row, step = (0, *(offset.coefficient(sweep.position) or 0 for sweep in view.sweeps))[-2:]
        with writer.block(f"for (long {view.depth} = 0; {view.depth} < {whole}; {view.depth} += TW_LANES)"):
            place_of = emitter.index(offset)
            writer.line(
                f"{self.name}_input{emitter.ending(slot)}({slot} + {place_of}, {row}, {step}, to + {view.depth});"
            )

    def _read_patch(self, vector: Vector) -> None:
        """The tile's inputs at one vector of channels, in a patch with zeros where the image ends; their transform."""
        view, writer, lanes = self.view, self.writer, self.lanes
        writer.line(f"float patch[{self.elements * lanes}] __attribute__((aligned(64)));")
        inner = self.forms[-1].elements
        with ExitStack() as stack:
            tests, at = [], Index.of(0)
            for letter, sweep, place, one in zip(
                "ij"[-len(self.forms) :], view.sweeps, self.places, self.forms, strict=True
            ):
                stack.enter_context(writer.block(f"for (long {letter} = 0; {letter} < {one.elements}; {letter}++)"))
                writer.line(f"const long {sweep.position} = {place} * {one.outputs} + {letter};")
                at = at * one.elements + Axis(letter, one.elements)
                if (place.extent - 1) * one.outputs + one.elements > sweep.position.extent:
                    tests.append(f"{sweep.position} < {sweep.position.extent}")
            emitter = Emitter(writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)
            writer.line("vf value = {0};")
            with ExitStack() as inside:
                if tests:
                    inside.enter_context(writer.block(f"if ({' && '.join(tests)})"))
                writer.line(f"value = {emitter.vf(view.image.value)};")
            writer.line(f"tw_store(patch + ({emitter.index(at)}) * {lanes}, value);")
        writer.line(f"{self.name}_input(patch, {inner * lanes}, {lanes}, to + {vector.axis});")

    def _multiply(self) -> None:
        """m[element] = v[element] u[element] for one panel of output channels."""
        writer, size = self.writer, self.view.depth.extent * self.panel
        slot = self.workload.kernel.inputs[self.weights].name
        writer.line(f"const float *const u = {slot} + (group * {self.panels} + panel) * {self.elements * size}L;")
        with (
            writer.block(f"for (long element = 0; element < {self.elements}; element++)"),
            writer.block(f"for (long t = 0; t < count; t += {self.rows})"),
        ):
            writer.line(f"const float *const a = v + element * {self.v_plane} + t * {self.v_row};")
            writer.line(f"float *const c = m + element * {self.m_plane} + t * {self.panel};")
            counts = self._row_counts()
            if len(counts) > 1:
                writer.line(f"const long rows = tw_least_of(count - t, {self.rows});")
            for at, rows in enumerate(counts):
                suffices = f"rows > {counts[at + 1]}" if self.ends and at + 1 < len(counts) else f"rows == {rows}"
                test = f"if ({suffices}) " if at + 1 < len(counts) else ""
                writer.line(f"{'else ' * (at > 0)}{test}{self.name}_{rows}(a, u + element * {size}, c);")

    # Back to outputs, and what follows

    def _transform_outputs(self) -> None:
        """The outputs of each tile of the block at one panel; tiles at the far borders are cut off there."""
        with self.writer.block("for (long t = 0; t < count; t++)"):
            self._tile_of()

            def outputs(vector: Vector, column: str) -> None:
                self._outputs(vector, f"m + t * {self.panel} + {column}")

            panel_strips(self.writer, self.view.column, self.panel, self.lanes, outputs)

    def _outputs(self, vector: Vector, source: str) -> None:
        view, writer = self.view, self.writer
        many = prod(one.outputs for one in self.forms)
        writer.line(f"float outputs[{many * self.lanes}] __attribute__((aligned(64)));")
        writer.line(f"{self.name}_output({source}, outputs);")
        with ExitStack() as stack:
            at = Index.of(0)
            for letter, sweep, place, one in zip(
                "ij"[-len(self.forms) :], view.sweeps, self.places, self.forms, strict=True
            ):
                left = f"{sweep.output.extent} - {place} * {one.outputs}"
                cut = sweep.output.extent % one.outputs > 0
                limit = f"tw_least_of({left}, {one.outputs})" if cut else str(one.outputs)
                writer.line(f"const long past_{letter} = {limit};")
                stack.enter_context(writer.block(f"for (long {letter} = 0; {letter} < past_{letter}; {letter}++)"))
                writer.line(f"const long {sweep.output} = {place} * {one.outputs} + {letter};")
                at = at * one.outputs + Axis(letter, one.outputs)
            place_of = Emitter(writer, self.slots.address).index(at)
            self._maps(vector, f"tw_load(outputs + ({place_of}) * {self.lanes})")

    def _maps(self, vector: Vector, product: str) -> None:
        """The product's stored value and the epilogue's maps, at one vector of one output position."""
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)
        value = self.writer.name("product")
        self.writer.line(f"const vf {value} = {product};")
        finish(emitter, self.slots, self.view.product, self.view.epilogue, value)


def _apart(floats: int) -> int:
    """A distance of whole cache lines, an odd number of them: neither planes nor rows may share the sets of a cache."""
    lines = -(-floats // LINE)
    return LINE * (lines + (lines % 2 == 0))


def _suffix(one: Form) -> str:
    return f"f{one.outputs}_{one.taps}"


WINOGRAD = Algorithm(("winograd",), winograd_tiles, winograd, takes=any_short)
