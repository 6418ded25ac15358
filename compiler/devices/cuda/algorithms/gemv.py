"""The `gemv` algorithm on a GPU: a few rows times a constant matrix, which is read once, 16 bytes a lane.

A few neighbouring lanes share a column of the matrix and deal its k out among themselves
(`compiler.devices.cuda.codegen.lane_columns`); shuffles add up their sums. The first stretches of the matrix are
requested before the kernel waits for the one it depends on, further ones while earlier ones are multiplied. The rows
lie in shared memory as fp32, with whatever was fused into them. Where columns are few, several blocks share out k, and
the last one adds up. Under `gemv_quantised` the matrix stays codes of few bits in memory, and 16 bytes are 16 to 64 of
them: each becomes the float that the dense matrix holds, to the bit, in a register.

    block of the grid   `columns` columns, one part of k
    group of lanes      a few columns, every lane 16 bytes of each in a step

A tile says how many lanes a column has, a lane columns, a block threads, a column blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product as points
from math import log2

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.codegen.codes import LaneCodes
from compiler.devices.cuda.codegen.lane_columns import AHEAD, LANE_BYTES, LaneColumns
from compiler.devices.cuda.codegen.lane_reading import Lanes, lane_reading, unrolled_each
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
from compiler.encodings.quantised import READ_BY, Quantised
from compiler.forms.contraction import Contraction, axes_of, packing_of
from compiler.forms.gemv import as_gemv
from compiler.forms.normal_form import Slots
from compiler.forms.quantised_panels import quantised_along_k
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
UNPACKING, MULTIPLYING = 3.5, 1.3
"""Instructions that make a float of a code, and that multiply it by an element of a row."""


def cuda_gemv_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Legal tiles, cheapest by the model first.

    Empty for a kernel that is no product of a few rows with a constant matrix.
    """
    view = as_gemv(workload)
    if view is None or not view.depth:
        return []
    if max(buffer.span for buffer in (*workload.inputs, *workload.outputs)) >= LARGEST_SPAN:
        return []
    _, matrix = _matrix(view, workload)
    if matrix.dtype not in ELEMENTS or view.columns * view.depth * 2 > LARGEST_MATRIX:
        return []
    ways = [("gemv", matrix)]
    if codes := _codes(view, workload):
        ways.append((READ_BY, LaneCodes(matrix.panels, DType.U8, 1, codes=codes)))
    found = (proposal for way in ways for proposal in _proposals(*way, view, target))
    return sorted(found, key=lambda proposal: proposal.seconds)


def _matrix(view: Contraction, workload: Workload) -> tuple[int, LaneColumns]:
    """The matrix as it lies in memory, for one lane, with its input position."""
    found = packing_of(view, workload, 1)
    assert found is not None, "`as_gemv` takes constant matrices"
    return found[0], LaneColumns(found[1], workload.inputs[found[0]].dtype, 1)


def _codes(view: Contraction, workload: Workload) -> Quantised | None:
    """The blocks in which the matrix was quantised along k, if lanes have whole ones, or whole parts of one."""
    for _, _, one in quantised_along_k(view, workload, 1):
        per_lane = LANE_BYTES * 8 // one.bits
        if one.block == view.depth or one.block % per_lane == 0 or per_lane % one.block == 0:
            return one
    return None


