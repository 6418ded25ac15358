"""The generic lowering to CUDA C++: any kernel whose axes are parallel, as one launch.

Each point of the shared axes is computed by a *team*: one thread, one warp, or one block of threads.

    thread  Neighbouring threads take neighbouring points, so that accesses along the innermost shared axis are coalesced; a kernel
            without loops takes as many points a thread as 16 bytes hold. Blocks run one after the other, reductions in loops.
    warp    The lanes share out the points of a block's own axes, or of its reduction, which shuffles then combine.
    block   The same with all threads; warps combine through shared memory.

A team's loops along memory go by 16 bytes where that divides the row; pointers that are not aligned are found at run time.

Temporaries at one point are registers. Those over a block's own axes are arrays of the thread, or lie in shared memory, or beyond
`SHARED_BYTES` in global scratch memory; a barrier of the team stands before what needs another thread's elements.

Sequential axes and Routines are refused. Contractions come out right and slow: tensor cores are other lowerings' matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod

from compiler.codegen.c_loops import by_stride, identity, pair_step, reduction_order, single_step, temp_aware, widened
from compiler.codegen.cuda.cu_scalar import CUDA_TYPES, HALVES, CudaEmitter, convert
from compiler.codegen.cuda.lowered import CudaLowered
from compiler.codegen.lowered import decode, describe
from compiler.codegen.writer import Writer
from compiler.errors import InternalError
from compiler.ir.expr import Cast, Expr, Load, Where
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.machine import Workload
from compiler.ir.normal_form import (
    Slots,
    contract_temps,
    join_reduction,
    join_shared,
    positions,
    rename_axes,
    split_shared,
    without_unit_axes,
)
from compiler.ir.tensor import DType

WARP = 32
THREADS = 128
"""Threads of a block whose teams are single threads or warps."""

TEAMS = (1, WARP, 128, 256, 512)
"""Sizes of a team; beyond WARP it is a whole block."""

VECTOR_BYTES = 16
"""What one instruction of a thread moves at most."""

MAX_VECTOR = 8
"""Elements of a thread at most: of bytes, 16 would need too many registers."""

SHARED_BYTES = 40 * 1024
"""Shared memory for temporaries: with what reductions need, it stays within the 48 KiB that any kernel may have."""

LOCAL_BYTES = 128
"""Arrays that one thread may have."""

SERIAL_WORK = 16
"""Elements that one thread takes in whatever order they lie."""

ENOUGH_POINTS = 1024
"""Points from which a thread each keeps a device busier than a team each would."""


def lower_cuda_loops(name: str, workload: Workload, team: int | None = None) -> CudaLowered:
    """Any kernel without sequential axes as CUDA C++; `team`, one of TEAMS, is chosen where it is None.

    Raises InternalError for Routines and sequential axes.
    """
    kernel = workload.kernel
    if not isinstance(kernel, Kernel):
        raise InternalError(f"routine {kernel.name} has no CUDA lowering")
    if kernel.sequential or any(block.sequential for block in kernel.blocks):
        raise InternalError(f"kernel {kernel.family} has sequential axes, which have no CUDA lowering")
    slots = Slots(workload)
    kernel = rename_axes(kernel, str.capitalize)
    kernel = _spread(without_unit_axes(contract_temps(widened(kernel, HALVES))))
    kernel = split_shared(kernel, temp_aware(kernel, slots))
    kernel = join_shared(replace(kernel, shared=by_stride(kernel, slots)), temp_aware(kernel, slots))
    kernel = replace(kernel, blocks=tuple(_ordered(block, kernel, slots) for block in kernel.blocks))
    return _CudaLoops(name, workload, kernel, slots, team).lower()


def _spread(kernel: Kernel) -> Kernel:
    """A kernel of a single block, whose own axes may as well be shared."""
    if len(kernel.blocks) != 1 or kernel.shared or kernel.temps:
        return kernel
    (block,) = kernel.blocks
    return replace(kernel, shared=block.axes, blocks=(replace(block, axes=()),))


def _ordered(block: Block, kernel: Kernel, slots: Slots) -> Block:
    """A block's own axes as its first store lies in memory, its reduction as its loads do, each with the least stride innermost."""
    address = temp_aware(kernel, slots)
    offset = address(block.stores[0].slot, block.stores[0].index)[1]
    axes = sorted(block.axes, key=lambda axis: -abs(offset.coefficient(axis) or 0))
    reduction = reduction_order(block, (), address, None)
    return join_reduction(replace(block, axes=tuple(axes), reduction=tuple(reduction)), address)


