"""The generic lowering to CUDA C++: any kernel whose axes are parallel, as one launch.

Each point of the shared axes is computed by a *team* (`team`): one thread, one warp, or more threads. A kernel without
loops takes as many points a thread as 16 bytes hold. Blocks run one after the other, reductions in loops.

A team's loops along memory go by 16 bytes, or by as many as divide the row and feed the whole team.

Elements that lie in memory in 16 bits are converted where they are loaded and stored; what a block stored and a later
one reads at another point was rounded on its way, for every reader. Temporaries at one point are registers. Those over
a block's own axes are arrays of the thread, or lie in shared memory, or beyond `SHARED_BYTES` in global scratch memory;
a barrier of the team stands before what needs another thread's elements.

Sequential axes are `sequential`'s, Routines `routine`'s matter. Contractions come out right and slow: tensor cores are
other lowerings' matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod

from compiler.codegen.functions import decode, nest
from compiler.codegen.reductions import identity, kinds_of, reduction_order, temp_aware, widened, with_plain_axes
from compiler.codegen.scalars import LIBM
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.loops.team import WARP, Team, choose_team
from compiler.devices.cuda.algorithms.loops.vectors import MAX_VECTOR, Place, Vectors, vectors_along
from compiler.devices.cuda.codegen.axes import index_type
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.reduction import accumulate, combine_lanes, combine_parts
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, HALVES, CudaEmitter, convert
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import (
    Slots,
    contract_temps,
    join_reduction,
    positions,
    without_unit_axes,
)
from compiler.ir.expr import Apply, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

SHARED_BYTES = 40 * 1024
"""Shared memory for temporaries: with what reductions need, it stays within the 48 KiB that any kernel may have."""

LOCAL_BYTES = 128
"""Arrays that one thread may have."""

BUSY_THREADS = 4096
"""So few threads have time of their own: functions that take long are spread over more of them before each takes 16
bytes."""
ELEMENTS_AT_ONCE = 16
"""Of a thread that are on their way together in a loop."""
UNSIGNED = {"int": "unsigned", "int64_t": "uint64_t"}
COSTLY = LIBM - {"sqrt", "floor", "ceil"} | {"sigmoid", "mod"}
"""Functions of many instructions."""


def lower_cuda_loops(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """Any kernel without sequential axes as CUDA C++.

    Level `block`: threads of a `team`, and `columns`, points side by side. They are chosen where the tile does not say:
    a team is one of TEAMS where it is no column.
    """
    kernel = workload.kernel
    assert isinstance(kernel, Kernel), kernel
    slots = Slots(workload)
    kernel = _spread(without_unit_axes(contract_temps(widened(kernel, HALVES))))
    return CudaLoops(name, workload, in_memory_order(kernel, slots), slots, wanted_team(tile)).lower()


def wanted_team(tile: Tile) -> Team | None:
    """The team that a tile asks for, if it does."""
    size = tile.extent("block", "team")
    return Team(size, tile.extent("block", "columns")) if size else None


def in_memory_order(kernel: Kernel, slots: Slots) -> Kernel:
    """Axes, the shared ones and those of blocks, joined where that costs no division, in the order of memory."""
    kernel = with_plain_axes(kernel, slots)
    return replace(kernel, blocks=tuple(_ordered(block, kernel, slots) for block in kernel.blocks))


def _spread(kernel: Kernel) -> Kernel:
    """A kernel of a single block, whose own axes may as well be shared."""
    if len(kernel.blocks) != 1 or kernel.shared or kernel.temps:
        return kernel
    (block,) = kernel.blocks
    return replace(kernel, shared=block.axes, blocks=(replace(block, axes=()),))


def _ordered(block: Block, kernel: Kernel, slots: Slots) -> Block:
    """A block's own axes as its first store lies in memory, its reduction as its loads do.

    Each has the least stride innermost. Axes whose order matters stay outermost, in their order.
    """
    address = temp_aware(kernel, slots)
    offset = address(block.stores[0].slot, block.stores[0].index)[1]
    free = [axis for axis in block.axes if axis not in block.sequential]
    axes = (*block.sequential, *sorted(free, key=lambda axis: -abs(offset.coefficient(axis) or 0)))
    reduction = reduction_order(block, (), address, None)
    return join_reduction(replace(block, axes=axes, reduction=tuple(reduction)), address)


_Body = Callable[[CudaEmitter, Mapping[Place, str]], None]
"""Writes what happens at one point; the values of some places go to elements of vectors."""


def points(axes: Sequence[Axis]) -> int:
    """The product of the extents; 1 for no axes."""
    return prod(axis.extent for axis in axes)


def drop_held(emitter: CudaEmitter, slots: frozenset[str]) -> None:
    """Forgets the names of elements of slots in which something else is stored."""
    for place in [expr for expr in emitter.held if isinstance(expr, Load) and expr.slot in slots]:
        del emitter.held[place]


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


@dataclass
class CudaLoops:
    """One lowering: the kernel in normal form, and the text being written."""

    name: str
    workload: Workload
    kernel: Kernel
    slots: Slots
    wanted: Team | None

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.plain = temp_aware(self.kernel, self.slots)
        self.elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        self.inputs = {slot.name for slot in self.kernel.inputs}
        self.read = frozenset[str]().union(*(block.reads for block in self.kernel.blocks))
        self.temps = {temp.name: temp for temp in self.kernel.temps}
        self.arrays = [temp for temp in self.kernel.temps if not self._is_register(temp)]
        self.registers = {temp.name for temp in self.kernel.temps if self._is_register(temp)}
        self.parallel = [axis for axis in self.kernel.shared if axis not in self.kernel.sequential]
        self.points = points(self.parallel)
        in_blocks = any(block.axes or block.reduction for block in self.kernel.blocks)
        self.has_loops = in_blocks or bool(self.kernel.sequential)
        self.work = max(points(block.axes) * points(block.reduction) for block in self.kernel.blocks)
        self.rounded = self._rounded()
        self.shared = 0
        self.scratch = 0
        self.team = self.wanted or self._chosen_team()
        self.vectors = self._point_vectors()
        self.int_type = self._index_type()

    def _is_register(self, temp: Slot) -> bool:
        return not temp.type.rank

    # Choices

    def _chosen_team(self) -> Team:
        nbytes = sum(temp.type.bytes for temp in self.arrays)
        neighbours = self.parallel[-1].extent if self._is_coalesced() else 0
        return choose_team(self.points, self.work, neighbours, nbytes <= LOCAL_BYTES, SHARED_BYTES // max(nbytes, 1))

    def _is_coalesced(self) -> bool:
        """Whether neighbouring points of the innermost shared axis access one element or neighbours.

        True only where that holds in every block with loops.
        """
        if not self.parallel:
            return False
        axis = self.parallel[-1]
        return all(
            self.plain(load.slot, load.index)[1].coefficient(axis) in (0, 1)
            for block in self.kernel.blocks
            if points(block.axes) * points(block.reduction) > 1
            for value in block.values
            for load in value.loads
        )

    def _point_vectors(self) -> Vectors | None:
        """Vectors along the innermost shared axis, in a kernel without loops and steps."""
        if self.team.size > 1 or not self.kernel.shared or self.has_loops or self.arrays or not self._is_pointwise():
            return None
        most = max(self.points // BUSY_THREADS, 2) if self._is_costly() else MAX_VECTOR
        return self._vectors(self.kernel.blocks, self.kernel.shared[-1], most)

    def _is_costly(self) -> bool:
        """Whether a point takes a thread much longer than its accesses do."""
        values = (value for block in self.kernel.blocks for value in block.values)
        return any(isinstance(part, Apply) and part.function in COSTLY for value in values for part in value.walk())

    def _row_vectors(self, block: Block, axes: Sequence[Axis], threads: int) -> Vectors | None:
        """Vectors along the innermost of a block's axes that a team shares out.

        They divide that axis and feed the whole team.
        """
        extent = axes[-1].extent
        return self._vectors((block,), axes[-1], min(extent & -extent, points(axes) // threads))

    def _vectors(self, blocks: Sequence[Block], axis: Axis, most: int) -> Vectors | None:
        def from_alignment(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
            """Temporaries and storages are aligned to 16 bytes; a buffer may begin anywhere in its storage."""
            pointer, offset = self.plain(slot, index)
            return pointer, offset + (0 if slot in self.temps else self.slots.buffers[slot].offset)

        return vectors_along(axis, blocks, from_alignment, self._element, most)

    def _is_pointwise(self) -> bool:
        """Whether outputs that blocks read again are read only where they have just been stored."""
        stores = (store for block in self.kernel.blocks for store in block.stores)
        stored = {(store.slot, store.index) for store in stores if store.slot in self.slots.buffers}
        outputs = {slot for slot, _ in stored}
        loads = (load for block in self.kernel.blocks for value in block.values for load in value.loads)
        return all((load.slot, load.index) in stored for load in loads if load.slot in outputs)

    def _rounded(self) -> frozenset[str]:
        """Outputs that are shorter in memory and that some block reads elsewhere than they were just stored."""
        stored = {(store.slot, store.index) for block in self.kernel.blocks if not block.axes for store in block.stores}
        loads = [load for block in self.kernel.blocks for value in block.values for load in value.loads]
        elsewhere = {load.slot for load in loads if (load.slot, load.index) not in stored}
        return frozenset(slot for slot in elsewhere & self.elements.keys() if self._is_short(slot))

    def _is_short(self, slot: str) -> bool:
        return self._element(slot) is not self._slot_dtype(slot)

    def _index_type(self) -> str:
        """The type of every offset, position and number of points and threads."""
        spans = (buffer.span for buffer in self.slots.buffers.values())
        works = (points(block.axes) * points(block.reduction) for block in self.kernel.blocks)
        ordered = (self.kernel.sequential, *(block.sequential for block in self.kernel.blocks))
        steps = (axis.extent for axes in ordered for axis in axes)
        return index_type(positions(self.kernel, self.plain), (self.points * self.team.size, *spans, *works, *steps))

    # The functions

    def lower(self) -> CudaLowered:
        """The kernel's text, with what its launch needs."""
        block, rows = self.team.block(self.points), self.points
        teams = block // self.team.size
        if self.vectors and rows:
            rows = rows // self.vectors.axis.extent * self.vectors.per_row
        grid = -(-rows // teams)
        if not any(slot.type.elements for slot in self.kernel.outputs):
            grid = 0
        self._body(rows, teams, max(grid, 1))
        return framed(
            self.name,
            self.workload,
            [*self._declared(teams), *self.writer.lines],
            Frame(grid=grid, block=block, shared_bytes=self.shared, scratch_bytes=self.scratch, index=self.int_type),
        )

    def _declared(self, teams: int) -> Iterator[str]:
        """The thread's place in its team and the team's point, where the body asks for them."""
        body = "\n".join(self.writer.lines)
        if self.team.size > 1 and _mentions(body, "lane"):
            yield f"const int lane = {self.team.lane};"
        if _mentions(body, "point"):
            place = f"tile * {teams} + (int){self.team.number}" if self.team.number else "tile"
            yield f"const {self.int_type} point = {place};"

    def _body(self, rows: int, teams: int, grid: int) -> None:
        """What a team does at its point."""
        with ExitStack() as stack:
            if rows % teams:
                stack.enter_context(self.writer.block(f"if (point < {rows})"))
            if self.points and self.vectors:
                self._pointwise(self.vectors)
            elif self.points:
                self._decode(self.parallel)
                self._declare_arrays(teams, grid)
                self._blocks()

    def _decode(self, axes: Sequence[Axis]) -> None:
        """Declares the axes of the team's point, which is not negative: dividing it unsigned takes fewer instructions.

        Not where loops follow: the compiler, which then knows signs, would split their addresses into sums of 64 bits.
        """
        is_signed = self.has_loops or len(axes) == 1
        decode(self.writer, axes, "point" if is_signed else f"({UNSIGNED[self.int_type]})point", self.int_type)

    def _declare_arrays(self, teams: int, grid: int) -> None:
        """Temporaries over blocks' own axes."""
        for temp in self.arrays:
            ctype, size = CUDA_TYPES[temp.type.dtype], -(-temp.type.bytes // 16) * 16
            if self.team.size == 1 and size <= LOCAL_BYTES:
                self.writer.line(f"{ctype} {temp.name}[{max(temp.type.elements, 1)}];")
                continue
            which = f" + {self.team.number} * {size}" if self.team.number else ""
            if self.team.size > 1 and self.shared + size * teams <= SHARED_BYTES:
                place = f"shared + {self.shared}{which}"
                self.shared += size * teams
            else:
                place = f"scratch + {self.scratch} + (uint64_t)point * {size}"
                self.scratch += size * teams * grid
            self.writer.line(f"{ctype} *const {temp.name} = ({ctype} *)({place});")

    def _emitter(self) -> CudaEmitter:
        return CudaEmitter(self.writer, self.plain, self.elements)

    # A kernel without loops: vectors

    def _pointwise(self, vectors: Vectors) -> None:
        """A vector of points where the row has as many left; else the points one by one."""
        axis = vectors.axis
        self._decode([*self.kernel.shared[:-1], vectors.row])
        self.writer.line(f"const {self.int_type} {axis} = {vectors.row} * {vectors.count};")
        if axis.extent % vectors.count == 0:
            self._whole_vectors(vectors, self._emitter(), self._serial)
            return
        with self.writer.block(f"if ({axis} + {vectors.count} <= {axis.extent})"):
            self._whole_vectors(vectors, self._emitter(), self._serial)
        with self.writer.block("else"), self.writer.block(f"for (int part = 0; {axis} + part < {axis.extent}; part++)"):
            self._serial(self._at(axis), {})

    def _whole_vectors(self, vectors: Vectors, outer: CudaEmitter, body: _Body) -> None:
        """Vectors loaded, `body` for each of their elements, vectors stored; the axis is that of the first element."""

        def address(place: Load | Place) -> tuple[str, str]:
            pointer, offset = self.plain(place.slot, place.index)
            kind = f"tw_vector<{CUDA_TYPES[self._element(place.slot)]}, {vectors.count}>"
            return kind, f"{pointer} + {outer.index(offset)}"

        loaded: dict[Load, str] = {}
        results: dict[Place, str] = {}
        for load, condition in vectors.loads.items():
            (kind, place), name = address(load), self.writer.name(load.slot)
            if condition is None:
                self.writer.line(f"const {kind} {name} = *(const {kind} *)({place});")
            else:
                self.writer.line(f"{kind} {name} = {{}};")
                self.writer.line(f"if ({outer.scalar(condition)}) {name} = *(const {kind} *)({place});")
            loaded[load] = name
        for store in vectors.stores:
            results[store] = self.writer.name(store.slot)
            self.writer.line(f"{address(store)[0]} {results[store]};")
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int part = 0; part < {vectors.count}; part++)"):
            emitter = self._at(vectors.axis)
            emitter.held = {**outer.held, **{load: self._part(load, name) for load, name in loaded.items()}}
            body(emitter, results)
        for store, name in results.items():
            kind, place = address(store)
            self.writer.line(f"*({kind} *)({place}) = {name};")

    def _part(self, load: Load, vector: str) -> str:
        """The C name of one element of a vector that was loaded."""
        part, element = f"{vector}.element[part]", self._element(load.slot)
        if element is load.dtype:
            return part
        name = self.writer.name(load.slot)
        self.writer.line(f"const {CUDA_TYPES[load.dtype]} {name} = {convert(part, element, load.dtype)};")
        return name

    def _put(self, result: str, place: Place, value: str) -> None:
        """Writes one element of a vector that is to be stored."""
        kept = convert(value, self._slot_dtype(place.slot), self._element(place.slot))
        self.writer.line(f"{result}.element[part] = {kept};")

    def _at(self, axis: Axis) -> CudaEmitter:
        """An emitter for the point that lies `part` further along an axis."""
        emitter = self._emitter()
        emitter.names[axis] = f"({axis} + part)"
        return emitter

    def _element(self, slot: str) -> DType:
        """The dtype of a slot's elements in memory."""
        return self.temps[slot].type.dtype if slot in self.temps else self.elements[slot]

    def _slot_dtype(self, slot: str) -> DType:
        """The dtype that kernels compute a slot's elements with."""
        return (self.temps[slot] if slot in self.temps else self.slots.buffers[slot]).type.dtype

    def _serial(self, emitter: CudaEmitter, results: Mapping[Place, str]) -> None:
        """All blocks of a kernel without loops at one point; results go to elements of vectors where they have one."""
        for block in self.kernel.blocks:
            for store, value in zip(block.stores, self._values(block, emitter), strict=True):
                place = Place(store.slot, store.index)
                dtype = self._slot_dtype(store.slot)
                held = self._hold(emitter, place, value, dtype)
                if place in results:
                    self._put(results[place], place, held)
                elif store.slot not in self.temps:
                    emitter.store(store.slot, store.index, held, dtype)

    def _values(self, block: Block, emitter: CudaEmitter) -> list[str]:
        """The values of a block without loops, in its slots' dtypes.

        A reduction over nothing combines one element with nothing.
        """
        if block.monoid:
            return self._reduced(block, emitter, lambda names: accumulate(block, names, emitter))
        kinds = [value.dtype for value in block.values]
        return self._stored_kinds(block, [emitter.scalar(value) for value in block.values], kinds)

    def _stored_kinds(self, block: Block, values: Sequence[str], kinds: Sequence[DType]) -> list[str]:
        return [
            convert(value, kind, self._slot_dtype(store.slot))
            for store, value, kind in zip(block.stores, values, kinds, strict=True)
        ]

    def _hold(self, emitter: CudaEmitter, place: Place, value: str, dtype: DType) -> str:
        """Names a value, which is what later loads of its place give; what nothing asks for needs no name."""
        if place.slot in self.temps and not any(place.slot in block.reads for block in self.kernel.blocks):
            return value
        name = self.writer.name(place.slot)
        if place.slot in self.rounded:
            value = convert(convert(value, dtype, self._element(place.slot)), self._element(place.slot), dtype)
        self.writer.line(f"const {CUDA_TYPES[dtype]} {name} = {value};")
        emitter.held[Load(place.slot, place.index, dtype)] = name
        return name

    # Blocks at a point, by a team

    def _blocks(self) -> None:
        """Block after block, a barrier where one needs what another thread does in an earlier one."""
        emitter = self._emitter()
        outputs = {slot.name for slot in self.kernel.outputs}
        read: set[str] = set()
        written: set[str] = set()
        for block in self.kernel.blocks:
            reads, writes = set(block.reads) - self.registers, set(block.writes) - self.registers
            overlaps = writes & outputs and read & self.inputs  # an output may lie where an input does
            if written & (reads | writes) or read & writes or overlaps:
                self._barrier()
                read, written = set(), set()
            self._block(block, emitter)
            emitter.forget(block.writes)
            if self.team.is_block and self._is_across(block):  # a barrier stands between its loads and its stores
                read, written = set(), writes
            else:
                read, written = read | reads, written | writes

    def _barrier(self) -> None:
        """What the threads of a team wrote before is seen by all of them after."""
        if self.team.barrier:
            self.writer.line(self.team.barrier)

    def _block(self, block: Block, emitter: CudaEmitter) -> None:
        if points(block.axes) == 0:
            return
        if not block.axes:
            self._at_the_point(block, emitter)
            return
        drop_held(emitter, block.writes)
        if self.team.size == 1:
            with self._nest(block.axes), emitter.scope():
                self._store(block, self._serially(block, emitter), emitter, {})
        elif block.monoid and self._reads_rows(block) and not self.team.columns:
            self._warp_per_element(block, emitter)
        else:

            def at_element(inner: CudaEmitter, results: Mapping[Place, str]) -> None:
                self._store(block, self._serially(block, inner), inner, results)

            if block.reduction:
                with self._dealt(block.axes, "lane", self.team.size), emitter.scope():
                    at_element(emitter, {})
            else:
                self._share_out(block, block.axes, "lane", self.team.size, emitter, at_element)

    def _is_across(self, block: Block) -> bool:
        """Whether the whole team carries out one reduction."""
        return bool(block.monoid) and not block.axes and self.team.size > 1 and points(block.reduction) > 1

    def _at_the_point(self, block: Block, emitter: CudaEmitter) -> None:
        """A block without axes of its own: all threads know its values, one stores them."""
        across = self._is_across(block)
        values = self._across(block, emitter, self.team.size) if across else self._serially(block, emitter)
        drop_held(emitter, block.writes)
        # An earlier step's values, or those that an output lies over: all threads have read them before one stores.
        over_input = not across and block.reads & self.inputs and block.writes & self.read & self.slots.buffers.keys()
        if over_input or block.reads & block.writes - self.registers:
            self._barrier()
        for store, value in zip(block.stores, values, strict=True):
            dtype = self._slot_dtype(store.slot)
            name = self._hold(emitter, Place(store.slot, store.index), value, dtype)
            if store.slot in self.registers:
                continue
            with ExitStack() as stack:
                if self.team.size > 1:
                    stack.enter_context(self.writer.block("if (lane == 0)"))
                    stack.enter_context(emitter.scope())
                emitter.store(store.slot, store.index, name, dtype)

    def _store(self, block: Block, values: Sequence[str], emitter: CudaEmitter, results: Mapping[Place, str]) -> None:
        """Values to where they belong, or to elements of the vectors that will be stored there."""
        for store, value in zip(block.stores, values, strict=True):
            place = Place(store.slot, store.index)
            if result := results.get(place):
                self._put(result, place, value)
            else:
                emitter.store(store.slot, store.index, value, self._slot_dtype(store.slot))

    def _reads_rows(self, block: Block) -> bool:
        """Whether a reduction runs along memory, far enough for a warp."""
        axis = block.reduction[-1] if block.reduction else None
        if axis is None or points(block.reduction) < WARP:
            return False
        steps = [self.plain(load.slot, load.index)[1].coefficient(axis) for load in block.values[0].loads]
        return 1 in steps

    def _warp_per_element(self, block: Block, emitter: CudaEmitter) -> None:
        """A reduction along memory for each point of a block's own axes: one by each warp."""
        warps = self.team.size // WARP
        first = f"lane / {WARP}" if warps > 1 else "0"
        with self._dealt(block.axes, first, warps), emitter.scope():
            values = self._across(block, emitter, WARP)
            with self.writer.block(f"if (lane % {WARP} == 0)"), emitter.scope():
                self._store(block, values, emitter, {})

    def _nest(self, axes: Sequence[Axis]) -> ExitStack:
        return nest(self.writer, axes, self.int_type)

    def _share_out(
        self, block: Block, axes: Sequence[Axis], first: str, threads: int, emitter: CudaEmitter, body: _Body
    ) -> None:
        """`body` at every point of some axes of a block, dealt out to threads, by vectors where they may be."""
        vectors = self._row_vectors(block, axes, threads)
        if vectors is None:
            with self._dealt_at_once(axes, first, threads, 1), emitter.scope():
                body(emitter, {})
            return
        with self._dealt_at_once([*axes[:-1], vectors.row], first, threads, vectors.count), emitter.scope():
            self.writer.line(f"const {self.int_type} {vectors.axis} = {vectors.row} * {vectors.count};")
            self._whole_vectors(vectors, emitter, body)

    def _dealt(self, axes: Sequence[Axis], first: str, threads: int) -> ExitStack:
        """A loop over the points of some axes, in row-major order: from `first` on every `threads`th."""
        stack = ExitStack()
        if len(axes) == 1:
            (axis,) = axes
            head = f"for ({self.int_type} {axis} = {first}; {axis} < {axis.extent}; {axis} += {threads})"
            stack.enter_context(self.writer.block(head))
            return stack
        number = self.writer.name("element")
        head = f"for ({self.int_type} {number} = {first}; {number} < {points(axes)}; {number} += {threads})"
        stack.enter_context(self.writer.block(head))
        decode(self.writer, axes, number, self.int_type)
        return stack

    def _dealt_at_once(self, axes: Sequence[Axis], first: str, threads: int, width: int) -> ExitStack:
        """The same for loops without loops inside, which take `width` elements at each point."""
        number = axes[0].name if len(axes) == 1 else self.writer.name("element")
        at_once = max(ELEMENTS_AT_ONCE // width, 2)
        stack = in_rounds(self.writer, number, points(axes), first, threads, at_once, self.int_type)
        if len(axes) > 1:
            decode(self.writer, axes, number, self.int_type)
        return stack

    # Reductions

    def _serially(self, block: Block, emitter: CudaEmitter) -> list[str]:
        """The values of a block at one point, computed by one thread."""
        if not block.monoid or not block.reduction:
            return self._values(block, emitter)

        def loops(names: Sequence[str]) -> None:
            with self._nest(block.reduction), emitter.scope():
                accumulate(block, names, emitter)

        return self._reduced(block, emitter, loops)

    def _across(self, block: Block, emitter: CudaEmitter, team: int) -> list[str]:
        """A reduction whose points the threads of a team share out; all of them know the result."""

        def loops(names: Sequence[str]) -> None:
            first = "lane" if team == self.team.size else f"lane % {WARP}"
            self._share_out(
                block, block.reduction, first, team, emitter, lambda inner, _: accumulate(block, names, inner)
            )
            columns = self.team.columns
            if columns:
                self.shared = combine_parts(self.writer, block, names, self.shared, team, "lane", columns)
                return
            combine_lanes(self.writer, block, names)
            if team > WARP:
                self.shared = combine_parts(self.writer, block, names, self.shared, team // WARP, f"lane / {WARP}")

        return self._reduced(block, emitter, loops)

    def _reduced(self, block: Block, emitter: CudaEmitter, loops: Callable[[Sequence[str]], None]) -> list[str]:
        kinds = kinds_of(block)
        names = [self.writer.name("acc") for _ in kinds]
        starts = identity(block, kinds)
        for name, kind, start in zip(names, kinds, starts, strict=True):
            self.writer.line(f"{CUDA_TYPES[kind]} {name} = {start};")
        loops(names)
        if block.monoid.startswith("arg"):
            self.writer.line(f"if ({names[1]} == {starts[1]}) {names[1]} = 0;")
        return self._stored_kinds(block, names, kinds)
