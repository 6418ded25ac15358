"""Windows whose few outputs each reduce over many positions (a global pool).

Threads and blocks share out each strip's reduction.

    thread  every `parts`-th position of a vector of channels, several on their way at a time
    block   partial results meet in shared memory, where each thread combines those of one channel
    grid    those of several blocks meet in scratch memory, and the last block combines them

A strip is one output at a vector of channels; neighbouring threads have neighbouring channels, then neighbouring
positions.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from compiler.codegen.functions import decode
from compiler.devices.cuda.algorithms.window.strip import StripText
from compiler.devices.cuda.codegen.lane_columns import AHEAD
from compiler.devices.cuda.codegen.last_block import RESULTS_AT_ONCE, last_block
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.scalars import convert, literal
from compiler.ir.expr import Load
from compiler.ir.index import row_major
from compiler.ir.tensor import DType

FEWEST_HELPERS = 4
"""Threads for each result from which it is worth to combine in two rounds."""


@dataclass
class SplitWindow(StripText):
    """The form in which threads and blocks share strips; a kernel without taps, members or guards on sides."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.threads = self.tile.extent("block", "threads")
        self.parts = self.tile.extent("block", "parts", 1)
        self.blocks = self.tile.extent("grid", "parts", 1)
        self.strips = self.threads // self.parts
        self.results = self.strips * self.width
        self.share = 1
        assert self.view.taps == self.view.group == self.strip.rows == self.strip.columns == 1

    def lower(self) -> CudaLowered:
        """The kernel's text, with what its launch needs."""
        writer, groups = self.writer, -(-self.strip.count // self.strips)
        writer.line("float *const partial = (float *)shared;")
        writer.line(f"const int group = tile / {self.blocks};")
        writer.line(f"const int strip = group * {self.strips} + (int)threadIdx.x % {self.strips};")
        writer.line(f"const int part_of_block = threadIdx.x / {self.strips};")
        writer.line(f"float total[{self.width}];")
        writer.line("#pragma unroll")
        identity = literal(self.identity, DType.F32)
        writer.line(f"for (int part = 0; part < {self.width}; part++) total[part] = {identity};")
        with ExitStack() as stack:
            if self.strip.count % self.strips:
                stack.enter_context(writer.block(f"if (strip < {self.strip.count})"))
            stack.enter_context(self.emitter.scope())
            self._reduce()
        with writer.block(f"for (int part = 0; part < {self.width}; part++)"):
            place = f"part_of_block * {self.results} + (int)threadIdx.x % {self.strips} * {self.width} + part"
            writer.line(f"partial[{place}] = total[part];")
        writer.line("__syncthreads();")
        self._combine()
        shared = 4 * self.parts * self.results + 16
        return framed(
            self.name,
            self.workload,
            writer.lines,
            Frame(
                grid=groups * self.blocks,
                block=self.threads,
                shared_bytes=shared,
                scratch_bytes=4 * groups * self.blocks * self.results if self.blocks > 1 else 0,
                counters=groups if self.blocks > 1 else 0,
            ),
            packings=self.packings,
            notes=[*self.notes, f"{self.parts} threads in each of {self.blocks} blocks share a reduction"],
        )

    def _reduce(self) -> None:
        """A thread's share of its strip's positions."""
        writer, view = self.writer, self.view
        self.strip.declare(writer, "strip")
        everyone = self.parts * self.blocks
        first = f"tile % {self.blocks} * {self.parts} + part_of_block" if self.blocks > 1 else "part_of_block"
        value = self.value_at(0, 0)
        with ExitStack() as stack:
            stack.enter_context(in_rounds(writer, "point", view.depth, first, everyone, AHEAD))
            stack.enter_context(self.emitter.scope())
            decode(writer, view.loops, "point", "int")
            guards = " && ".join(self.emitter.scalar(guard) for guard in view.guards)
            if guards:
                stack.enter_context(writer.block(f"if ({guards})"))
                stack.enter_context(self.emitter.scope())
            for load in self.vectors([value]):
                self.read(load)
            place = row_major(view.loops)
            weight = self.weight_vector(place, 0) if self.packing else ""
            self.per_channel(stack)
            self.hold(value.loads)
            text = self.emitter.scalar(value)
            if view.weight is None:
                self.step("total[part]", text)
            else:
                factor = (
                    convert(f"{weight}[part]", self.packing[1].dtype, DType.F32)
                    if self.packing
                    else self.emitter.scalar(view.weight)
                )
                writer.line(f"total[part] += {text} * {factor};")
        self.raw = {}

    def _combine(self) -> None:
        """One thread for each channel: the block's parts, those of all blocks, the maps."""
        writer, parts = self.writer, self._shorten()
        if self.blocks == 1:
            with self._results():
                self._sum("partial", "result", parts, self.results * self.share)
                self._maps()
            return
        with self._results():
            self._sum("partial", "result", parts, self.results * self.share)
            writer.line(f"((float *)scratch)[tile * {self.results} + result] = sum;")
        flag = f"(int *)(shared + {4 * self.parts * self.results})"
        with last_block(writer, "group", self.blocks, flag), self._results():
            first = f"group * {self.blocks * self.results} + result"
            self._sum("((const float *)scratch)", first, self.blocks, self.results)
            self._maps()

    def _shorten(self) -> int:
        """How many parts are left for one thread.

        Where threads are many, each first combines a few, into the first one's place.
        """
        helpers = self.threads // self.results
        if helpers < FEWEST_HELPERS or self.parts % helpers:
            return self.parts
        share = self.parts // helpers
        self.writer.line(f"const int first_part = (int)threadIdx.x / {self.results} * {share};")
        with self.writer.block(""):
            mine = f"(int)threadIdx.x % {self.results}"
            self._sum("partial", f"first_part * {self.results} + {mine}", share, self.results)
            self.writer.line(f"partial[first_part * {self.results} + {mine}] = sum;")
        self.writer.line("__syncthreads();")
        self.share = share
        return helpers

    def _results(self) -> ExitStack:
        """A loop over the block's results."""
        stack = in_rounds(self.writer, "result", self.results, "(int)threadIdx.x", self.threads, RESULTS_AT_ONCE)
        stack.enter_context(self.emitter.scope())
        return stack

    def _sum(self, memory: str, first: str, parts: int, apart: int) -> None:
        """sum = a result's parts combined, in their order; `apart` floats lie between them."""
        self.writer.line(f"float sum = {memory}[{first}];")
        self.writer.line(f"#pragma unroll {AHEAD}")
        with self.writer.block(f"for (int other = 1; other < {parts}; other++)"):
            self.step("sum", f"{memory}[{first} + other * {apart}]")

    def _maps(self) -> None:
        """The maps of one result, each stored where it belongs."""
        writer, view = self.writer, self.view
        writer.line(f"const int strip = group * {self.strips} + result / {self.width};")
        with ExitStack() as stack:
            if self.strip.count % self.strips:
                stack.enter_context(writer.block(f"if (strip < {self.strip.count})"))
            self.strip.declare(writer, "strip")
            self.emitter.names[view.channel] = f"({view.channel} + result % {self.width})"
            value = "sum"
            for block in (view.product, *(self.settled(one, self.strip.limits) for one in view.epilogue)):
                for at, store in enumerate(block.stores):
                    if block is not view.product:
                        value = self.emitter.scalar(block.values[at])
                    self.emitter.held[Load(store.slot, store.index, DType.F32)] = value
                    if store.slot in self.elements:
                        self.emitter.store(store.slot, store.index, value, DType.F32)
            del self.emitter.names[view.channel]