@dataclass(frozen=True)
class _Place:
    """Where a block stores."""

    slot: str
    index: tuple[Index, ...]


@dataclass(frozen=True)
class _Vectors:
    """Loads and stores that take `count` elements along an axis at once."""

    axis: Axis
    count: int
    loads: tuple[Load, ...]
    stores: tuple[_Place, ...]

    @property
    def per_row(self) -> int:
        return -(-self.axis.extent // self.count)

    @property
    def row(self) -> Axis:
        """The axis of vectors."""
        return Axis(f"{self.axis.name}Vector", self.per_row)


_Body = Callable[[CudaEmitter, Mapping[_Place, str]], None]
"""Writes what happens at one point; the values of some places go to elements of vectors."""


def _points(axes: Sequence[Axis]) -> int:
    return prod(axis.extent for axis in axes)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _certain_loads(expr: Expr) -> Iterator[Load]:
    """The loads that are carried out whatever conditions say."""
    if isinstance(expr, Load):
        yield expr
    for child in (expr.condition,) if isinstance(expr, Where) else expr.children:
        yield from _certain_loads(child)


@dataclass
class _CudaLoops:
    """One lowering: the kernel in normal form, and the text being written."""

    name: str
    workload: Workload
    kernel: Kernel
    slots: Slots
    wanted: int | None

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.plain = temp_aware(self.kernel, self.slots)
        self.temps = {temp.name: temp for temp in self.kernel.temps}
        self.arrays = [temp for temp in self.kernel.temps if not self._is_register(temp)]
        self.points = prod(axis.extent for axis in self.kernel.shared)
        self.work = max(_points(block.axes) * _points(block.reduction) for block in self.kernel.blocks)
        self.shared = 0
        self.scratch = 0
        self.team = self.wanted or self._chosen_team()
        assert self.team in TEAMS, self.team
        self.vectors = self._point_vectors()
        self.int_type = self._index_type()

    def _is_register(self, temp: Slot) -> bool:
        return not temp.type.rank

    # Choices

    def _chosen_team(self) -> int:
        """One thread where its loops are short, or neighbouring points lie side by side; else as many as the work of a point feeds."""
        fits = sum(temp.type.bytes for temp in self.arrays) <= LOCAL_BYTES
        if fits and (self.work <= SERIAL_WORK or (self.points >= ENOUGH_POINTS and self._is_coalesced())):
            return 1
        return next((team for team in TEAMS[1:] if self.work <= 8 * team), TEAMS[-1])

    def _is_coalesced(self) -> bool:
        """Whether neighbouring points of the innermost shared axis access one element, or neighbours, in every block with loops."""
        if not self.kernel.shared:
            return False
        axis = self.kernel.shared[-1]
        return all(
            self.plain(load.slot, load.index)[1].coefficient(axis) in (0, 1)
            for block in self.kernel.blocks
            if _points(block.axes) * _points(block.reduction) > 1
            for value in block.values
            for load in value.loads
        )

    def _point_vectors(self) -> _Vectors | None:
        """Vectors along the innermost shared axis, in a kernel without loops."""
        has_loops = any(block.axes or block.reduction for block in self.kernel.blocks)
        if self.team > 1 or not self.kernel.shared or has_loops or self.arrays or not self._is_pointwise():
            return None
        return self._vectors(self.kernel.blocks, self.kernel.shared[-1])

    def _row_vectors(self, block: Block, axes: Sequence[Axis], threads: int) -> _Vectors | None:
        """Vectors along the innermost of a block's axes that a team shares out: where they divide it and feed the whole team."""
        vectors = self._vectors((block,), axes[-1])
        if vectors is None or axes[-1].extent % vectors.count or _points(axes) // vectors.count < threads:
            return None
        return vectors

    def _vectors(self, blocks: Sequence[Block], axis: Axis) -> _Vectors | None:
        """What may be loaded and stored by 16 bytes along an axis: stores where the blocks store along it, else loads."""
        stores = [_Place(store.slot, store.index) for block in blocks for store in block.stores]
        written = {place.slot for place in stores}
        loads = [
            load
            for block in blocks
            for value in block.values
            for load in _certain_loads(value)
            if load.slot not in written
        ]
        places: list[Load | _Place] = [*loads, *stores]
        widths = [self._slot_dtype(place.slot).bytes for place in places if self._is_whole(place, axis, 1)]
        count = min(VECTOR_BYTES // max(widths, default=VECTOR_BYTES), MAX_VECTOR)
        along = any(axis in self.plain(place.slot, place.index)[1].axes for place in stores)
        while count > 1:
            whole_loads = tuple(dict.fromkeys(load for load in loads if self._is_whole(load, axis, count)))
            whole_stores = tuple(dict.fromkeys(place for place in stores if self._is_whole(place, axis, count)))
            if whole_stores if along else whole_loads:
                return _Vectors(axis, count, whole_loads, whole_stores)
            count //= 2
        return None

    def _is_pointwise(self) -> bool:
        """Whether outputs that blocks read again are read only where they have just been stored."""
        stores = (store for block in self.kernel.blocks for store in block.stores)
        stored = {(store.slot, store.index) for store in stores if store.slot in self.slots.buffers}
        outputs = {slot for slot, _ in stored}
        loads = (load for block in self.kernel.blocks for value in block.values for load in value.loads)
        return all((load.slot, load.index) in stored for load in loads if load.slot in outputs)

    def _is_whole(self, place: Load | _Place, axis: Axis, count: int) -> bool:
        """Whether `count` elements along an axis lie side by side, from multiples of `count` on."""
        offset = self.plain(place.slot, place.index)[1]
        others = (factor for atom, factor in offset.terms if atom != axis)
        return offset.coefficient(axis) == 1 and not any(number % count for number in (*others, offset.const))

    def _index_type(self) -> str:
        """`int` where every offset, position and number of threads fits."""
        spans = [buffer.span for buffer in self.slots.buffers.values()]
        ends = [abs(end) for index in positions(self.kernel, self.plain) for end in index.range]
        works = [
            self.points * self.team,
            *(_points(block.axes) * _points(block.reduction) for block in self.kernel.blocks),
        ]
        return "int" if max((*spans, *ends, *works)) < 2**30 else "int64_t"

    # The functions

    def lower(self) -> CudaLowered:
        block = self._block_threads()
        teams = max(block // self.team, 1)
        rows = self.points
        if self.vectors and rows:
            rows = rows // self.vectors.axis.extent * self.vectors.per_row
        grid = -(-rows // teams)
        if not any(slot.type.elements for slot in self.kernel.outputs):
            grid = 0
        self._body(rows, teams, max(grid, 1))
        writer = Writer()
        describe(writer, self.workload)
        parameters, arguments = self._parameters()
        tile = (*parameters, *(["unsigned char *shared"] if self.shared else []), f"{self.int_type} tile")
        with writer.block(f"__device__ void {self.name}_tile({', '.join(tile)})"):
            for line in (*self._declared(teams), *self.writer.lines):
                writer.line(line)
        writer.line()
        with writer.block(
            f'extern "C" __global__ void __launch_bounds__({block}) {self.name}({", ".join(parameters)})'
        ):
            given = (*arguments, *(["tw_dynamic_shared()"] if self.shared else []), "blockIdx.x")
            writer.line(f"{self.name}_tile({', '.join(given)});")
        return CudaLowered(self.name, writer.text(), grid, block, self.shared, self.scratch)

    def _block_threads(self) -> int:
        return self.team if self.team > WARP else min(THREADS, -(-max(self.points * self.team, 1) // WARP) * WARP)

    def _buffers(self) -> tuple[Slot, ...]:
        return (*self.workload.kernel.inputs, *self.workload.kernel.outputs)

    def _parameters(self) -> tuple[list[str], list[str]]:
        """The kernel's parameters with their types, and their names. Only constants are known to overlap with no output."""
        slots = (*self.workload.kernel.inputs, *self.workload.kernel.outputs)
        parts = []
        for at, slot in enumerate(slots):
            const = "const " if at < len(self.kernel.inputs) else ""
            restrict = "__restrict__ " if const and self.workload.constant[at] else ""
            parts.append(f"{const}{CUDA_TYPES[slot.type.dtype]} *{restrict}{slot.name}")
        scratch = self.scratch > 0
        return [*parts, *["unsigned char *scratch"] * scratch], [*(slot.name for slot in slots), *["scratch"] * scratch]

    def _declared(self, teams: int) -> Iterator[str]:
        """The thread's place in its team and the team's point, where the body asks for them; parameters that it does not use."""
        body = "\n".join(self.writer.lines)
        if self.team > 1 and _mentions(body, "lane"):
            yield f"const int lane = threadIdx.x{f' % {WARP}' if self.team == WARP else ''};"
        uses_point = _mentions(body, "point")
        if uses_point:
            own = {1: f"tile * {teams} + (int)threadIdx.x", WARP: f"tile * {teams} + (int)threadIdx.x / {WARP}"}
            yield f"const {self.int_type} point = {own.get(self.team, 'tile')};"
        unused = [name for name in self._parameters()[1] if not _mentions(body, name)]
        yield from (f"(void){name};" for name in (*unused, *(() if uses_point else ("tile",))))

    def _body(self, rows: int, teams: int, grid: int) -> None:
        """What a team does at its point."""
        with ExitStack() as stack:
            if rows % teams:
                stack.enter_context(self.writer.block(f"if (point < {rows})"))
            if self.points and self.vectors:
                self._pointwise(self.vectors)
            elif self.points:
                decode(self.writer, self.kernel.shared, "point", self.int_type)
                self._declare_arrays(teams, grid)
                self._blocks()

    def _declare_arrays(self, teams: int, grid: int) -> None:
        """Temporaries over blocks' own axes."""
        for temp in self.arrays:
            ctype, size = CUDA_TYPES[temp.type.dtype], -(-temp.type.bytes // 16) * 16
            if self.team == 1:
                self.writer.line(f"{ctype} {temp.name}[{max(temp.type.elements, 1)}];")
                continue
            which = f" + threadIdx.x / {WARP} * {size}" if self.team == WARP else ""
            if self.shared + size * teams <= SHARED_BYTES:
                place = f"shared + {self.shared}{which}"
                self.shared += size * teams
            else:
                place = f"scratch + {self.scratch} + (uint64_t)point * {size}"
                self.scratch += size * teams * grid
            self.writer.line(f"{ctype} *const {temp.name} = ({ctype} *)({place});")

    def _emitter(self) -> CudaEmitter:
        return CudaEmitter(self.writer, self._address)

    def _address(self, slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        if slot in self.temps:
            return slot, flatten(index, self.temps[slot].type.dims)
        return self.slots.address(slot, index)

    # A kernel without loops: vectors

    def _pointwise(self, vectors: _Vectors) -> None:
        """A vector of points where pointers are aligned and the row has as many left; else the points one by one."""
        axis = vectors.axis
        decode(self.writer, [*self.kernel.shared[:-1], vectors.row], "point", self.int_type)
        self.writer.line(f"const {self.int_type} {axis} = {vectors.row} * {vectors.count};")
        conditions = self._aligned(vectors)
        if axis.extent % vectors.count:
            conditions.append(f"{axis} + {vectors.count} <= {axis.extent}")
        with self.writer.block(f"if ({' && '.join(conditions)})"):
            self._whole_vectors(vectors, self._emitter(), self._serial)
        rest = f"part < {vectors.count} && {axis} + part < {axis.extent}"
        with self.writer.block("else"), self.writer.block(f"for (int part = 0; {rest}; part++)"):
            self._serial(self._at(axis), {})

    def _aligned(self, vectors: _Vectors) -> list[str]:
        """Conditions on the pointers; temporaries are aligned."""
        slots = dict.fromkeys((*(load.slot for load in vectors.loads), *(place.slot for place in vectors.stores)))
        return [
            f"tw_aligned({vectors.count * self._slot_dtype(slot).bytes}, {slot})"
            for slot in slots
            if slot not in self.temps
        ]

    def _whole_vectors(self, vectors: _Vectors, outer: CudaEmitter, body: _Body) -> None:
        """Vectors loaded, `body` for each of their elements, vectors stored; the axis is that of the first element."""

        def address(place: Load | _Place) -> tuple[str, str]:
            pointer, offset = self._address(place.slot, place.index)
            kind = f"tw_vector<{CUDA_TYPES[self._slot_dtype(place.slot)]}, {vectors.count}>"
            return kind, f"{pointer} + {outer.index(offset)}"

        held: dict[Expr, str] = {}
        results: dict[_Place, str] = {}
        for load in vectors.loads:
            (kind, place), name = address(load), self.writer.name(load.slot)
            self.writer.line(f"const {kind} {name} = *(const {kind} *)({place});")
            held[load] = f"{name}.element[part]"
        for store in vectors.stores:
            results[store] = self.writer.name(store.slot)
            self.writer.line(f"{address(store)[0]} {results[store]};")
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int part = 0; part < {vectors.count}; part++)"):
            emitter = self._at(vectors.axis)
            emitter.held = {**outer.held, **held}
            body(emitter, results)
        for store, name in results.items():
            kind, place = address(store)
            self.writer.line(f"*({kind} *)({place}) = {name};")

    def _at(self, axis: Axis) -> CudaEmitter:
        """An emitter for the point that lies `part` further along an axis."""
        emitter = self._emitter()
        emitter.names[axis] = f"({axis} + part)"
        return emitter

    def _slot_dtype(self, slot: str) -> DType:
        return (self.temps[slot] if slot in self.temps else self.slots.buffers[slot]).type.dtype

    def _serial(self, emitter: CudaEmitter, results: Mapping[_Place, str]) -> None:
        """All blocks of a kernel without loops at one point; results go to elements of vectors where they have one."""
        for block in self.kernel.blocks:
            for store, value in zip(block.stores, self._values(block, emitter), strict=True):
                place = _Place(store.slot, store.index)
                dtype = self._slot_dtype(store.slot)
                held = self._hold(emitter, place, value, dtype)
                if place in results:
                    self.writer.line(f"{results[place]}.element[part] = {held};")
                elif store.slot not in self.temps:
                    emitter.store(store.slot, store.index, held, dtype)

    def _values(self, block: Block, emitter: CudaEmitter) -> list[str]:
        """The values of a block without loops, in its slots' dtypes; a reduction over nothing combines one element with nothing."""
        if block.monoid:
            return self._reduced(block, emitter, lambda names: self._accumulate(block, names, emitter))
        kinds = [value.dtype for value in block.values]
        return self._stored_kinds(block, [emitter.scalar(value) for value in block.values], kinds)

    def _stored_kinds(self, block: Block, values: Sequence[str], kinds: Sequence[DType]) -> list[str]:
        return [
            convert(value, kind, self._slot_dtype(store.slot))
            for store, value, kind in zip(block.stores, values, kinds, strict=True)
        ]

    def _hold(self, emitter: CudaEmitter, place: _Place, value: str, dtype: DType) -> str:
        """Names a value, which is what later loads of its place give; what nothing asks for needs no name."""
        if place.slot in self.temps and not any(place.slot in block.reads for block in self.kernel.blocks):
            return value
        name = self.writer.name(place.slot)
        self.writer.line(f"const {CUDA_TYPES[dtype]} {name} = {value};")
        emitter.held[Load(place.slot, place.index, dtype)] = name
        return name

    # Blocks at a point, by a team

    def _blocks(self) -> None:
        """Block after block, a barrier where one needs what another thread does in an earlier one."""
        emitter = self._emitter()
        registers = {name for name, temp in self.temps.items() if self._is_register(temp)}
        inputs = {slot.name for slot in self.kernel.inputs}
        outputs = {slot.name for slot in self.kernel.outputs}
        read: set[str] = set()
        written: set[str] = set()
        for block in self.kernel.blocks:
            reads, writes = set(block.reads) - registers, set(block.writes) - registers
            overlaps = writes & outputs and read & inputs  # an output may lie where an input does
            if self.team > 1 and (written & (reads | writes) or read & writes or overlaps):
                self.writer.line("__syncwarp();" if self.team == WARP else "__syncthreads();")
                read, written = set(), set()
            self._block(block, emitter)
            emitter.forget(block.writes)
            if self.team > WARP and self._is_across(block):  # a barrier stands between its loads and its stores
                read, written = set(), writes
            else:
                read, written = read | reads, written | writes

    def _block(self, block: Block, emitter: CudaEmitter) -> None:
        if _points(block.axes) == 0:
            return
        if not block.axes:
            self._at_the_point(block, emitter)
            return
        for place in [expr for expr in emitter.held if isinstance(expr, Load) and expr.slot in block.writes]:
            del emitter.held[place]
        if self.team == 1:
            with ExitStack() as stack:
                for axis in block.axes:
                    stack.enter_context(self.writer.block(self._for(axis)))
                stack.enter_context(emitter.scope())
                self._store(block, self._serially(block, emitter), emitter, {})
        elif block.monoid and self._reads_rows(block):
            self._warp_per_element(block, emitter)
        else:

            def at_element(inner: CudaEmitter, results: Mapping[_Place, str]) -> None:
                self._store(block, self._serially(block, inner), inner, results)

            if block.reduction:
                with self._dealt(block.axes, "lane", self.team), emitter.scope():
                    at_element(emitter, {})
            else:
                self._share_out(block, block.axes, "lane", self.team, emitter, at_element)

    def _is_across(self, block: Block) -> bool:
        """Whether the whole team carries out one reduction."""
        return bool(block.monoid) and not block.axes and self.team > 1 and _points(block.reduction) > 1

    def _at_the_point(self, block: Block, emitter: CudaEmitter) -> None:
        """A block without axes of its own: all threads know its values, one stores them."""
        across = self._is_across(block)
        values = self._across(block, emitter, self.team) if across else self._serially(block, emitter)
        for store, value in zip(block.stores, values, strict=True):
            dtype = self._slot_dtype(store.slot)
            name = self._hold(emitter, _Place(store.slot, store.index), value, dtype)
            if store.slot in self.temps and self._is_register(self.temps[store.slot]):
                continue
            with ExitStack() as stack:
                if self.team > 1:
                    stack.enter_context(self.writer.block("if (lane == 0)"))
                    stack.enter_context(emitter.scope())
                emitter.store(store.slot, store.index, name, dtype)

    def _store(self, block: Block, values: Sequence[str], emitter: CudaEmitter, results: Mapping[_Place, str]) -> None:
        """Values to where they belong, or to elements of the vectors that will be stored there."""
        for store, value in zip(block.stores, values, strict=True):
            if result := results.get(_Place(store.slot, store.index)):
                self.writer.line(f"{result}.element[part] = {value};")
            else:
                emitter.store(store.slot, store.index, value, self._slot_dtype(store.slot))

    def _reads_rows(self, block: Block) -> bool:
        """Whether a reduction runs along memory, far enough for a warp."""
        axis = block.reduction[-1] if block.reduction else None
        if axis is None or _points(block.reduction) < WARP:
            return False
        steps = [self.plain(load.slot, load.index)[1].coefficient(axis) for load in block.values[0].loads]
        return 1 in steps

    def _warp_per_element(self, block: Block, emitter: CudaEmitter) -> None:
        """A reduction along memory for each point of a block's own axes: one by each warp."""
        warps = self.team // WARP
        first = f"lane / {WARP}" if warps > 1 else "0"
        with self._dealt(block.axes, first, warps), emitter.scope():
            values = self._across(block, emitter, WARP)
            with self.writer.block(f"if (lane % {WARP} == 0)"), emitter.scope():
                self._store(block, values, emitter, {})

    def _for(self, axis: Axis) -> str:
        return f"for ({self.int_type} {axis} = 0; {axis} < {axis.extent}; {axis}++)"

    def _share_out(
        self, block: Block, axes: Sequence[Axis], first: str, threads: int, emitter: CudaEmitter, body: _Body
    ) -> None:
        """`body` at every point of some axes of a block, dealt out to threads, by vectors where they may be."""
        vectors = self._row_vectors(block, axes, threads)
        conditions = self._aligned(vectors) if vectors else []
        if vectors:
            with ExitStack() as stack:
                if conditions:
                    stack.enter_context(self.writer.block(f"if ({' && '.join(conditions)})"))
                stack.enter_context(self._dealt([*axes[:-1], vectors.row], first, threads))
                stack.enter_context(emitter.scope())
                self.writer.line(f"const {self.int_type} {vectors.axis} = {vectors.row} * {vectors.count};")
                self._whole_vectors(vectors, emitter, body)
            if not conditions:
                return
        with ExitStack() as stack:
            if vectors:
                stack.enter_context(self.writer.block("else"))
            stack.enter_context(self._dealt(axes, first, threads))
            stack.enter_context(emitter.scope())
            body(emitter, {})

    def _dealt(self, axes: Sequence[Axis], first: str, threads: int) -> ExitStack:
        """A loop over the points of some axes, in row-major order: from `first` on every `threads`th."""
        stack = ExitStack()
        if len(axes) == 1:
            (axis,) = axes
            head = f"for ({self.int_type} {axis} = {first}; {axis} < {axis.extent}; {axis} += {threads})"
            stack.enter_context(self.writer.block(head))
            return stack
        number = self.writer.name("element")
        head = f"for ({self.int_type} {number} = {first}; {number} < {_points(axes)}; {number} += {threads})"
        stack.enter_context(self.writer.block(head))
        decode(self.writer, axes, number, self.int_type)
        return stack

    # Reductions

    def _serially(self, block: Block, emitter: CudaEmitter) -> list[str]:
        """The values of a block at one point, computed by one thread."""
        if not block.monoid or not block.reduction:
            return self._values(block, emitter)

        def loops(names: Sequence[str]) -> None:
            with ExitStack() as stack:
                for axis in block.reduction:
                    stack.enter_context(self.writer.block(self._for(axis)))
                stack.enter_context(emitter.scope())
                self._accumulate(block, names, emitter)

        return self._reduced(block, emitter, loops)

    def _across(self, block: Block, emitter: CudaEmitter, team: int) -> list[str]:
        """A reduction whose points the threads of a team share out; all of them know the result."""

        def loops(names: Sequence[str]) -> None:
            first = "lane" if team == self.team else f"lane % {WARP}"
            self._share_out(
                block, block.reduction, first, team, emitter, lambda inner, _: self._accumulate(block, names, inner)
            )
            self._combine_lanes(block, names)
            if team > WARP:
                self._combine_warps(block, names, team // WARP)

        return self._reduced(block, emitter, loops)

    def _reduced(self, block: Block, emitter: CudaEmitter, loops: Callable[[Sequence[str]], None]) -> list[str]:
        kinds = self._kinds(block)
        names = [self.writer.name("acc") for _ in kinds]
        starts = identity(block, kinds)
        for name, kind, start in zip(names, kinds, starts, strict=True):
            self.writer.line(f"{CUDA_TYPES[kind]} {name} = {start};")
        loops(names)
        if block.monoid.startswith("arg"):
            self.writer.line(f"if ({names[1]} == {starts[1]}) {names[1]} = 0;")
        return self._stored_kinds(block, names, kinds)

    def _kinds(self, block: Block) -> list[DType]:
        """The dtypes of a reduction's accumulators."""
        assert block.accumulator is not None
        return [block.accumulator, *(value.dtype for value in block.values[1:])]

    def _accumulate(self, block: Block, names: Sequence[str], emitter: CudaEmitter) -> None:
        kinds = self._kinds(block)
        values = [
            emitter.scalar(value if value.dtype is kind else Cast(value, kind))
            for value, kind in zip(block.values, kinds, strict=True)
        ]
        self._step(block, names, values)

    def _step(self, block: Block, names: Sequence[str], values: Sequence[str]) -> None:
        """Combines accumulators with values, or with those of other threads."""
        if len(names) == 1:
            self.writer.line(single_step(block.monoid, names[0], values[0], self._kinds(block)[0], wide=False))
        else:
            self.writer.line(pair_step(block.monoid, names[0], names[1], values[0], values[1]))

    def _combine_lanes(self, block: Block, names: Sequence[str]) -> None:
        """A butterfly of shuffles: every lane ends with the same bits, for each step is commutative."""
        with self.writer.block(f"for (int bits = {WARP // 2}; bits; bits /= 2)"):
            others = [self.writer.name("other") for _ in names]
            for other, name, kind in zip(others, names, self._kinds(block), strict=True):
                self.writer.line(f"const {CUDA_TYPES[kind]} {other} = tw_of_lane({name}, bits);")
            self._step(block, names, others)

    def _combine_warps(self, block: Block, names: Sequence[str], warps: int) -> None:
        """Through shared memory of this reduction's own; every thread combines the warps' results in the same order."""
        kinds = self._kinds(block)
        parts = [self.writer.name("part") for _ in names]
        for part, kind in zip(parts, kinds, strict=True):
            ctype = CUDA_TYPES[kind]
            self.writer.line(f"{ctype} *const {part} = ({ctype} *)(shared + {self.shared});")
            self.shared += -(-warps * kind.bytes // 16) * 16
        with self.writer.block(f"if (lane % {WARP} == 0)"):
            for part, name in zip(parts, names, strict=True):
                self.writer.line(f"{part}[lane / {WARP}] = {name};")
        self.writer.line("__syncthreads();")
        for part, name in zip(parts, names, strict=True):
            self.writer.line(f"{name} = {part}[0];")
        with self.writer.block(f"for (int warp = 1; warp < {warps}; warp++)"):
            others = [self.writer.name("other") for _ in names]
            for other, part, kind in zip(others, parts, kinds, strict=True):
                self.writer.line(f"const {CUDA_TYPES[kind]} {other} = {part}[warp];")
            self._step(block, names, others)
