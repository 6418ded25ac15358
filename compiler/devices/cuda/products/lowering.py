"""Products and convolutions (implicit GEMM) as one CUDA kernel: `wgmma`, `mma`, `mma_tf32`, `mma_3xtf32`, `ffma`.

A block computes a tile of m x n, step by step along k. Steps come into shared memory through a pipeline of `stages`:
while one is multiplied, the next ones are under way (`codegen.operands`, `codegen.fragments`, `products.wgmma`). A
packed B is fetched before the kernel waits for its predecessor. The sums then go through shared memory to the maps
(`codegen.epilogue`).

With k split in parts, each block leaves its part of the sums in scratch memory; the last one of a tile to arrive, which
a counter tells, adds all parts in their order, so that results do not depend on who came last, and goes on with the
maps. On sm_90 the parts may be the blocks of a cluster: each then adds a share of the sums from the shared memory of
all.

Pipelining as in NVIDIA's CUTLASS ("Efficient GEMM in CUDA"); split k by "the last block reduces" as in
threadFenceReduction of the CUDA samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Protocol, TypedDict

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.axes import value_axes
from compiler.devices.cuda.codegen.codes import BlockCodes
from compiler.devices.cuda.codegen.entry import SM90, SM90A
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import FmaProduct, Product, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.operands import Bulk, Operand, Packed, Side
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES
from compiler.devices.cuda.codegen.sparse_panels import SparsePanels
from compiler.devices.cuda.codegen.vector_panels import VectorPanels
from compiler.devices.cuda.products.reading import reading
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.bounds import Bound, beyond_bounds
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


class Switches(TypedDict):
    """Habits of kernels that a GPU decides; as `CudaTarget` has them."""

    prefetch: bool
    early_constants: bool


def switches_of(target: CudaTarget) -> Switches:
    """What lowerings of products ask of a target."""
    return Switches(prefetch=target.prefetch, early_constants=target.early_constants)


Given = BlockPanels | SparsePanels | VectorPanels | BlockCodes
"""How a constant is packed ahead."""


class Operands(Protocol):
    """What a kernel multiplies: how both operands come to shared memory, by what they are multiplied, to which sums."""

    @property
    def total(self) -> DType:
        """What sums are."""
        ...

    @property
    def header(self) -> str:
        """A file that the text includes; "" where there is none."""
        ...

    @property
    def called(self) -> Mapping[str, str]:
        """How algorithms multiply, for comments."""
        ...

    def product(self, of: CudaContraction) -> Product:
        """How a block multiplies what lies in shared memory."""
        ...

    def a(self, of: CudaContraction) -> Operand:
        """How rows of the first operand come to shared memory."""
        ...

    def b(self, of: CudaContraction) -> Operand:
        """How columns of the second operand come to shared memory."""
        ...

    def packing(self, of: CudaContraction) -> tuple[int, Given] | None:
        """The position of B where it is packed ahead of time, and how."""
        ...

    def stage_bytes(self, of: CudaContraction) -> int:
        """Shared memory of one step of both operands."""
        ...

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """What becomes of a thread's sums of its part of k, once they are whole."""
        ...


class Cut(Protocol):
    """Which steps of k there are, and which of them a block has."""

    def steps(self, of: CudaContraction) -> int:
        """Of all of k."""
        ...

    def parts(self, of: CudaContraction) -> int:
        """Into how many parts k is split."""
        ...

    def declare(self, of: CudaContraction, writer: Writer, part: str) -> None:
        """The steps of the block, and which `part` of k they are in C; that is empty where k is whole."""
        ...

    def begin(self, of: CudaContraction, writer: Writer) -> None:
        """What follows once the place of the block's tile is known."""
        ...


class Flow(Protocol):
    """How what a step multiplies comes to shared memory, and what is done there."""

    def ahead(self, of: CudaContraction) -> int:
        """Steps that are fetched before they are multiplied."""
        ...

    def shared_bytes(self, of: CudaContraction) -> int:
        """Shared memory of a block in bytes."""
        ...

    def packings(self, of: CudaContraction) -> Mapping[int, Packing]:
        """Inputs that are given packed."""
        ...

    def epilogue(self, of: CudaContraction) -> Epilogue:
        """What is done with sums before they are stored."""
        ...

    def notes(self, of: CudaContraction) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        ...

    def declare(self, of: CudaContraction, writer: Writer) -> None:
        """What threads keep of the operands, and the functions that bring them."""
        ...

    def fill(self, of: CudaContraction, writer: Writer) -> None:
        """The first steps come, constants before the wait for the predecessor."""
        ...

    def multiply(self, of: CudaContraction, writer: Writer) -> None:
        """All steps of the block."""
        ...


