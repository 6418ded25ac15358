"""Squeeze and excitation as one CUDA kernel: the mean of each channel, hidden units, columns.

Blocks share out channels and positions (`compiler.devices.cuda.algorithms.excitation.geometry`). Each fetches its
weights before the kernel waits for its predecessor, sums its elements, and multiplies the sums into a part of every
hidden unit. On sm_90 the blocks of an image are a cluster: they add these parts from the shared memory of all, and each
goes on with its share of the columns. Elsewhere parts go through scratch memory, and the last block to arrive, which a
counter tells, does the rest. Parts are added in one order, so that equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.excitation.geometry import SharedOut, Shares, as_shared_out
from compiler.devices.cuda.codegen.entry import SM90
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.lane_columns import AHEAD, LANE_BYTES
from compiler.devices.cuda.codegen.last_block import last_block
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.panels import CHUNK_BYTES, BlockPanels
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

FLOAT_BYTES = 4
FLAG_BYTES = 16
"""Of the word that says that a block is the last."""


def lower_cuda_excitation(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_shared_out` accepts.

    Levels: `cluster` or `grid` (parts of channels and of positions), `block` threads.
    """
    form = as_shared_out(workload)
    assert form is not None, "the tile stage offers `excitation` only to kernels of that form"
    level = "cluster" if tile.extent("cluster", "channels") else "grid"
    shares = Shares(tile.extent(level, "channels", 1), tile.extent(level, "positions", 1))
    return _Excitation(name, workload, form, shares, level == "cluster", tile.extent("block", "threads")).lower()


def lanes_for(rows: int, vectors: int, threads: int) -> int:
    """Lanes that share a row of weights: a power of two, at most a warp.

    `threads` have so many rows of so many vectors.
    """
    lanes = 1
    while lanes < WARP and 2 * lanes * rows <= threads and lanes < vectors:
        lanes *= 2
    return lanes


