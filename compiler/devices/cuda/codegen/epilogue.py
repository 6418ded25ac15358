"""What follows a product on its sums.

They lie in shared memory as a tile of rows, from where threads take vectors of columns through the maps. A vector of
`count` columns is what 16 bytes of the widest output hold, where outputs and columns allow; operands of the maps that
lie as the outputs do are loaded the same way. Where rows, not columns, are neighbours in memory (an output in NCHW), so
are threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.axes import value_axes
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load, certain_loads
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Store
from compiler.ir.tensor import DType

VECTOR_BYTES = 16
"""What one instruction of a thread stores at most."""
LEAST_BYTES = 2
"""What an element of a result is counted as at least: the sums of more columns of a thread would not lie aligned."""
COLUMN_PAD, ROW_PAD = 8, 2
"""fp32 elements behind each row of sums. They put the rows that a warp writes at once in different banks, or those that
it reads."""


@dataclass(frozen=True)
class Epilogue:
    """The maps of a contraction on block tiles of `m` x `n` sums."""

    view: Contraction
    slots: Slots
    m: int
    n: int
    threads: int
    total: DType = DType.F32
    """What sums are."""
    parts: int = 1
    """Blocks of a cluster, each of which has a part of every sum, at `parts[rank]`.

    They share out the vectors, of which each first gathers its own."""
    constants: frozenset[str] = frozenset()
    """Slots that are read before the sums are there, where a thread's vectors all take the same of them."""

    @cached_property
    def _outputs(self) -> tuple[Store, ...]:
        """Where results go to memory."""
        blocks = (self.view.product, *self.view.epilogue)
        return tuple(store for block in blocks for store in block.stores if store.slot in self.slots.buffers)

    def _is_whole(self, place: Load | Store, count: int) -> bool:
        """Whether `count` columns lie side by side, aligned."""
        buffer = self.slots.buffers[place.slot]
        offset = self.slots.address(place.slot, place.index)[1]
        others = [factor for atom, factor in offset.terms if atom != self.view.n]
        return offset.coefficient(self.view.n) == 1 and not any(
            number % count for number in (*others, offset.const, buffer.offset)
        )

    @cached_property
    def count(self) -> int:
        """Columns of a vector."""
        widest = max(self.slots.buffers[store.slot].dtype.bytes for store in self._outputs)
        count = VECTOR_BYTES // max(widest, LEAST_BYTES)
        while count > 1 and (
            self.view.columns % count or not any(self._is_whole(store, count) for store in self._outputs)
        ):
            count //= 2
        return count

    @cached_property
    def along_rows(self) -> bool:
        """Whether neighbouring threads take neighbouring rows."""
        offset = self.slots.address(self._outputs[-1].slot, self._outputs[-1].index)[1]
        return offset.coefficient(self.view.n) != 1 and bool(self.view.m) and offset.coefficient(self.view.m[-1]) == 1

    @property
    def pitch(self) -> int:
        """fp32 elements from one row of sums to the next."""
        return self.n + (ROW_PAD if self.along_rows else COLUMN_PAD)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a tile of sums in bytes."""
        return self.m * self.pitch * 4

    def gather(self, writer: Writer) -> None:
        """sums = those of all blocks of the cluster, of the vectors that are this block's.

        No other block reads these places of `sums`; the thread that writes one reads it again in `write`.
        """
        kind = self._sum_kind
        added = "sum += other;"
        if self.count > 1:
            added = f"for (int part = 0; part < {self.count}; part++) sum.element[part] += other.element[part];"
        at = f"own_row * {self.pitch} + own_column"
        with self._pieces(writer):
            writer.line(f"{kind} sum = *(const {kind} *)(parts[0] + {at});")
            writer.line("#pragma unroll")
            with writer.block(f"for (int rank = 1; rank < {self.parts}; rank++)"):
                writer.line(f"const {kind} other = *(const {kind} *)(parts[rank] + {at});")
                writer.line(added)
            writer.line(f"*({kind} *)(sums + {at}) = sum;")

    def fetch(self, writer: Writer) -> Mapping[Load, str]:
        """Vectors of constants that lie along n alone, such as a bias, for `write`; what they are called.

        A thread's vectors have the same columns where its steps are whole rows of them. Their loads are under way
        while the sums are put into shared memory and gathered.
        """
        across = self.n // self.count
        if self.along_rows or self.count == 1 or self.threads * self.parts % across:
            return {}
        alike = [load for load in self._whole_loads() if load.slot in self.constants and load.axes <= {self.view.n}]
        if not alike:
            return {}
        column = writer.name("column")
        writer.line(f"const int {column} = first_n + {self._first} % {across} * {self.count};")
        emitter = CudaEmitter(writer, self.slots.address)
        emitter.names = {self.view.n: column}
        found: dict[Load, str] = {}
        for load in alike:
            found[load] = writer.name(load.slot)
            writer.line(f"{self._kind(load.slot)} {found[load]};")
        with writer.block(f"if ({column} < {self.view.columns})" if self.view.columns % self.n else ""):
            for load, name in found.items():
                slot, offset = self.slots.address(load.slot, load.index)
                place = f"tw_early({slot}) + {emitter.index(offset)}"
                writer.line(f"{name} = *(const {self._kind(load.slot)} *)({place});")
        return found

    def write(self, writer: Writer, early: Mapping[Load, str]) -> None:
        """Maps of `sums`, a tile that begins at `first_m` and `first_n`, whose batch axes are declared.

        `early` is what `fetch` has loaded.
        """
        view, n = self.view, self.view.n
        rows = prod(axis.extent for axis in view.m)
        with self._pieces(writer), ExitStack() as stack:
            writer.line(f"const int row = first_m + own_row, {n} = first_n + own_column;")
            outside = [f"row < {rows}"] * (rows % self.m > 0) + [f"{n} < {view.columns}"] * (view.columns % self.n > 0)
            if outside:
                stack.enter_context(writer.block(f"if ({' && '.join(outside)})"))
            decode(writer, view.m, "row", "int", self._axes())
            self._vector(writer, early)

    @contextmanager
    def _pieces(self, writer: Writer) -> Iterator[None]:
        """A loop over this thread's vectors, each of which begins at `own_row` and `own_column` of the block's tile."""
        across = self.n // self.count
        pieces = self.m * across
        step = self.threads * self.parts
        writer.line(f"#pragma unroll {min(4, -(-pieces // step))}")
        with writer.block(f"for (int piece = {self._first}; piece < {pieces}; piece += {step})"):
            row, column = f"piece / {across}", f"piece % {across}"
            if self.along_rows:
                row, column = f"piece % {self.m}", f"piece / {self.m}"
            scale = f" * {self.count}" if self.count > 1 else ""
            writer.line(f"const int own_row = {row}, own_column = {column}{scale};")
            yield

    @property
    def _first(self) -> str:
        """C for the first vector of a thread."""
        return f"(part * {self.threads} + thread)" if self.parts > 1 else "thread"

    def _axes(self) -> frozenset[Axis]:
        """The axes that the maps mention."""
        found = [self.slots.address(store.slot, store.index)[1].axes for store in self._outputs]
        values = [value for block in self.view.epilogue for value in block.values]
        return frozenset[Axis]().union(*found, *(value_axes(value, self.slots) for value in values))

    def _vector(self, writer: Writer, early: Mapping[Load, str]) -> None:
        """One vector of columns: operands loaded, maps element by element, results stored."""
        elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        outer = CudaEmitter(writer, self.slots.address, elements)
        count, n = self.count, self.view.n
        at = f"own_row * {self.pitch} + own_column"
        writer.line(f"const {self._sum_kind} sum = *(const {self._sum_kind} *)(sums + {at});")
        if count == 1:
            self._maps(outer, "sum", {})
            return
        held: dict[Expr, str] = {}
        for load in self._whole_loads():
            name = early.get(load) or writer.name(load.slot)
            if load not in early:
                kind = self._kind(load.slot)
                slot, offset = self.slots.address(load.slot, load.index)
                writer.line(f"const {kind} {name} = *(const {kind} *)({slot} + {outer.index(offset)});")
            held[load] = convert(f"{name}.element[part]", elements[load.slot], load.dtype)
        results: dict[Store, str] = {}
        for store in self._outputs:
            if self._is_whole(store, count):
                results[store] = writer.name(store.slot)
                writer.line(f"{self._kind(store.slot)} {results[store]};")
        with unrolled(writer, count, "part"):
            inner = CudaEmitter(writer, self.slots.address, elements)
            inner.names = {n: f"({n} + part)"}
            inner.held = dict(held)
            self._maps(inner, "sum.element[part]", results)
        for store, name in results.items():
            slot, offset = self.slots.address(store.slot, store.index)
            writer.line(f"*({self._kind(store.slot)} *)({slot} + {outer.index(offset)}) = {name};")

    @property
    def _sum_kind(self) -> str:
        """C type of a vector of sums."""
        kind = CUDA_TYPES[self.total]
        return f"tw_vector<{kind}, {self.count}>" if self.count > 1 else kind

    def _kind(self, slot: str) -> str:
        return f"tw_vector<{CUDA_TYPES[self.slots.buffers[slot].dtype]}, {self.count}>"

    def _whole_loads(self) -> Sequence[Load]:
        """What the maps load by whole vectors: from memory, whatever conditions say, and not what they have stored."""
        written = {store.slot for store in self._outputs}
        loads = [load for block in self.view.epilogue for value in block.values for load in certain_loads(value)]
        return tuple(
            dict.fromkeys(
                load
                for load in loads
                if load.slot in self.slots.buffers and load.slot not in written and self._is_whole(load, self.count)
            )
        )

    def _maps(self, emitter: CudaEmitter, value: str, results: dict[Store, str]) -> None:
        """The product's result and those of the maps, each where its block stores it."""
        product = self.view.product
        self._put(emitter, product.stores[0], value, self.total, results)
        for block in self.view.epilogue:
            self._map(emitter, block, results)

    def _map(self, emitter: CudaEmitter, block: Block, results: dict[Store, str]) -> None:
        for store, expr in zip(block.stores, block.values, strict=True):
            self._put(emitter, store, emitter.scalar(expr), expr.dtype, results)

    def _put(self, emitter: CudaEmitter, store: Store, value: str, dtype: DType, results: dict[Store, str]) -> None:
        """To memory where the slot has a buffer; blocks that follow find the value in its register either way."""
        buffer = self.slots.buffers.get(store.slot)
        if buffer is not None:
            element = convert(value, dtype, buffer.dtype)
            if store in results:
                emitter.writer.line(f"{results[store]}.element[part] = {element};")
            else:
                pointer, offset = self.slots.address(store.slot, store.index)
                emitter.writer.line(f"{pointer}[{emitter.index(offset)}] = {element};")
        emitter.held[Load(store.slot, store.index, dtype)] = value