@dataclass(frozen=True)
class CudaContraction:
    """A contraction as a kernel: blocks of threads sum tiles of m x n, whose operands come in steps along k."""

    name: str
    workload: Workload
    view: Contraction
    tile: Tile
    operands: Operands
    cut: Cut
    flow: Flow
    prefetch: bool = field(default=False, kw_only=True)
    early_constants: bool = field(default=False, kw_only=True)

    @property
    def total(self) -> DType:
        """What sums are."""
        return self.operands.total

    @cached_property
    def slots(self) -> Slots:
        """Where the kernel's operands lie in memory."""
        return Slots(self.workload)

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """Sizes beyond which no result depends on the sums."""
        places = {*self.view.batch, *self.view.m, self.view.n}
        return tuple(one.bound for one in beyond_bounds(self.view.kernel) if one.bound.place.axes <= places)

    @cached_property
    def product(self) -> Product:
        """How a block multiplies what lies in shared memory."""
        return self.operands.product(self)

    @cached_property
    def m(self) -> int:
        """Rows of a block's tile."""
        return self.tile.extent("block", "m")

    @cached_property
    def n(self) -> int:
        """Columns of a block's tile."""
        return self.tile.extent("block", "n")

    @cached_property
    def depth(self) -> int:
        """Elements of k in a step."""
        return self.tile.extent("block", "k")

    @cached_property
    def stages(self) -> int:
        """Steps that shared memory holds at once."""
        return self.tile.extent("block", "stages")

    @cached_property
    def steps(self) -> int:
        """Steps of all of k."""
        return self.cut.steps(self)

    @cached_property
    def part_steps(self) -> int:
        """Steps of one part of k."""
        return max(-(-self.steps // max(self.tile.extent("grid", "k", 1), self.cluster)), 1)

    @cached_property
    def parts(self) -> int:
        """Into how many parts k is split."""
        return self.cut.parts(self)

    @cached_property
    def cluster(self) -> int:
        """Parts of k that the blocks of a cluster take."""
        return self.tile.extent("cluster", "k", 1)

    @cached_property
    def down(self) -> int:
        """Tiles along m."""
        return -(-self.view.rows // self.m)

    @cached_property
    def across(self) -> int:
        """Tiles along n."""
        return -(-self.view.columns // self.n)

    @cached_property
    def tiles(self) -> int:
        """Tiles of all batches; each is a block's, or a cluster's."""
        return self.view.batches * self.down * self.across

    def side(self, name: str, value: Expr, axes: tuple[Axis, ...], first: str, rows: int) -> Side:
        """A side of the product, of which a block has so many rows from `first` on."""
        product = self.product
        return Side(
            *(name, value, axes, self.view.k, first, rows, self.depth),
            *(product.element, product.as_tf32, product.threads, product.layout(self.depth)),
        )

    @cached_property
    def a(self) -> Operand:
        """How rows of the first operand come to shared memory."""
        return self.operands.a(self)

    @cached_property
    def b(self) -> Operand:
        """How columns of the second operand come to shared memory."""
        return self.operands.b(self)

    def reading_b(self, side: Side) -> Operand:
        """B as it is packed, or where it lies."""
        packing = self.packing
        if packing is None:
            return reading(side, self.slots)
        position, panels = packing
        assert isinstance(panels, BlockPanels), "others have operands of their own"
        place = self.packed_tile(side)
        slot = self.workload.kernel.inputs[position].name
        if self.product.is_asynchronous:
            return Bulk(side, panels, slot, place, f"shared + {self.barriers_at}", self.stages)
        return Packed(side, panels, slot, place)

    def packed_tile(self, side: Side) -> str:
        """C for the number of the block's tile of n in a packed B, counted over all batches that B has."""
        batch = row_major([axis for axis in self.view.batch if axis in side.value.axes])
        place = f"first_n / {self.n}"
        return f"({_index_text(batch)}) * {self.across} + {place}" if batch.terms else place

    @cached_property
    def packing(self) -> tuple[int, Given] | None:
        """How B is packed ahead, with its position among the inputs."""
        return self.operands.packing(self)

    @property
    def packings(self) -> Mapping[int, Packing]:
        """Inputs that are given packed."""
        return self.flow.packings(self)

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is done with sums before they are stored."""
        return self.flow.epilogue(self)

    @cached_property
    def constants(self) -> frozenset[str]:
        """Slots that the maps may read before the sums are there; none where the target does not want it."""
        bound = zip(self.workload.kernel.inputs, self.workload.constant, strict=False)
        return frozenset(slot.name for slot, constant in bound if constant and self.early_constants)

    @cached_property
    def stage_bytes(self) -> int:
        """Shared memory of one step of both operands."""
        return self.operands.stage_bytes(self)

    @cached_property
    def ahead(self) -> int:
        """Steps that are fetched before they are multiplied: the others' stages are being read."""
        return self.flow.ahead(self)

    @cached_property
    def barriers_at(self) -> int:
        """Where in shared memory the mbarriers are, one for each stage.

        Behind the stages, and behind the sums that take their place.
        """
        return max(self.stages * self.stage_bytes, self.epilogue.shared_bytes)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes."""
        return self.flow.shared_bytes(self)

    @property
    def _guard(self) -> str:
        """The macro under which the target has what the kernel is made of; "" where every target has."""
        if self.product.is_asynchronous:
            return SM90A
        return SM90 if self.cluster > 1 else ""

    # The text

    def lower(self) -> CudaLowered:
        """The kernel's text, with what its launch needs."""
        writer = Writer()
        threads = self.product.threads
        self._declare_places(writer)
        self._stop_beyond(writer)
        self.flow.declare(self, writer)
        self.product.declare(writer, self.depth)
        self.flow.fill(self, writer)
        self.flow.multiply(self, writer)
        self.operands.after(self, writer)
        early = self.epilogue.fetch(writer)
        in_memory = self.parts > 1 and self.cluster == 1
        if in_memory:
            self._add_parts(writer)
        self._finish(writer, early)
        empty = not self.view.rows * self.view.columns * self.view.batches
        return framed(
            self.name,
            self.workload,
            writer.lines,
            Frame(
                grid=0 if empty else self.tiles * self.parts,
                block=threads,
                shared_bytes=self.shared_bytes,
                scratch_bytes=self.tiles * self.parts * self.m * self.n * 4 * in_memory,
                counters=self.tiles * in_memory,
                cluster=self.cluster,
                waits=True,
                resident=1,
                header=self.operands.header,
                condition=self._guard,
            ),
            packings=self.packings,
            notes=self.flow.notes(self),
        )

    def _declare_places(self, writer: Writer) -> None:
        """The thread, and where its block's tile lies."""
        view = self.view
        writer.line("const int thread = threadIdx.x;")
        if not isinstance(self.product, FmaProduct):
            writer.line("const int lane = thread % 32, warp = thread / 32;")
        place, part = "tile", ""
        if self.parts > 1:
            place = "place"
            order = (f"tile / {self.parts}", f"tile % {self.parts}")
            if self.cluster == 1:
                order = (f"tile % {self.tiles}", f"tile / {self.tiles}")
            if self.tiles > 1 or self.cluster == 1:
                writer.line(f"const int place = {order[0]};")
            part = order[1]
        self.cut.declare(self, writer, part)
        down = f" % {self.down}" if view.batches > 1 else ""
        row = f"{place}{f' / {self.across}' if self.across > 1 else ''}{down} * {self.m}"
        column = f"{place}{f' % {self.across}' if self.tiles > self.across else ''} * {self.n}"
        writer.line(f"const int first_m = {row if self.down > 1 else 0};")
        writer.line(f"const int first_n = {column if self.across > 1 else 0};")
        values = (view.a, view.b, *(value for block in view.epilogue for value in block.values))
        used = frozenset[Axis]().union(*(value_axes(value, self.slots) for value in values))
        stores = [store for block in (view.product, *view.epilogue) for store in block.stores]
        used = used.union(
            *(self.slots.address(one.slot, one.index)[1].axes for one in stores if one.slot in self.slots.buffers)
        )
        used = used.union(*(bound.place.axes for bound in self.bounds))
        if view.batch:
            writer.line(f"const int batch = {place} / {self.across * self.down};")
            decode(writer, view.batch, "batch", "int", used)
        self.cut.begin(self, writer)

    def _stop_beyond(self, writer: Writer) -> None:
        """No step for a tile that lies beyond a size, of which the maps ask for no sum.

        All blocks of a tile find the same. They go on as if all steps were done, so that whoever waits for them does
        not wait in vain.
        """
        if not self.bounds:
            return
        outer = {axis: Index.of(0) for axis in self.view.m[1:]}
        inner = prod(axis.extent for axis in self.view.m[1:])
        names = dict.fromkeys(self.view.m[:1], f"(first_m / {inner})" if inner > 1 else "first_m")
        names |= {self.view.n: "first_n"}
        writer.line("tw_grid_dependency_wait(); /* sizes are read */")
        for bound in self.bounds:
            place = bound.place.substitute(outer)
            terms = [
                f"{names.get(axis, str(axis))} * {factor}" for axis, factor in place.terms if isinstance(axis, Axis)
            ]
            first = " + ".join([*terms, str(place.const)])
            writer.line(f"if ({first} >= {bound.size.slot}[0]) past_step = first_step;")

    def _add_parts(self, writer: Writer) -> None:
        """Leaves the block's sums in scratch memory.

        The last block of the tile adds those of all parts, the others are done.
        """
        *outer, inner = self.product.sums
        threads = self.product.threads
        size, kind = self.m * self.n, CUDA_TYPES[self.total]
        start = f"({kind} *)scratch + (size_t)place * {self.parts * size} + thread * {inner}"
        writer.line(f"{kind} *const parts = {start};")
        kind = f"tw_vector<{kind}, {inner}>"
        at = {1: f"i * {threads * inner}", 2: f"(i * {outer[-1]} + j) * {threads * inner}"}[len(outer)]
        sum_of_thread = self.product.sum(*"ij"[: len(outer)], "element")

        def loops(stack: ExitStack) -> None:
            for name, extent in zip("ij", outer, strict=False):
                stack.enter_context(unrolled(writer, extent, name))

        with ExitStack() as stack:
            loops(stack)
            writer.line(f"{kind} own;")
            with unrolled(writer, inner, "element"):
                writer.line(f"own.element[element] = {sum_of_thread};")
            writer.line(f"*({kind} *)(parts + part * {size} + {at}) = own;")
        writer.line("__syncthreads();")
        writer.line("int arrived = 0;")
        writer.line("if (thread == 0) arrived = tw_add_release(counters + place, 1);")
        writer.line(f"if (!__syncthreads_or(arrived == {self.parts - 1})) return;")
        writer.line("if (thread == 0) counters[place] = 0;")
        with ExitStack() as stack:
            loops(stack)
            with unrolled(writer, inner, "element"):
                writer.line(f"{sum_of_thread} = 0;")
        with writer.block(f"for (int other = 0; other < {self.parts}; other++)"), ExitStack() as stack:
            loops(stack)
            writer.line(f"const {kind} added = *(const {kind} *)(parts + other * {size} + {at});")
            with unrolled(writer, inner, "element"):
                writer.line(f"{sum_of_thread} += added.element[element];")

    def _finish(self, writer: Writer, early: Mapping[Load, str]) -> None:
        writer.line("__syncthreads();")
        kind = CUDA_TYPES[self.total]
        writer.line(f"{kind} *const sums = ({kind} *)shared;")
        self.product.put(writer, self.epilogue.pitch)
        if self.cluster == 1:
            writer.line("__syncthreads();")
            self.epilogue.write(writer, early)
            return
        writer.line("tw_cluster_arrive();")
        writer.line("tw_cluster_wait();")
        writer.line(f"const {kind} *parts[{self.cluster}];")
        with unrolled(writer, self.cluster, "rank"):
            writer.line(f"parts[rank] = (const {kind} *)tw_cluster_map(sums, rank);")
        self.epilogue.gather(writer)
        writer.line("tw_cluster_arrive(); /* before results are stored: it waits for all stores before it */")
        self.epilogue.write(writer, early)
        writer.line("tw_cluster_wait();")


def _index_text(index: Index) -> str:
    """A row-major position of declared axes as C."""
    return " + ".join([*(f"{atom} * {factor}" for atom, factor in index.terms), str(index.const)])