def _proposals(name: str, matrix: LaneColumns, view: Contraction, target: CudaTarget) -> Iterator[Proposal]:
    for lanes, each, threads, parts in points(LANES, COLUMNS, THREADS, PARTS):
        columns = threads // lanes * each
        packing = replace(matrix, lanes=lanes, whole=columns, parts=parts)
        steps, depth = packing.steps // parts, packing.steps * packing.width
        shared = 4 * view.rows * (depth // parts + columns) + 16
        wasted = depth / view.depth
        if shared > SHARED_BYTES or (lanes > 1 and wasted > MOST_WASTE) or (parts > 1 and steps * each < AHEAD // 2):
            continue
        if columns > max(2 * view.columns, LANES[-1]):
            continue
        tile = Tile(
            name,
            (
                *([Level("grid", (("k", parts),))] if parts > 1 else []),
                Level("block", (("threads", threads),)),
                Level("warp", (("lanes", lanes),)),
                Level("thread", (("n", each),)),
            ),
            in_registers(view.kernel),
        )
        blocks = packing.columns // columns * parts
        yield Proposal(tile, _seconds(view, tile, packing, blocks, shared, target), share=share(blocks, target))


def _seconds(
    view: Contraction, tile: Tile, packing: LaneColumns, blocks: int, shared: int, target: CudaTarget
) -> float:
    """The matrix at the rate that loads on their way allow, the rows at each block, sums across lanes, joined parts."""
    threads, lanes, each = (tile.extent(*at) for at in (("block", "threads"), ("warp", "lanes"), ("thread", "n")))
    parts, nbytes = packing.parts, packing.elements * packing.dtype.bytes
    steps = packing.steps // parts
    ahead = min(max(AHEAD // each, 1), steps)
    held, unpacking, each_row = 8, 8.0, 8.0
    if isinstance(packing, LaneCodes):
        held += 2 * packing.runs * (2 - packing.codes.centred)
        unpacking, each_row = UNPACKING * packing.per_lane, MULTIPLYING * packing.per_lane
    rounds = waves(blocks, target.blocks_at_once(threads, 48 + held * ahead * each, shared), target)
    trips = rounds * -(-steps // ahead) - 1
    rows = TRIP_NS * (1 + view.rows * view.depth / parts / threads / 16)
    warps = -(-blocks // target.multiprocessors) * threads / WARP
    loads = steps * each
    instructions = loads * (unpacking + each_row * view.rows) + 60
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
    position, matrix = _matrix(view, workload)
    if tile.algorithm == READ_BY:
        codes = _codes(view, workload)
        assert codes is not None, "the tile stage offers codes only where an encoding tells of blocks"
        matrix = LaneCodes(matrix.panels, DType.U8, 1, codes=codes)
    lanes = tile.extent("warp", "lanes")
    columns = tile.extent("block", "threads") // lanes * tile.extent("thread", "n")
    return position, replace(matrix, lanes=lanes, whole=columns, parts=tile.extent("grid", "k", 1))


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
        self.ahead = min(max(AHEAD // self.each, 1), self.steps)
        self.results = self.view.rows * self.columns
        matrix = self.workload.kernel.inputs[self.position].name
        self.matrix = lane_reading(Lanes(matrix, self.view.rows, self.each, self.ahead, self.depth), self.packing)

    def lower(self) -> CudaLowered:
        """The kernel's text, with what its launch needs."""
        writer, view = self.writer, self.view
        groups = self.packing.columns // self.columns
        writer.line(f"const int group = tile{f' / {self.parts}' if self.parts > 1 else ''};")
        if self.parts > 1:
            writer.line(f"const int part = tile % {self.parts};")
        writer.line(f"const int lane = threadIdx.x % {self.lanes};")
        writer.line(f"const int own = (int)threadIdx.x / {self.lanes} * {self.each};")
        self.matrix.begin(writer, "part" if self.parts > 1 else "")
        self.matrix.declare(writer, "coming")
        self._load("0")
        if self.prefetch and self.parts == 1 and self.steps > self.ahead:
            place, size = self.matrix.asked
            writer.line(f"tw_prefetch({place}, {size}, threadIdx.x, {self.threads});")
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
                header=self.matrix.header,
            ),
            packings={self.position: self.packing},
            notes=[roles, f"{self.lanes} lanes share {self.each} of a block's {self.columns} columns"],
        )

    def _load(self, first: str) -> None:
        """coming = the stretches from a step on, as far as there are any."""
        with ExitStack() as stack:
            self._steps_held(stack, first)
            stack.enter_context(unrolled_each(self.writer, column=self.each))
            self.matrix.load(self.writer, "step" if first == "0" else f"({first} + step)")

    def _steps_held(self, stack: ExitStack, first: str) -> None:
        """Enters a loop over the steps that are held, from a step on, as far as there are any."""
        stack.enter_context(unrolled_each(self.writer, step=self.ahead))
        if first != "0" and self.steps % self.ahead:
            stack.enter_context(self.writer.block(f"if ({first} + step < {self.steps})"))

    # The rows

    def _gather_rows(self) -> None:
        """rows[m][k] = A[m][k] of the block's part of k, with whatever was fused into it; zero beyond its end."""
        writer, view = self.writer, self.view
        writer.line("float *const rows = (float *)shared;")
        writer.line(f"float *const results = rows + {view.rows * self.depth};")
        count = view.rows * self.depth
        with in_rounds(writer, "at", count, "(int)threadIdx.x", self.threads, ROUNDS):
            inner = self.matrix.along("at" if view.rows == 1 else f"at % {self.depth}")
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
                self.matrix.declare(writer, "now")
                with unrolled_each(writer, step=self.ahead, column=self.each):
                    self.matrix.keep(writer)
                more = f"first + {self.ahead} < {self.steps}"
                with writer.block(f"if ({more})"):
                    self._load(f"first + {self.ahead}")
            self._multiply(first, "coming" if first == "0" else "now")
        if self.lanes > 1:
            with ExitStack() as stack:
                stack.enter_context(writer.block(f"for (int bits = {self.lanes // 2}; bits; bits /= 2)"))
                stack.enter_context(unrolled_each(writer, row=rows, column=self.each))
                writer.line("sum[row][column] += tw_of_lane(sum[row][column], bits);")
        with ExitStack() as stack:
            if self.lanes > 1:
                stack.enter_context(writer.block("if (lane == 0)"))
            stack.enter_context(unrolled_each(writer, row=rows, column=self.each))
            writer.line(f"results[row * {self.columns} + own + column] = sum[row][column];")
        writer.line("__syncthreads();")

    def _multiply(self, first: str, held: str) -> None:
        """sum += rows * the stretches that have come."""
        with ExitStack() as stack:
            self._steps_held(stack, first)
            self.matrix.multiply(self.writer, held, "step" if first == "0" else f"({first} + step)")

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


GEMV = CudaAlgorithm(("gemv", READ_BY), cuda_gemv_tiles, lower_cuda_gemv)
