"""The `gemv` algorithm on a GPU: a few rows times a constant matrix, which is read once, 16 bytes a lane.

A few neighbouring lanes share a column of the matrix and deal its k out among themselves
(`compiler.devices.cuda.codegen.lane_columns`); shuffles add up their sums. The first stretches of the matrix are
requested before the kernel waits for the one it depends on, further ones while earlier ones are multiplied. The rows
lie in shared memory as fp32, with whatever was fused into them. Where columns are few, several blocks share out k, and
the last one adds up.

    block of the grid   `columns` columns, one part of k
    group of lanes      a few columns, every lane 16 bytes of each in a step

A tile says how many lanes a column has, a lane columns, a block threads, a column blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product as points
from math import log2

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.codegen.lane_columns import AHEAD, LANE_BYTES, QUAD, LaneColumns
from compiler.devices.cuda.codegen.last_block import RESULTS_AT_ONCE, last_block
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter
from compiler.devices.cuda.model import (
    LARGEST_SPAN,
    MEETING_NS,
    STALL,
    TRIP_NS,
    moved_ns,
    seconds,
    share,
    waves,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.contraction import Contraction, axes_of, packing_of
from compiler.forms.gemv import as_gemv
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Load
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

LANES = (1, 2, 4, 8, 16, 32)
COLUMNS = (1, 2, 4)
"""Of a group of lanes."""
THREADS = (64, 128, 256)
PARTS = (1, 2, 4, 8, 16)
"""Of k, for blocks."""
MOST_WASTE = 1.3
"""Elements that are read, against those of the matrix."""
SHARED_BYTES = 48 * 1024
"""Of a block: what any kernel may have."""
LARGEST_MATRIX = 2**31
"""Elements of a packed matrix."""
ELEMENTS = (DType.F32, DType.F16, DType.BF16)

SHUFFLE_NS = 15.0
"""One step of adding up what lanes have."""


def cuda_gemv_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Legal tiles, cheapest by the model first.

    Empty for a kernel that is no product of a few rows with a constant matrix.
    """
    view = as_gemv(workload)
    if view is None or not view.depth:
        return []
    if max(buffer.span for buffer in (*workload.inputs, *workload.outputs)) >= LARGEST_SPAN:
        return []
    matrix = _matrix(view, workload)
    if matrix not in ELEMENTS or view.columns * view.depth * 2 > LARGEST_MATRIX:
        return []
    per_lane = LANE_BYTES // matrix.bytes
    return sorted(_proposals(view, matrix, per_lane, target), key=lambda proposal: proposal.seconds)


def _matrix(view: Contraction, workload: Workload) -> DType:
    """The dtype of the matrix in memory."""
    slot = view.b.loads[0].slot
    return workload.inputs[[one.name for one in workload.kernel.inputs].index(slot)].dtype


