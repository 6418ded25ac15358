"""How block tiles of a product's operands come into shared memory, as rows along k (see `codegen.rows`).

    Packed                         a constant, packed ahead in the order of the copies: 16 bytes a thread and copy
    Bulk                           the same by the bulk copy engine: one thread asks for the whole tile, whose bytes end
                                   a phase of the stage's mbarrier
    Copied, Computed, Gathered     what is read where it lies (`products.reading`)

Constants are fetched before the kernel's predecessor has ended. What goes through registers is fetched for a later step
before the current one is multiplied, and put into shared memory after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Protocol

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.codegen.rows import Rows
from compiler.devices.cuda.codegen.scalars import convert
from compiler.devices.cuda.codegen.sparse_panels import SparsePanels
from compiler.devices.cuda.codegen.vector_panels import VectorPanels
from compiler.ir.expr import Expr
from compiler.ir.index import Axis
from compiler.ir.tensor import DType

KEPT = "kept_groups"
"""The variable with the numbers of the groups of k that a block's steps have."""


@dataclass(frozen=True)
class Side:
    """One operand of a product, seen as `rows` rows along k: A[b, m, k] or B[b, n, k].

    A block tile has `tile` of the rows, from `first` (a C expression) on, and `depth` elements of k; `whole_depth` is
    all of k. It lies in shared memory as `element`, rounded to tf32 where `as_tf32`, its rows as `layout` says.

    Where `kept` is not 0, steps have groups of so many neighbours of k: those whose numbers KEPT lists, from the
    block's first step on. A number that is none of k's stands for zeros.
    """

    name: str
    value: Expr
    axes: tuple[Axis, ...]
    k: tuple[Axis, ...]
    first: str
    tile: int
    depth: int
    element: DType
    as_tf32: bool
    threads: int
    layout: Rows
    kept: int = 0

    @property
    def rows(self) -> int:
        """Rows of the whole operand."""
        return prod(axis.extent for axis in self.axes)

    @property
    def whole_depth(self) -> int:
        """Elements of a row of the whole operand."""
        return prod(axis.extent for axis in self.k)

    @property
    def may_end(self) -> bool:
        """Whether a step may have places beyond all of k."""
        return bool(self.kept) or self.whole_depth % self.depth > 0

    def along(self, piece: str) -> str:
        """C for the place along k of an element of a step; `piece` is a product or quotient."""
        if not self.kept:
            return f"step * {self.depth} + {piece}"
        number = f"{KEPT}[(step - first_step) * {self.depth // self.kept} + {piece}"
        return f"{number}]" if self.kept == 1 else f"{number} / {self.kept}] * {self.kept} + {piece} % {self.kept}"

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return self.layout.pitch

    @property
    def bytes(self) -> int:
        """Of a tile in shared memory."""
        return self.tile * self.pitch

    def converted(self, arg: str, source: DType) -> str:
        """A value as it lies in shared memory."""
        if self.as_tf32:
            return f"__uint_as_float(tw_to_tf32({convert(arg, source, DType.F32)}))"
        return convert(arg, source, self.element)


class Operand(Protocol):
    """The text that brings tiles of one side.

    `step` is the number of a tile along k; `into` points to its place in shared memory.
    """

    @property
    def side(self) -> Side:
        """Which operand it is, with its tile and layout."""
        ...

    @property
    def rounded(self) -> bool:
        """Whether elements are rounded as the product wants them."""
        ...

    @property
    def is_constant(self) -> bool:
        """Whether it may be read while the kernel's predecessor still runs."""
        ...

    @property
    def in_registers(self) -> bool:
        """Whether `fetch` loads into registers, which `put` then stores."""
        ...

    @property
    def is_bulk(self) -> bool:
        """Whether the bulk copy engine brings it.

        What has come ends a phase of the stage's mbarrier, one of `landed`.
        """
        ...

    def declare(self, writer: Writer) -> None:
        """What the thread keeps over all steps."""
        ...

    def fetch(self, writer: Writer) -> None:
        """The body of a function that starts copies, or loads.

        Its arguments are `step`, `into`, and for bulk copies the mbarrier `arrival`.
        """
        ...

    def put(self, writer: Writer) -> None:
        """The body of a function of `into`."""
        ...


