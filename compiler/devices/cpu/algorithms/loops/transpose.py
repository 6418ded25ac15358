"""Maps whose operand is contiguous along one axis and whose result along another, by transposing in registers.

A square of TW_LANES x TW_LANES elements is read along memory, transposed and written along memory. Where the result's
axis is a short one inside the operand's (the channels of two groups shuffled into one another), that many vectors are
interleaved instead. So are bytes, such as the three planes of an image that is quantised, or the channels of two groups
that get another scale: two, three, four or eight bytes for each lane are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.strips import strips
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Kernel, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType

ZIPPED = (2, 4, 8)
"""Numbers of vectors that can be interleaved."""
PLANES = {2: "twos", 3: "threes", 4: "fours", 8: "eights"}
"""Numbers of vectors whose bytes are interleaved, and how the C function is called that stores them."""
BYTES = (DType.U8, DType.I8)
STRETCH = 2048
"""Places of an image that a task has where planes are interleaved: whole vectors of any target."""


@dataclass(frozen=True)
class RegisterTranspose:
    """How operands are transposed.

    reads   the axis along which operands are contiguous
    writes  the axis along which the result is
    zips    whether vectors are interleaved, instead of squares transposed
    """

    reads: Axis
    writes: Axis
    zips: bool


def transpose_of(kernel: Kernel, slots: Slots, target: CpuTarget) -> RegisterTranspose | None:
    """How a kernel in normal form is transposed.

    None unless it is a map with one result, of fp32 or rounded to bytes at last, whose operands are fp32 (or bytes, as
    the result is) and contiguous along another axis than the result. Squares need at least half a vector's lanes along
    both axes, interleaving an extent in ZIPPED of the result's axis, and of bytes one in PLANES.
    """
    stores = [store for block in kernel.blocks for store in block.stores if store.slot in slots.buffers]
    if kernel.sequential or len(stores) != 1 or any(temp.type.rank for temp in kernel.temps):
        return None
    if any(block.axes or block.monoid for block in kernel.blocks):
        return None
    result = slots.buffers[stores[0].slot].type.dtype
    *between, last = [value.dtype for block in kernel.blocks for value in block.values]
    if result not in (DType.F32, *BYTES) or last is not result or any(one is not DType.F32 for one in between):
        return None
    written = slots.address(stores[0].slot, stores[0].index)[1]
    loads = [
        load for block in kernel.blocks for value in block.values for load in value.loads if load.slot in slots.buffers
    ]
    read = [slots.address(load.slot, load.index)[1] for load in loads]
    kinds = {load.type for load in loads}
    if kinds != {DType.F32} and not (result in BYTES and kinds <= {*BYTES}):
        return None
    for writes in kernel.shared:
        if written.coefficient(writes) != 1 or any(offset.coefficient(writes) in (1, None) for offset in read):
            continue
        for reads in kernel.shared:
            steps = {offset.coefficient(reads) for offset in read}
            if reads != writes and 1 in steps and steps <= {0, 1}:
                short = tuple(PLANES) if result in BYTES else ZIPPED
                zips = written.coefficient(reads) == writes.extent and writes.extent in short
                wide = result is DType.F32 and min(reads.extent, writes.extent) >= target.vector_floats // 2
                return RegisterTranspose(reads, writes, zips) if zips or (wide and written.coefficient(reads)) else None
    return None


def transposed(
    name: str, workload: Workload, kernel: Kernel, slots: Slots, transpose: RegisterTranspose, target: CpuTarget
) -> Lowering:
    """The lowering of a kernel for which `transpose_of` gave `transpose`."""
    return _Transposed(name, workload, kernel, slots, transpose, target)


@dataclass
class _Transposed(Lowering):
    name: str
    workload: Workload
    kernel: Kernel
    slots: Slots
    transpose: RegisterTranspose
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.outer = [axis for axis in self.kernel.shared if axis not in (self.transpose.reads, self.transpose.writes)]

    @property
    def grid(self) -> TaskGrid:
        cut = (Cut((self.transpose.writes,), self.target.vector_floats),) if self._bands > 1 else ()
        if self._has_planes:
            cut = (Cut((self.transpose.reads,), STRETCH),)
        return TaskGrid(self.kernel, (*one_by_one(self.outer), *cut))

    @property
    def _has_planes(self) -> bool:
        """Whether results are bytes, which are interleaved."""
        (result,) = self.workload.outputs
        return result.type.dtype in BYTES

    @property
    def _bands(self) -> int:
        """Into how many stretches the result's axis is cut."""
        return 1 if self.transpose.zips else -(-self.transpose.writes.extent // self.target.vector_floats)

    def lower(self) -> Lowered:
        writer, bands = self.writer, self._bands
        with (
            kernel_function(writer, self.name, self.workload),
            Trimming(writer, self.kernel, self.slots, self.target.vector_floats).tasks(self.grid),
        ):
            if self._has_planes:
                self._planes()
            elif bands > 1:
                writer.line(f"const long first = tile % {bands} * TW_LANES;")
                decode(writer, self.outer, f"(tile / {bands})")
                self._band(bands)
            else:
                decode(writer, self.outer, "tile")
                self._zip() if self.transpose.zips else self._band(bands)
        return Lowered(self.name, writer.text(), self.tasks, grid=self.grid, headers=frozenset(writer.headers))

    # Squares

    def _band(self, bands: int) -> None:
        """TW_LANES places along the result's axis, or what is left of it, and all of the operands' axis."""
        writer, rest = self.writer, self.transpose.writes.extent % self.target.vector_floats
        if bands == 1:
            writer.line("const long first = 0;")
        if not rest:
            self._squares("")
        elif bands == 1:
            self._squares(str(rest))
        else:
            with writer.block(f"if (first + TW_LANES <= {self.transpose.writes.extent})"):
                self._squares("")
            with writer.block("else"):
                self._squares(str(rest))

    def _squares(self, width: str) -> None:
        """Squares along the operands' axis.

        `width` is how many places along the result's axis they have, empty for all lanes.
        """
        strips(
            self.writer,
            self.transpose.reads,
            self.target.vector_floats,
            lambda vector: self._square(vector.count, width),
        )

    def _square(self, height: str, width: str) -> None:
        writer, transpose = self.writer, self.transpose
        writer.line("vf rows[TW_LANES] = {{0}};" if width else "vf rows[TW_LANES];")
        writer.line("#pragma GCC unroll 16")
        with writer.block(f"for (long row = 0; row < {width or 'TW_LANES'}; row++)"):
            writer.line(f"const long {transpose.writes} = first + row;")
            store, value = self._maps(Vector(transpose.reads, height), {})
            writer.line(f"rows[row] = {value};")
        writer.line("tw_transpose(rows);")
        writer.line("#pragma GCC unroll 16")
        with writer.block(f"for (long row = 0; row < {height or 'TW_LANES'}; row++)"):
            emitter = Emitter(writer, self.slots.address, Vector(transpose.writes, width), numerics=self.slots.numerics)
            emitter.names = {transpose.reads: f"({transpose.reads} + row)", transpose.writes: "first"}
            emitter.store(store.slot, store.index, "rows[row]")

    # Interleaved vectors

    def _zip(self) -> None:
        """All places along the result's axis at once: their vectors interleaved are contiguous."""
        strips(self.writer, self.transpose.reads, self.target.vector_floats, self._zipped)

    def _zipped(self, vector: Vector) -> None:
        writer, writes, lanes = self.writer, self.transpose.writes, self.target.vector_floats
        writer.line(f"vf rows[{writes.extent}];")
        for place in range(writes.extent):
            store, value = self._maps(vector, {writes: f"{place}L"})
            writer.line(f"rows[{place}] = {value};")
        writer.line(f"tw_zip(rows, {writes.extent});")
        emitter = Emitter(writer, self.slots.address, numerics=self.slots.numerics)
        emitter.names = {writes: "0"}
        slot, offset = self.slots.address(store.slot, store.index)
        elements = int(vector.count or lanes) * writes.extent
        for place in range(-(-elements // lanes)):
            to, left = f"{slot} + {emitter.index(offset + place * lanes)}", elements - place * lanes
            count = f", {left}" if left < lanes else ""
            ending = emitter.ending(slot)
            writer.line(f"tw_store{ending}{'_n' if count else ''}({to}, rows[{place}]{count});")

    def _planes(self) -> None:
        """A stretch of all planes: whole vectors, and then what is left at the end."""
        writer, reads = self.writer, self.transpose.reads
        stretches = -(-reads.extent // STRETCH)
        decode(writer, self.outer, f"(tile / {stretches})")
        writer.line(f"long {reads} = tile % {stretches} * {STRETCH};")
        writer.line(f"const long past = tw_least_of({reads} + {STRETCH}, {reads.extent});")
        with writer.block(f"for (; {reads} + TW_LANES <= past; {reads} += TW_LANES)"):
            self._beside(Vector(reads))
        if rest := reads.extent % self.target.vector_floats:
            with writer.block(f"if ({reads} < past)"):
                self._beside(Vector(reads, str(rest)))

    def _beside(self, vector: Vector) -> None:
        """The bytes of all planes at a vector of places, side by side."""
        planes = self.transpose.writes.extent
        found = [self._maps(vector, {self.transpose.writes: f"{place}L"}) for place in range(planes)]
        store = found[0][0]
        emitter = Emitter(self.writer, self.slots.address, numerics=self.slots.numerics)
        emitter.names = {self.transpose.writes: "0"}
        slot, offset = self.slots.address(store.slot, store.index)
        values = [value for _, value in found] + ["(vi){0}"] * (-planes % 4)
        lanes = ", ".join(f"tw_four({', '.join(values[at : at + 4])})" for at in range(0, len(values), 4))
        count = vector.count or str(self.target.vector_floats)
        self.writer.include("tw_bytes.h")
        self.writer.line(f"tw_bytes_{PLANES[planes]}({slot} + {emitter.index(offset)}, {lanes}, {count});")

    def _maps(self, vector: Vector, names: Mapping[Axis, str]) -> tuple[Store, str]:
        """The blocks at one vector along the operands' axis: where the result goes, and its C name."""
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)
        emitter.names = dict(names)
        for block in self.kernel.blocks:
            for store, expr in zip(block.stores, block.values, strict=True):
                value = emitter.vector_of(expr)
                if store.slot in self.slots.buffers:
                    found = store, value
                emitter.held[Load(store.slot, store.index, expr.dtype)] = value
        return found