def _proposals(view: Contraction, matrix: DType, per_lane: int, target: CudaTarget) -> Iterator[Proposal]:
    for lanes, each, threads, parts in points(LANES, COLUMNS, THREADS, PARTS):
        width = lanes * per_lane
        steps = -(-view.depth // (width * parts))
        columns = threads // lanes * each
        padded = -(-view.columns // columns) * columns
        wasted = steps * width * parts / view.depth
        shared = 4 * view.rows * (steps * width + columns) + 16
        if shared > SHARED_BYTES or (lanes > 1 and wasted > MOST_WASTE) or (parts > 1 and steps * each < AHEAD // 2):
            continue
        if columns > max(2 * view.columns, LANES[-1]):
            continue
        groups = padded // columns
        tile = Tile(
            "gemv",
            (
                *([Level("grid", (("k", parts),))] if parts > 1 else []),
                Level("block", (("threads", threads),)),
                Level("warp", (("lanes", lanes),)),
                Level("thread", (("n", each),)),
            ),
            in_registers(view.kernel),
        )
        nbytes = padded * steps * width * parts * matrix.bytes
        blocks = groups * parts
        yield Proposal(tile, _seconds(view, tile, nbytes, blocks, steps, shared, target), share=share(blocks, target))


def _seconds(
    view: Contraction, tile: Tile, nbytes: int, blocks: int, steps: int, shared: int, target: CudaTarget
) -> float:
    """The matrix at the rate that loads on their way allow, the rows at each block, sums across lanes, joined parts."""
    threads, lanes, each = (tile.extent(*at) for at in (("block", "threads"), ("warp", "lanes"), ("thread", "n")))
    parts = tile.extent("grid", "k", 1)
    ahead = min(max(AHEAD // each, 1), steps)
    rounds = waves(blocks, target.blocks_at_once(threads, 48 + 8 * ahead * each, shared), target)
    trips = rounds * -(-steps // ahead) - 1
    rows = TRIP_NS * (1 + view.rows * view.depth / parts / threads / 16)
    warps = -(-blocks // target.multiprocessors) * threads / WARP
    per_lane = nbytes / LANE_BYTES / (blocks * threads)
    instructions = per_lane * (8 + 8 * view.rows) + 60
    issue = max(warps / (target.fma_per_clock / WARP), STALL) * instructions / target.clock_ghz
    near = moved_ns(nbytes + blocks * 2 * view.rows * view.depth / parts, blocks, target)
    # Lanes that share a column read a stretch of memory; shorter ones than a sector of 32 bytes are read twice.
    near *= 2.0 if lanes == 1 and steps > 1 else 1.0
    meeting = MEETING_NS + parts * 10 if parts > 1 else 0.0
    shuffles = SHUFFLE_NS * (log2(lanes) + (view.rows * each - 1) * log2(lanes) / 4)
    return seconds(max(near, issue) + TRIP_NS * trips + rows + shuffles + meeting, target)


ROUNDS = 8
"""Elements of the rows that a thread has on their way."""


def lower_cuda_gemv(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_gemv` accepts.

    Levels: `grid` parts of k; `block` threads; `warp` lanes that share a column; `thread` n, the columns of such a
    group of lanes.
    """
    view = as_gemv(workload)
    assert view is not None, "the tile stage offers `gemv` only to kernels of that form"
    return Gemv(name, workload, view, tile, target.prefetch).lower()


def packing_for(view: Contraction, workload: Workload, tile: Tile) -> tuple[int, LaneColumns]:
    """How a tile has the matrix packed, with its input position."""
    found = packing_of(view, workload, 1)
    assert found is not None
    position, panels = found
    lanes = tile.extent("warp", "lanes")
    columns = tile.extent("block", "threads") // lanes * tile.extent("thread", "n")
    dtype = workload.inputs[position].dtype
    return position, LaneColumns(panels, dtype, lanes, columns, tile.extent("grid", "k", 1))


@dataclass
class Gemv:
    """One lowering: the matrix form, its tile, and the text being written."""

    name: str
    workload: Workload
    view: Contraction
    tile: Tile
    prefetch: bool = False

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.slots = Slots(self.workload)
        self.position, self.packing = packing_for(self.view, self.workload, self.tile)
        self.threads, self.parts = self.tile.extent("block", "threads"), self.packing.parts
        self.lanes, self.each = self.packing.lanes, self.tile.extent("thread", "n")
        self.columns = self.packing.whole
        self.steps = self.packing.steps // self.parts
        self.depth = self.steps * self.packing.width  # of one part
        self.per_lane = LANE_BYTES // self.packing.dtype.bytes
        self.ahead = min(max(AHEAD // self.each, 1), self.steps)
        self.results = self.view.rows * self.columns

    def lower(self) -> CudaLowered:
        """The kernel's text, with what its launch needs."""
        writer, view = self.writer, self.view
        groups = self.packing.columns // self.columns
        writer.line(f"const int group = tile{f' / {self.parts}' if self.parts > 1 else ''};")
        if self.parts > 1:
            writer.line(f"const int part = tile % {self.parts};")
        writer.line(f"const int lane = threadIdx.x % {self.lanes};")
        writer.line(f"const int own = (int)threadIdx.x / {self.lanes} * {self.each};")
        self._request()
        if self.prefetch and self.parts == 1 and self.steps > self.ahead:
            size = self.columns * self.steps * self.packing.width * self.packing.dtype.bytes
            writer.line(f"tw_prefetch({self._columns}, {size}, threadIdx.x, {self.threads});")
        writer.line("tw_grid_dependency_wait();")
        self._gather_rows()
        self._sums()
        self._meet()
        shared = 4 * (view.rows * self.depth + self.results) + 16
        roles = f"m {axes_of(view.m)}; n {axes_of((view.n,))}; k {axes_of(view.k)}"
        return framed(
            self.name,
            self.workload,
            writer.lines,
            Frame(
                grid=groups * self.parts,
                block=self.threads,
                shared_bytes=shared,
                scratch_bytes=4 * groups * self.parts * self.results if self.parts > 1 else 0,
                counters=groups if self.parts > 1 else 0,
                waits=True,
                resident=1,
            ),
            packings={self.position: self.packing},
            notes=[roles, f"{self.lanes} lanes share {self.each} of a block's {self.columns} columns"],
        )

    # The matrix

    @property
    def _columns(self) -> str:
        """C for where the block's columns begin."""
        matrix, column = self.workload.kernel.inputs[self.position].name, self.packing.steps * self.packing.width
        return f"{matrix} + (int64_t)group * {self.columns * column}"

    def _request(self) -> None:
        """The lane's first stretches of its columns, on their way."""
        ctype, column = CUDA_TYPES[self.packing.dtype], self.packing.steps * self.packing.width
        part = f" + part * {self.depth}" if self.parts > 1 else ""
        place = f"{self._columns} + (int64_t)own * {column}{part} + lane * {self.per_lane}"
        self.writer.line(f"const {ctype} *const weights = {place};")
        self.writer.line(f"uint4 coming[{self.each}][{self.ahead}];")
        self._load("0")

    def _load(self, first: str) -> None:
        """coming = the stretches from a step on, as far as there are any."""
        with ExitStack() as stack:
            self._each(stack, "step", self.ahead)
            if first != "0" and self.steps % self.ahead:
                stack.enter_context(self.writer.block(f"if ({first} + step < {self.steps})"))
            self._each(stack, "column", self.each)
            step = "step" if first == "0" else f"({first} + step)"
            place = f"column * {self.packing.steps * self.packing.width} + {step} * {self.packing.width}"
            self.writer.line(f"coming[column][step] = tw_load_once(weights + {place});")

    def _each(self, stack: ExitStack, index: str, count: int) -> None:
        """Enters an unrolled loop."""
        self.writer.line("#pragma unroll")
        stack.enter_context(self.writer.block(f"for (int {index} = 0; {index} < {count}; {index}++)"))

    # The rows

    def _gather_rows(self) -> None:
        """rows[m][k] = A[m][k] of the block's part of k, with whatever was fused into it; zero beyond its end."""
        writer, view = self.writer, self.view
        writer.line("float *const rows = (float *)shared;")
        writer.line(f"float *const results = rows + {view.rows * self.depth};")
        count = view.rows * self.depth
        with in_rounds(writer, "at", count, "(int)threadIdx.x", self.threads, ROUNDS):
            inner = "at" if view.rows == 1 else f"at % {self.depth}"
            writer.line(f"const int k = {f'part * {self.depth} + ' if self.parts > 1 else ''}{inner};")
            writer.line("float element = 0.0f;")
            with ExitStack() as stack:
                if self.depth * self.parts > view.depth:
                    stack.enter_context(writer.block(f"if (k < {view.depth})"))
                decode(writer, view.m, f"at / {self.depth}", "int")
                decode(writer, view.k, "k", "int")
                writer.line(f"element = {self._emitter().scalar(view.a)};")
            writer.line("rows[at] = element;")
        writer.line("__syncthreads();")

    def _emitter(self) -> CudaEmitter:
        elements = {slot: buffer.dtype for slot, buffer in self.slots.buffers.items()}
        return CudaEmitter(self.writer, self.slots.address, elements)

    # The product

    def _sums(self) -> None:
        """The sums of the lanes' shares of k, then of whole columns."""
        writer, rows = self.writer, self.view.rows
        writer.line(f"float sum[{rows}][{self.each}] = {{}};")
        with ExitStack() as stack:
            first = "0"
            if self.steps > self.ahead:
                first = "first"
                head = f"for (int first = 0; first < {self.steps}; first += {self.ahead})"
                stack.enter_context(writer.block(head))
                writer.line(f"uint4 now[{self.each}][{self.ahead}];")
                with ExitStack() as copying:
                    self._each(copying, "step", self.ahead)
                    self._each(copying, "column", self.each)
                    writer.line("now[column][step] = coming[column][step];")
                more = f"first + {self.ahead} < {self.steps}"
                with writer.block(f"if ({more})"):
                    self._load(f"first + {self.ahead}")
            self._multiply(first, "coming" if first == "0" else "now")
        if self.lanes > 1:
            with ExitStack() as stack:
                stack.enter_context(writer.block(f"for (int bits = {self.lanes // 2}; bits; bits /= 2)"))
                self._each(stack, "row", rows)
                self._each(stack, "column", self.each)
                writer.line("sum[row][column] += tw_of_lane(sum[row][column], bits);")
        with ExitStack() as stack:
            if self.lanes > 1:
                stack.enter_context(writer.block("if (lane == 0)"))
            self._each(stack, "row", rows)
            self._each(stack, "column", self.each)
            writer.line(f"results[row * {self.columns} + own + column] = sum[row][column];")
        writer.line("__syncthreads();")

    def _multiply(self, first: str, held: str) -> None:
        """sum += rows * the stretches that have come."""
        writer = self.writer
        with ExitStack() as stack:
            self._each(stack, "step", self.ahead)
            if first != "0" and self.steps % self.ahead:
                stack.enter_context(writer.block(f"if ({first} + step < {self.steps})"))
            step = "step" if first == "0" else f"({first} + step)"
            place = f"row * {self.depth} + {step} * {self.packing.width} + quad * {QUAD * self.lanes} + lane * {QUAD}"
            writer.line(f"float4 x[{self.view.rows}][{self.per_lane // QUAD}];")
            with ExitStack() as reading:
                self._each(reading, "row", self.view.rows)
                self._each(reading, "quad", self.per_lane // QUAD)
                writer.line(f"x[row][quad] = *(const float4 *)(rows + {place});")
            self._each(stack, "column", self.each)
            writer.line(f"float w[{self.per_lane}];")
            writer.line(f"tw_widen(w, {held}[column][step], weights);")
            self._each(stack, "row", self.view.rows)
            self._each(stack, "quad", self.per_lane // QUAD)
            writer.line("sum[row][column] += x[row][quad].x * w[4 * quad] + x[row][quad].y * w[4 * quad + 1];")
            writer.line("sum[row][column] += x[row][quad].z * w[4 * quad + 2] + x[row][quad].w * w[4 * quad + 3];")

    # What follows

    def _meet(self) -> None:
        """The block's sums, or those of all parts, through the maps."""
        if self.parts == 1:
            with self._results():
                self._maps("results[result]")
            return
        with self._results():
            self.writer.line(f"((float *)scratch)[tile * {self.results} + result] = results[result];")
        flag = f"(int *)(results + {self.results})"
        with last_block(self.writer, "group", self.parts, flag), self._results():
            self.writer.line(
                f"const float *const partial = (const float *)scratch + group * {self.parts * self.results};"
            )
            self.writer.line("float total = partial[result];")
            loop = f"for (int other = 1; other < {self.parts}; other++)"
            self.writer.line(f"{loop} total += partial[other * {self.results} + result];")
            self._maps("total")

    def _results(self) -> ExitStack:
        """A loop over the block's results."""
        stack = in_rounds(self.writer, "result", self.results, "(int)threadIdx.x", self.threads, RESULTS_AT_ONCE)
        return stack

    def _maps(self, value: str) -> None:
        """The product's stored value and the maps after it, at one row and column."""
        writer, view = self.writer, self.view
        column = f"result % {self.columns}" if view.rows > 1 else "result"
        writer.line(f"const int {view.n} = group * {self.columns} + {column};")
        with ExitStack() as stack:
            if self.packing.columns > view.columns:
                stack.enter_context(writer.block(f"if ({view.n} < {view.columns})"))
            decode(writer, view.m, f"result / {self.columns}", "int")
            emitter = self._emitter()
            for block in (view.product, *view.epilogue):
                for at, store in enumerate(block.stores):
                    dtype = view.kernel.slots[store.slot].type.dtype
                    if block is not view.product:
                        value = emitter.scalar(block.values[at])
                    name = writer.name("v")
                    writer.line(f"const {CUDA_TYPES[dtype]} {name} = {value};")
                    emitter.held[Load(store.slot, store.index, dtype)] = value = name
                    if store.slot in self.slots.buffers:
                        emitter.store(store.slot, store.index, name, dtype)


GEMV = CudaAlgorithm(("gemv",), cuda_gemv_tiles, lower_cuda_gemv)
