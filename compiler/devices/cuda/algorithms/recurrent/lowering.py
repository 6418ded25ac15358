"""Recurrent layers in CUDA C++: hidden units dealt out to a cluster of blocks.

They keep their weights on chip and exchange the state. One cluster takes one direction of the layer and a few elements
of the batch through all steps. Each of its blocks has `share` of the hidden units, all gates of them, and in shared
memory as many rows of their recurrent weights as fit; the others come from the second-level cache at every step.

    xs[step, b, gate, unit] = x W            ahead, for all steps: 8 x 4 sums of a thread, into scratch memory
    for each step
      barrier of the cluster                 the state of the step before is there
      hs[b, gate, unit] = h R                4 columns and a part of the depth for each thread, parts added up through
                                             shared memory
      maps of one unit each                  the new state goes into the shared memory of all blocks of the cluster

A state has two places that take turns, so that one barrier a step keeps readers and writers apart. A cluster of one
block serves GPUs before sm_90.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.recurrent.chains import (
    COLUMNS,
    THREADS,
    Chain,
    UnitColumns,
    as_chains,
    initial_of,
    share_of,
    source_of,
)
from compiler.devices.cuda.codegen.entry import SM90
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots
from compiler.forms.recurrence import Product
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

ROWS = 8
"""Steps and elements of the batch that one thread takes together ahead of time."""
STAGED = 32
"""Positions along the depth of what is made ahead that are brought to shared memory together."""
MOST_GROUPS = 16
"""Of ROWS rows each that a block makes ahead together."""


def lower_cuda_recurrent(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_chains` accepts.

    Levels: `cluster` units, the blocks that share the units; `block` sequences, elements of the batch.
    """
    chains = as_chains(workload)
    assert chains is not None, "the tile stage offers `recurrent` only to kernels of that form"
    blocks, sequences = tile.extent("cluster", "units"), tile.extent("block", "sequences")
    writer = Writer()
    writer.line(f"const int rank = tile % {blocks};")
    writer.line(f"const int chain = tile / {blocks} % {len(chains)};")
    writer.line(f"const int first_sequence = tile / {blocks * len(chains)} * {sequences};")
    packings = _packings(workload, chains, blocks)
    memories = [Memory(target.block_shared_bytes) for _ in chains]
    for number, (chain, memory) in enumerate(zip(chains, memories, strict=True)):
        with writer.block(f"if (chain == {number})"):
            _Direction(workload, chains, chain, blocks, sequences, packings, memory, writer).write()
    scratch = max(memory.scratch for memory in memories)
    names = [slot.name for slot in chains[0].view.kernel.inputs]
    grid = blocks * len(chains) * -(-chains[0].view.sequences // sequences)
    return framed(
        name,
        workload,
        [f"scratch += (uint64_t)tile * {scratch};"] * (scratch > 0) + writer.lines,
        Frame(
            grid=grid,
            block=THREADS,
            shared_bytes=max(memory.shared for memory in memories),
            scratch_bytes=scratch * grid,
            cluster=blocks,
            resident=1,
            condition=SM90 if blocks > 1 else "",
        ),
        packings={names.index(matrix): packing for matrix, packing in packings.items()},
        notes=[f"clusters of {blocks} blocks, each takes {sequences} of {chains[0].view.sequences} sequences"],
    )


def _packings(workload: Workload, chains: Sequence[Chain], blocks: int) -> Mapping[str, UnitColumns]:
    """Each matrix as the blocks of a cluster read it."""
    buffers = Slots(workload).buffers
    units = chains[0].units
    products = [product for chain in chains for product in chain.products]
    parts: dict[str, tuple[tuple[int, int, int, int, int], ...]] = {product.matrix: () for product in products}
    for p in products:
        parts[p.matrix] += ((p.start, p.depth.extent, p.column.extent // units, *p.steps),)
    return {
        matrix: UnitColumns(of, units, blocks, share_of(units, blocks), buffers[matrix].dtype)
        for matrix, of in parts.items()
    }


@dataclass
class Memory:
    """What a block has been given: bytes of shared memory, of at most `most`, and of scratch memory."""

    most: int
    shared: int = 0
    scratch: int = 0

    def take_shared(self, nbytes: int) -> int:
        """Where so many bytes begin, aligned to 16."""
        first = self.shared
        self.shared += -(-nbytes // 16) * 16
        return first

    def take_scratch(self, nbytes: int) -> int:
        """Where so many bytes of scratch memory begin, aligned to 16."""
        first = self.scratch
        self.scratch += -(-nbytes // 16) * 16
        return first


@dataclass
class _Direction:
    """The text of one chain: what a block of its cluster does."""

    workload: Workload
    chains: Sequence[Chain]
    chain: Chain
    cluster: int
    rows: int
    packings: Mapping[str, UnitColumns]
    memory: Memory
    writer: Writer

    def __post_init__(self) -> None:
        self.slots = Slots(self.workload)
        self.elements = {slot: buffer.dtype for slot, buffer in self.slots.buffers.items()}
        self.share = share_of(self.chain.units, self.cluster)
        self.state = self.rows * self.cluster * self.share
        self.time, self.view = self.chain.view.time, self.chain.view
        self.ahead = [product for product in self.chain.products if product.into in self.view.ahead]
        self.recurrent = [product for product in self.chain.products if product.into not in self.view.ahead]
        self.kept: dict[str, int] = {}
        self.stored: set[str] = set()

    def write(self) -> None:
        line = self.writer.line
        self._declare()
        for product in self.ahead:
            self._make_ahead(product)
        self._begin()
        with self.writer.block(f"for (int {self.time} = 0; {self.time} < {self.time.extent}; {self.time}++)"):
            for temp in sorted(self.chain.exchanged):
                line(f"float *const old_{temp} = {temp} + {self.time} % 2 * {self.state};")
                line(f"float *const new_{temp} = {temp} + ({self.time} + 1) % 2 * {self.state};")
            self.stored = set()
            for is_map, blocks in groupby(self.chain.blocks, lambda block: isinstance(block, Block)):
                step = list(blocks)
                if is_map:
                    self._maps([block for block in step if isinstance(block, Block)])
                else:
                    for block in step:
                        if isinstance(block, Product) and block in self.recurrent:
                            self._product(block)
        self._barrier()  # nobody leaves while others may write into its shared memory

    def _barrier(self) -> None:
        """What the threads of all blocks of the cluster wrote before is seen by all of them after."""
        if self.cluster > 1:
            self.writer.line("tw_cluster_arrive();")
            self.writer.line("tw_cluster_wait();")
        else:
            self.writer.line("__syncthreads();")

    # Memory

    def columns(self, product: Product) -> int:
        """Of a product, in one block."""
        return product.column.extent // self.chain.units * self.share

    def _declare(self) -> None:
        """Shared memory: temporaries, parts of sums and the weights that stay. Scratch memory: what is made ahead."""
        line, chain = self.writer.line, self.chain
        for temp, gates in chain.temps.items():
            self._shared(temp, 4 * (2 * self.state if temp in chain.exchanged else self.rows * gates * self.share))
        parts = [self._depth_parts(product) * self.rows * self.columns(product) for product in self.recurrent]
        staged = [STAGED * self._pitch(product) for product in self.ahead]
        self._shared("parts", 4 * max([*parts, *staged]))
        for product in self.ahead:
            place = self.memory.take_scratch(4 * self.time.extent * self.rows * self.columns(product))
            line(f"float *const ahead_{product.into} = (float *)(scratch + {place});")
        for product in chain.products:
            packing, ctype = self.packings[product.matrix], CUDA_TYPES[self.elements[product.matrix]]
            products = [p for chain in self.chains for p in chain.products if p.matrix == product.matrix]
            part = next(at for at, one in enumerate(products) if one is product)
            own = packing.part_elements(part) // self.cluster
            line(f"const {ctype} *const w_{product.into} = {product.matrix} + {packing.first(part)}L + rank * {own};")
        for product in self.recurrent:
            dtype = self.elements[product.matrix]
            row = self.columns(product) * dtype.bytes
            fit = max(0, min(product.depth.extent, (self.memory.most - self.memory.shared) // row))
            self.kept[product.into] = fit
            if fit:
                self._shared(f"kept_{product.into}", fit * row, CUDA_TYPES[dtype])

    def _shared(self, name: str, nbytes: int, ctype: str = "float") -> None:
        self.writer.line(f"{ctype} *const {name} = ({ctype} *)(shared + {self.memory.take_shared(nbytes)});")

    def _emitter(self, names: Mapping[Axis | None, str]) -> CudaEmitter:
        """An emitter at an element of the batch, `sequence` being its number in this block."""
        emitter = CudaEmitter(self.writer, self._address, self.elements)
        named = {self.view.batch: "(first_sequence + sequence)", **names}
        emitter.names = {axis: name for axis, name in named.items() if axis is not None}
        return emitter

    def _address(self, slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        """An element of a slot, or that of unit `unit`, the block's own `own`th, of a temporary."""
        chain = self.chain
        if slot not in chain.temps:
            return self.slots.address(slot, index)
        if slot in chain.exchanged:
            name = f"{'new' if slot in self.stored else 'old'}_{slot}"
            return f"({name} + sequence * {self.cluster * self.share} + unit)", Index.of(0)
        gate = index[1].const // chain.units
        return f"({slot} + sequence * {chain.temps[slot] * self.share} + own)", Index.of(gate * self.share)

    @contextmanager
    def _each(self, count: int, name: str = "element") -> Iterator[None]:
        """A loop whose points the threads of the block share out."""
        with self.writer.block(f"for (int {name} = threadIdx.x; {name} < {count}; {name} += {THREADS})"):
            yield

    @contextmanager
    def _where(self, *conditions: str) -> Iterator[None]:
        """What follows, where the conditions that are not empty hold."""
        held = [condition for condition in conditions if condition]
        with self.writer.block(f"if ({' && '.join(held)})") if held else nullcontext():
            yield

    @property
    def _is_sequence(self) -> str:
        """The condition that an element of the batch exists; empty where all do."""
        total = self.view.sequences
        return f"first_sequence + sequence < {total}" if total % self.rows else ""

    # Before the first step

    def _begin(self) -> None:
        """Initial states and weights in shared memory; then the cluster's blocks have all begun."""
        line, units = self.writer.line, self.chain.units
        for product in self.recurrent:
            initial, state = initial_of(product), source_of(product).slot
            if initial is not None:
                with self._each(self.rows * units):
                    line(f"const int sequence = element / {units}, unit = element % {units};")
                    with self._where(self._is_sequence):
                        value = self._emitter({product.depth: "unit"}).scalar(initial)
                        line(f"{state}[sequence * {self.cluster * self.share} + unit] = {value};")
        for product in self.recurrent:
            if self.kept[product.into]:
                ctype = CUDA_TYPES[self.elements[product.matrix]]
                vector = f"tw_vector<{ctype}, {COLUMNS}>"
                with self._each(self.kept[product.into] * self.columns(product) // COLUMNS):
                    line(f"(({vector} *)kept_{product.into})[element] = ((const {vector} *)w_{product.into})[element];")
        self._barrier()

    def _groups(self, product: Product) -> int:
        """Groups of ROWS rows that a block makes ahead together."""
        most = -(-self.time.extent * self.rows // ROWS)
        return max(1, min(MOST_GROUPS, THREADS * COLUMNS // self.columns(product), most))

    def _pitch(self, product: Product) -> int:
        return self._groups(product) * ROWS + COLUMNS

    def _make_ahead(self, product: Product) -> None:
        """The product for all steps, this block's columns of it: [step][sequence][column].

        By register tiles of ROWS x COLUMNS.
        """
        line, columns, depth = self.writer.line, self.columns(product), product.depth.extent
        together, total = self._groups(product) * ROWS, self.time.extent * self.rows
        quads = columns // COLUMNS
        wide = min(quads, THREADS)
        with (
            self.writer.block(f"for (int first_row = 0; first_row < {total}; first_row += {together})"),
            self.writer.block(f"for (int first_quad = 0; first_quad < {quads}; first_quad += {wide})"),
        ):
            line(f"const int quad = first_quad + threadIdx.x % {wide}, group = threadIdx.x / {wide};")
            line(f"const bool works = quad < {quads} && group < {together // ROWS};")
            line(f"float sums[{ROWS}][{COLUMNS}] = {{}};")
            with self.writer.block(f"for (int first = 0; first < {depth}; first += {STAGED})"):
                line("__syncthreads();")
                self._stage(product, together, total)
                line("__syncthreads();")
                line(f"const int past = first + {STAGED} < {depth} ? {STAGED} : {depth} - first;")
                with self.writer.block("if (works)"), self.writer.block("for (int k = 0; k < past; k++)"):
                    self._weights(f"w_{product.into} + (first + k) * {columns} + quad * {COLUMNS}", product)
                    line(f"const float *const a = parts + k * {self._pitch(product)} + group * {ROWS};")
                    self._multiply("a[row]", ROWS)
            with self.writer.block("if (works)"):
                line("#pragma unroll")
                with (
                    self.writer.block(f"for (int row = 0; row < {ROWS}; row++)"),
                    self.writer.block(f"if (first_row + group * {ROWS} + row < {total})"),
                ):
                    place = f"(first_row + group * {ROWS} + row) * {columns} + quad * {COLUMNS}"
                    self._put_sums(f"ahead_{product.into} + {place}")

    def _stage(self, product: Product, together: int, total: int) -> None:
        """Some rows of the left operand, STAGED positions of each, turned so that a thread's rows lie side by side."""
        line, depth = self.writer.line, product.depth
        with self._each(STAGED * together):
            line(f"const int k = element % {STAGED}, row = element / {STAGED};")
            step, sequence = f"(first_row + row) / {self.rows}", f"(first_row + row) % {self.rows}"
            line(f"const int {self.time} = {step}, sequence = {sequence}, {depth} = first + k;")
            line("float value = 0.0f;")
            with self._where(f"first_row + row < {total}", f"{depth} < {depth.extent}", self._is_sequence):
                line(f"value = {self._emitter({}).scalar(product.a)};")
            line(f"parts[k * {self._pitch(product)} + row] = value;")

    def _fetch_ahead(self) -> None:
        """This step's part of what was made ahead is on its way while the state is multiplied."""
        for product in self.ahead:
            size = self.rows * self.columns(product)
            with self._each(size // COLUMNS):
                place = f"ahead_{product.into} + {self.time} * {size} + element * {COLUMNS}"
                self.writer.line(f"tw_cp_async_16({product.into} + element * {COLUMNS}, {place}, 16);")
        self.writer.line("tw_cp_async_commit();")

    # Products of a step

    def _depth_parts(self, product: Product) -> int:
        """In how many parts threads share out the depth of a product."""
        return max(1, min(THREADS * COLUMNS // self.columns(product), product.depth.extent))

    def _product(self, product: Product) -> None:
        """The product of the state with this block's weights, for all of its elements of the batch."""
        line, columns, deep = self.writer.line, self.columns(product), self._depth_parts(product)
        depth, kept, quads = product.depth.extent, self.kept[product.into], columns // COLUMNS
        state = source_of(product).slot
        self._barrier()
        if product is self.recurrent[0]:
            self._fetch_ahead()
        with self._each(quads * deep, "part"):
            line(f"const int quad = part % {quads}, piece = part / {quads};")
            line(f"const float *const a = {'new' if state in self.stored else 'old'}_{state};")
            line(f"float sums[{self.rows}][{COLUMNS}] = {{}};")
            line("int k = piece;")
            for matrix, past in ((f"kept_{product.into}", kept), (f"w_{product.into}", depth)):
                if past > (0 if matrix.startswith("kept") else kept):
                    line("#pragma unroll 4")
                    with self.writer.block(f"for (; k < {past}; k += {deep})"):
                        self._weights(f"{matrix} + k * {columns} + quad * {COLUMNS}", product)
                        self._multiply(f"a[row * {self.cluster * self.share} + k]", self.rows)
            line("#pragma unroll")
            with self.writer.block(f"for (int row = 0; row < {self.rows}; row++)"):
                self._put_sums(f"parts + (piece * {self.rows} + row) * {columns} + quad * {COLUMNS}")
        line("tw_cp_async_wait<0>();")
        line("__syncthreads();")
        with self._each(self.rows * columns):
            line("float sum = parts[element];")
            line(f"for (int piece = 1; piece < {deep}; piece++) sum += parts[piece * {self.rows * columns} + element];")
            line(f"{product.into}[element] = sum;")
        line("__syncthreads();")

    def _weights(self, place: str, product: Product) -> None:
        """COLUMNS weights side by side, as fp32."""
        dtype = self.elements[product.matrix]
        ctype = CUDA_TYPES[dtype]
        self.writer.line(f"const tw_vector<{ctype}, {COLUMNS}> w = *(const tw_vector<{ctype}, {COLUMNS}> *)({place});")
        columns = ", ".join(convert(f"w.element[{at}]", dtype, DType.F32) for at in range(COLUMNS))
        self.writer.line(f"const float b[{COLUMNS}] = {{{columns}}};")

    def _multiply(self, a: str, rows: int) -> None:
        line = self.writer.line
        line("#pragma unroll")
        with self.writer.block(f"for (int row = 0; row < {rows}; row++)"):
            line(f"const float left = {a};")
            line("#pragma unroll")
            line(f"for (int at = 0; at < {COLUMNS}; at++) sums[row][at] += left * b[at];")

    def _put_sums(self, place: str) -> None:
        values = ", ".join(f"sums[row][{at}]" for at in range(COLUMNS))
        self.writer.line(f"*(float4 *)({place}) = make_float4({values});")

    # Maps

    def _maps(self, blocks: Sequence[Block]) -> None:
        """Maps one after the other, each thread at units of its own."""
        line, chain = self.writer.line, self.chain
        with self._each(self.rows * self.share):
            line(f"const int sequence = element / {self.share}, own = element % {self.share};")
            line(f"const int unit = rank * {self.share} + own;")
            is_unit = (
                f"unit < {chain.units}" if chain.units % self.share or self.cluster * self.share > chain.units else ""
            )
            with self._where(is_unit, self._is_sequence):
                emitter = self._emitter({chain.unit: "unit"})
                for block in blocks:
                    values = [emitter.scalar(value) for value in block.values]
                    for store, value in zip(block.stores, values, strict=True):
                        self._store(store, value, emitter)
                    emitter.forget(block.writes)
                    self.stored |= block.writes & chain.temps.keys()

    def _store(self, store: Store, value: str, emitter: CudaEmitter) -> None:
        """An element of an output or a temporary; of a state, for every block of the cluster."""
        line = self.writer.line
        if store.slot in self.chain.temps:
            emitter.held[Load(store.slot, store.index, DType.F32)] = value
        if store.slot not in self.chain.exchanged:
            emitter.store(store.slot, store.index, value)
            return
        place = f"sequence * {self.cluster * self.share} + unit"
        if self.cluster == 1:
            line(f"new_{store.slot}[{place}] = {value};")
            return
        with self.writer.block(f"for (unsigned other = 0; other < {self.cluster}; other++)"):
            line(f"((float *)tw_cluster_map(new_{store.slot}, other))[{place}] = {value};")