@dataclass(frozen=True)
class _Excitation:
    name: str
    workload: Workload
    form: SharedOut
    shares: Shares
    in_cluster: bool
    threads: int

    @cached_property
    def slots(self) -> Slots:
        return Slots(self.workload)

    @property
    def blocks(self) -> int:
        """Of an image."""
        return self.shares.blocks

    @cached_property
    def channels(self) -> int:
        """Of a block."""
        return self.form.channels_of(self.workload, self.shares)

    @cached_property
    def first(self) -> tuple[int, BlockPanels]:
        return self.form.first_weights(self.workload, self.shares)

    @cached_property
    def second(self) -> tuple[int, BlockPanels]:
        return self.form.second_weights(self.workload, self.blocks if self.in_cluster else 1)

    @property
    def hidden(self) -> int:
        return self.form.excitation.first.column.extent

    # Shared memory: weights, sums by group of threads, the row, a part of the hidden units' sums, the hidden units

    @staticmethod
    def _tile_bytes(panels: BlockPanels) -> int:
        return panels.columns * panels.depth * panels.dtype.bytes

    @property
    def _groups(self) -> int:
        """Threads that share a vector's positions."""
        return self.threads // (self.channels // self.form.count)

    @property
    def _second_at(self) -> int:
        return self._tile_bytes(self.first[1])

    @property
    def _floats_at(self) -> int:
        """Where what is computed begins.

        The second product's weights are before it in a cluster alone: elsewhere not every block needs them.
        """
        return self._second_at + (self._tile_bytes(self.second[1]) if self.in_cluster else 0)

    @property
    def shared_bytes(self) -> int:
        floats = self._groups * self.channels + self.channels + self.hidden + self.second[1].depth
        return self._floats_at + floats * FLOAT_BYTES + FLAG_BYTES

    # The text

    def lower(self) -> CudaLowered:
        writer, form = Writer(), self.form
        self._declare(writer)
        self._fetch(writer)
        writer.line("tw_grid_dependency_wait();")
        self._squeeze(writer)
        self._multiply(writer, self.first[1], "first_weights", "row", lambda: writer.line("part_of_hidden[at] = sum;"))
        if self.in_cluster:
            self._meet_in_cluster(writer)
        else:
            self._meet_in_memory(writer)
        apart = not self.in_cluster and self.blocks > 1
        return framed(
            self.name,
            self.workload,
            writer.lines,
            Frame(
                grid=form.images * self.blocks,
                block=self.threads,
                shared_bytes=self.shared_bytes,
                scratch_bytes=form.images * self.blocks * self.hidden * FLOAT_BYTES * apart,
                counters=form.images * apart,
                cluster=self.blocks if self.in_cluster else 1,
                waits=True,
                resident=1,
                condition=SM90 if self.in_cluster and self.blocks > 1 else "",
            ),
            packings=dict([self.first, self.second]),
            notes=self._notes(),
        )

    def _notes(self) -> Sequence[str]:
        excitation, parts = self.form.excitation, f"{self.shares.channels} x {self.shares.positions}"
        sizes = (
            f"{excitation.channel.extent} channels, {self.hidden} hidden units, "
            f"{excitation.second.column.extent} columns"
        )
        return [
            f"{self.form.positions} positions of {sizes}",
            f"{parts} parts of channels and positions{' in a cluster' if self.in_cluster else ''}",
        ]

    def _declare(self, writer: Writer) -> None:
        """The thread, its block's part of an image, and where things lie."""
        writer.line("const int thread = threadIdx.x;")
        place = f"tile{f' / {self.blocks}' if self.blocks > 1 else ''}"
        if self.form.images > 1:
            writer.line(f"const int image = {place};")
            axes = self.form.excitation.images
            decode(writer, axes, "image", "int")
        writer.line(f"const int part = {f'tile % {self.blocks}' if self.blocks > 1 else 0};")
        writer.line(f"const int channel_part = part % {self.shares.channels};")
        writer.line(f"const int first_channel = channel_part * {self.channels};")
        kind = CUDA_TYPES[self.first[1].dtype]
        writer.line(f"const {kind} *const first_weights = (const {kind} *)shared;")
        writer.line(f"float *const sums = (float *)(shared + {self._floats_at});")
        writer.line(f"float *const row = sums + {self._groups * self.channels};")
        writer.line(f"float *const part_of_hidden = row + {self.channels};")
        writer.line(f"float *const hidden = part_of_hidden + {self.hidden};")

    def _slot(self, packed: tuple[int, BlockPanels]) -> str:
        return self.workload.kernel.inputs[packed[0]].name

    def _fetch(self, writer: Writer) -> None:
        """The block's weights, which are constants."""
        fetched = [(self.first, "channel_part", 0)]
        if self.in_cluster:
            fetched.append((self.second, "part", self._second_at))
        for packed, tile, at in fetched:
            nbytes = self._tile_bytes(packed[1])
            with in_rounds(writer, "piece", nbytes // CHUNK_BYTES, "thread", self.threads, AHEAD):
                source = f"(const unsigned char *){self._slot(packed)} + {tile} * {nbytes} + piece * {CHUNK_BYTES}"
                writer.line(f"tw_cp_async_16(shared + {at} + piece * {CHUNK_BYTES}, {source}, {CHUNK_BYTES});")
        writer.line("tw_cp_async_commit();")

    def _squeeze(self, writer: Writer) -> None:
        """The block's sums of its channels, and what maps make of them: the row, zero where there is no channel."""
        form, count = self.form, self.form.count
        squeeze, channel = form.squeeze, form.squeeze.channel
        vectors, share = self.channels // count, -(-form.positions // self.shares.positions)
        buffer = self.slots.buffers[form.load.slot]
        writer.line(f"const int vector = thread % {vectors} * {count}, group = thread / {vectors};")
        writer.line(f"float total[{count}] = {{}};")
        ragged = self.channels * self.shares.channels > channel.extent
        tests = [f"group < {self._groups}"] * (self._groups * vectors < self.threads)
        tests += [f"first_channel + vector < {channel.extent}"] * ragged
        with writer.block(f"if ({' && '.join(tests)})" if tests else ""), ExitStack() as stack:
            stack.enter_context(in_rounds(writer, "step", share, "group", self._groups, AHEAD))
            position = "step" if self.shares.positions == 1 else f"part / {self.shares.channels} * {share} + step"
            writer.line(f"const int position = {position};")
            if share * self.shares.positions > form.positions:
                stack.enter_context(writer.block(f"if (position < {form.positions})"))
            decode(writer, squeeze.loops, "position", "int")
            emitter = self._emitter(writer)
            emitter.names[channel] = "(first_channel + vector)"
            offset = self.slots.address(form.load.slot, form.load.index)[1]
            writer.line(f"{CUDA_TYPES[buffer.dtype]} x[{count}];")
            nbytes = min(count * buffer.dtype.bytes, LANE_BYTES)
            writer.line(f"tw_read<{nbytes}>(x, {form.load.slot} + ({emitter.index(offset)}));")
            with unrolled(writer, count, "element"):
                emitter.names[channel] = "(first_channel + vector + element)"
                emitter.held = {form.load: convert("x[element]", buffer.dtype, DType.F32)}
                writer.line(f"total[element] += {emitter.scalar(squeeze.value)};")
        with writer.block(f"if (group < {self._groups})" if self._groups * vectors < self.threads else ""):
            writer.line(f"tw_write<16>(sums + group * {self.channels} + vector, total);")
        writer.line("tw_cp_async_wait<0>();")
        writer.line("__syncthreads();")
        with in_rounds(writer, "at", self.channels, "thread", self.threads, 1):
            writer.line("float sum = 0;")
            writer.line("#pragma unroll 8")
            writer.line(
                f"for (int group = 0; group < {self._groups}; group++) sum += sums[group * {self.channels} + at];"
            )
            writer.line("float result = 0;")
            with writer.block(f"if (first_channel + at < {channel.extent})" if ragged else ""):
                value = self._mapped(writer, (squeeze.product, *squeeze.epilogue), channel, "(first_channel + at)")
                writer.line(f"result = {value};")
            writer.line("row[at] = result;")
        writer.line("__syncthreads();")

    def _multiply(
        self, writer: Writer, panels: BlockPanels, weights: str, row: str, finish: Callable[[], None]
    ) -> None:
        """For each column of packed weights its product with a row in shared memory.

        `finish` writes what becomes of `sum`, of column `at`.
        """
        count = LANE_BYTES // panels.dtype.bytes
        vectors, columns = panels.depth // count, panels.columns
        lanes = lanes_for(columns, vectors, self.threads)
        teams = self.threads // lanes
        rounds = -(-columns // teams)
        writer.line("#pragma unroll 4")
        with writer.block(f"for (int round = 0; round < {rounds}; round++)"):
            writer.line(f"const int at = thread / {lanes} + round * {teams}, lane = thread % {lanes};")
            writer.line("float sum = 0;")
            ragged = rounds * teams > columns
            with writer.block(f"if (at < {columns})" if ragged else ""):
                writer.line("#pragma unroll 4")
                with writer.block(f"for (int vector = lane; vector < {vectors}; vector += {lanes})"):
                    ctype = CUDA_TYPES[panels.dtype]
                    writer.line(f"float w[{count}];")
                    place = f"{weights} + at * {panels.depth} + vector * {count}"
                    writer.line(f"tw_widen(w, *(const uint4 *)({place}), (const {ctype} *){weights});")
                    with unrolled(writer, count, "element"):
                        writer.line(f"sum += {row}[vector * {count} + element] * w[element];")
            if lanes > 1:
                writer.line("#pragma unroll")
                writer.line(f"for (int bits = {lanes // 2}; bits; bits /= 2) sum += tw_of_lane(sum, bits);")
            tests = ["lane == 0"] * (lanes > 1) + [f"at < {columns}"] * ragged
            with writer.block(f"if ({' && '.join(tests)})" if tests else ""):
                finish()

    def _meet_in_cluster(self, writer: Writer) -> None:
        """Every block adds the parts of all, and has a share of the columns.

        One block alone meets nobody: in a launch beside kernels with clusters its rank may be any.
        """
        apart = self.blocks > 1
        if apart:
            writer.line("tw_cluster_arrive();")
            writer.line("tw_cluster_wait();")
            writer.line(f"const float *parts[{self.blocks}];")
            with unrolled(writer, self.blocks, "rank"):
                writer.line("parts[rank] = (const float *)tw_cluster_map(part_of_hidden, rank);")
        else:
            writer.line("__syncthreads();")
        self._hidden(writer, "parts[other][at]" if apart else "part_of_hidden[at]")
        if apart:
            writer.line("tw_cluster_arrive();")
        kind, panels = CUDA_TYPES[self.second[1].dtype], self.second[1]
        writer.line(f"const {kind} *const second_weights = (const {kind} *)(shared + {self._second_at});")
        self._columns(writer, f"part * {panels.columns}")
        if apart:
            writer.line("tw_cluster_wait();")

    def _meet_in_memory(self, writer: Writer) -> None:
        """The last block adds the parts of all, and has all columns."""
        kind = CUDA_TYPES[self.second[1].dtype]
        with ExitStack() as stack:
            source = "part_of_hidden[at]"
            writer.line("__syncthreads();")
            if self.blocks > 1:
                group = "image" if self.form.images > 1 else "0"
                with in_rounds(writer, "at", self.hidden, "thread", self.threads, 1):
                    writer.line(f"((float *)scratch)[tile * {self.hidden} + at] = part_of_hidden[at];")
                flag = f"(int *)(shared + {self.shared_bytes - FLAG_BYTES})"
                stack.enter_context(last_block(writer, group, self.blocks, flag))
                writer.line(
                    f"const float *const parts = (const float *)scratch + {group} * {self.blocks * self.hidden};"
                )
                source = f"parts[other * {self.hidden} + at]"
            self._hidden(writer, source)
            writer.line(f"const {kind} *const second_weights = {self._slot(self.second)};")
            self._columns(writer, "0")

    def _hidden(self, writer: Writer, source: str) -> None:
        """The hidden units, of parts in their order; zero behind the last."""
        layer, depth = self.form.excitation.first, self.second[1].depth
        with in_rounds(writer, "at", depth, "thread", self.threads, 1):
            writer.line("float result = 0;")
            with writer.block(f"if (at < {self.hidden})" if depth > self.hidden else ""):
                writer.line("float sum = 0;")
                writer.line("#pragma unroll")
                writer.line(f"for (int other = 0; other < {self.blocks}; other++) sum += {source};")
                writer.line(f"result = {self._mapped(writer, (layer.product, *layer.maps), layer.column, 'at')};")
            writer.line("hidden[at] = result;")
        writer.line("__syncthreads();")

    def _columns(self, writer: Writer, first: str) -> None:
        """The block's columns, through their maps to memory."""
        layer, panels = self.form.excitation.second, self.second[1]

        def store() -> None:
            ragged = panels.shape[1] * panels.columns > layer.column.extent
            with writer.block(f"if ({first} + at < {layer.column.extent})" if ragged else ""):
                self._mapped(writer, (layer.product, *layer.maps), layer.column, f"({first} + at)")

        self._multiply(writer, panels, "second_weights", "hidden", store)

    def _mapped(self, writer: Writer, blocks: Sequence[Block], axis: Axis, place: str) -> str:
        """What maps make of `sum`, the result of the first of the blocks, at a place of their axis.

        Whatever has a buffer is stored.
        """
        emitter, value = self._emitter(writer), "sum"
        emitter.names[axis] = place
        for block in blocks:
            (store,) = block.stores
            if block is not blocks[0]:
                value = emitter.scalar(block.values[0])
            emitter.held[Load(store.slot, store.index, DType.F32)] = value
            if store.slot in self.slots.buffers:
                emitter.store(store.slot, store.index, value, DType.F32)
        return value

    def _emitter(self, writer: Writer) -> CudaEmitter:
        elements = {slot: buffer.dtype for slot, buffer in self.slots.buffers.items()}
        return CudaEmitter(writer, self.slots.address, elements)