@dataclass(frozen=True)
class Packed:
    """A constant that `panels` have packed; `place` is the C expression of the tile of n, counted over all batches."""

    side: Side
    panels: BlockPanels | SparsePanels | VectorPanels
    slot: str
    place: str

    rounded = True
    is_constant = True
    in_registers = False
    is_bulk = False

    @property
    def step_bytes(self) -> int:
        """Of a packed tile."""
        return self.panels.tile_bytes

    @property
    def _start(self) -> str:
        """C for where the tiles of this block begin."""
        assert not isinstance(self.panels, VectorPanels), "their tiles begin where the panel's first step does"
        down = self.panels.shape[2]
        return f"(const unsigned char *){self.slot} + (size_t)({self.place}) * {down * self.step_bytes}"

    def declare(self, writer: Writer) -> None:
        """A pointer to this thread's first piece of the packed constant."""
        name = self.side.name
        writer.line(f"/* {name.upper()}: packed, {self.step_bytes} bytes a step */")
        writer.line(f"const unsigned char *const {name}_packed = {self._start} + thread * 16;")

    def fetch(self, writer: Writer) -> None:
        """Begins asynchronous copies of this thread's pieces of a step."""
        side = self.side
        across = side.depth * side.element.bytes // 16
        pieces = side.tile * across
        with unrolled(writer, -(-pieces // side.threads), "i"):
            writer.line(f"const int piece = thread + i * {side.threads};")
            place = f"into + piece / {across} * {side.pitch} + piece % {across} * 16"
            source = f"{side.name}_packed + step * {self.step_bytes} + i * {16 * side.threads}"
            test = f"if (piece < {pieces}) " if pieces % side.threads else ""
            writer.line(f"{test}tw_cp_async_16({place}, {source}, 16);")

    def put(self, writer: Writer) -> None:
        """Nothing: the copies have shared memory as their destination."""
        pass

    def prefetch(self, writer: Writer, ahead: int) -> None:
        """Asks for the tiles of this block's steps that come after the first `ahead`.

        Of the blocks that read them the first does.
        """
        first = f"first_step + {ahead}"
        with writer.block(f"if (first_m == 0 && {first} < past_step)"):
            place = f"{self._start} + (size_t)({first}) * {self.step_bytes}"
            size = f"(past_step - first_step - {ahead}) * {self.step_bytes}"
            writer.line(f"tw_prefetch({place}, {size}, thread, {self.side.threads});")


@dataclass(frozen=True)
class Bulk(Packed):
    """The same, as the rows lie in shared memory, by one bulk copy a step.

    The mbarriers of the `stages` lie at the C expression `barriers`.
    """

    barriers: str
    stages: int

    is_bulk = True

    def declare(self, writer: Writer) -> None:
        """One thread initialises the mbarriers; the others come to them after a barrier of the block."""
        name = self.side.name
        writer.line(f"/* {name.upper()}: packed, {self.step_bytes} bytes a step, by the bulk copy engine */")
        writer.line(f"const unsigned char *const {name}_packed = {self._start};")
        writer.line(f"unsigned long long *const landed = (unsigned long long *)({self.barriers});")
        with writer.block("if (thread == 0)"):
            with unrolled(writer, self.stages, "stage"):
                writer.line("tw_mbarrier_init(landed + stage, 1);")
            writer.line("tw_mbarrier_fence_init();")
            writer.line("tw_fence_proxy_async();")

    def fetch(self, writer: Writer) -> None:
        """Lets one thread begin the copy of a whole step, which arrives at a barrier."""
        count = self.step_bytes
        with writer.block("if (thread == 0)"):
            writer.line(f"tw_mbarrier_arrive_expect(arrival, {count});")
            writer.line(f"tw_bulk_load(into, {self.side.name}_packed + step * {count}, {count}, arrival);")
