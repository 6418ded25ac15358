"""The `loops` algorithm: any kernel as tiled, vectorised loops in C.

Shared axes become the outer loops, split into tile tasks; each block becomes a loop nest inside. One axis is
vectorised: a shared one when loads and stores are contiguous along it, else, block by block, an axis of its own or the
innermost of its reduction. Temporaries that live at one point are C variables, those over a block's own axes lie in the
lane's scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import prod

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode, nest
from compiler.codegen.reductions import (
    identity,
    kinds_of,
    reduction_order,
    step,
    temp_aware,
    widened,
    with_plain_axes,
)
from compiler.codegen.scalars import C_TYPES, convert
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.loops.guards import guards_of, ranges_of
from compiler.devices.cpu.algorithms.loops.transpose import transpose_of, transposed
from compiler.devices.cpu.algorithms.loops.vectors import HORIZONTAL, has_vectors, mark, type_of
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.strips import SUM_STRETCH, ranged_strips, strips
from compiler.devices.cpu.codegen.trimming import Span, Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import bound_of, within
from compiler.forms.cache_lines import whole_lines
from compiler.forms.key_bounds import KeyBound
from compiler.forms.normal_form import (
    Address,
    Slots,
    carried_temps,
    contract_temps,
    without_unit_axes,
)
from compiler.forms.updates import Update, updates_of
from compiler.ir.expr import Cast, Expr, Load
from compiler.ir.index import Axis, Index, flatten
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

MAX_TILES = 512
MIN_VECTOR_EXTENT = 4
FLAT_CHUNK = 4096
"""Elements of one tile task of a kernel that is a single loop."""

CHAINS = 4
"""Accumulators that a reduction along memory uses in turn: with one alone each addition would wait for the last."""


def loops(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """Any Kernel as C. The text stands alone after `tw_kernel.h`."""
    assert isinstance(workload.kernel, Kernel)
    slots = Slots(workload)
    kernel = with_plain_axes(without_unit_axes(contract_temps(widened(workload.kernel))), slots)
    if transpose := transpose_of(kernel, slots, target):
        return transposed(name, workload, kernel, slots, transpose, target)
    return _Loops(name, workload, kernel, slots, target)


@dataclass
class _Loops(Lowering):
    """One lowering: the kernel in normal form, and the text being written."""

    name: str
    workload: Workload
    kernel: Kernel
    slots: Slots
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.scratch = 0
        self.temps = {temp.name: temp for temp in self.kernel.temps}
        self.carried = carried_temps(self.kernel)
        self.trimming = Trimming(self.writer, self.kernel, self.slots, self.target.vector_floats)
        self.plain = temp_aware(self.kernel, self.slots)
        self.vector = None if self.kernel.sequential else self._shared_vector()
        reached = [one.bound for one in self.trimming.beyond if one.bound.place.axes <= {*self._outer}]
        self.blocks = tuple(within(block, reached) for block in self.kernel.blocks)
        """What is done at points that lie below all sizes that loops stop at."""

    # Choice of the vector axis

    def _shared_vector(self) -> Axis | None:
        """The shared axis along which most accesses are contiguous, when every block can be computed in vectors.

        None where more is along the blocks' own axes, if these fill a vector as well as it does.
        """
        if not self.kernel.shared or not all(
            has_vectors(block) and self._stores_vectors(block) for block in self.kernel.blocks
        ):
            return None
        best = max(self.kernel.shared, key=lambda axis: self._contiguity(self.kernel.blocks, axis))
        if best.extent < MIN_VECTOR_EXTENT or self._contiguity(self.kernel.blocks, best) <= 0:
            return None
        own = [self._block_vector(block) for block in self.kernel.blocks]
        filled = min(best.extent, self.target.vector_floats)
        inner = sum(
            self._contiguity((block,), axis)
            for block, axis in zip(self.kernel.blocks, own, strict=True)
            if axis and axis.extent >= filled
        )
        return best if self._contiguity(self.kernel.blocks, best) >= inner else None

    def _stores_vectors(self, block: Block) -> bool:
        """Whether results are stored as they are computed: a reduction may be cast to its slot's dtype."""
        kinds = [block.accumulator or value.dtype for value in block.values]
        return all(self._dtype(store.slot) is kind for store, kind in zip(block.stores, kinds, strict=True))

    def _dtype(self, slot: str) -> DType:
        return (self.temps[slot] if slot in self.temps else self.slots.buffers[slot]).type.dtype

    def _contiguity(self, blocks: Sequence[Block], axis: Axis) -> int:
        score = 0
        for block in blocks:
            weight = 4 if block.monoid else 1
            for value in block.values:
                for load in value.loads:
                    score += weight * self._step_score(self.plain(load.slot, load.index)[1], axis)
            for store in block.stores:
                score += 2 * self._step_score(self.plain(store.slot, store.index)[1], axis)
        return score

    def _step_score(self, offset: Index, axis: Axis) -> int:
        step = offset.coefficient(axis)
        return {0: 0, 1: 2}.get(step, -3) if step is not None else -4

    def _block_vector(self, block: Block) -> Axis | None:
        """The axis of a block's own (parallel, or its reduction) that is vectorised when no shared axis is."""
        if not has_vectors(block):
            return None
        candidates = [axis for axis in block.axes if axis not in block.sequential and self._stores_vectors(block)]
        if block.monoid in HORIZONTAL:
            candidates += block.reduction
        candidates = [axis for axis in candidates if axis.extent >= MIN_VECTOR_EXTENT]
        scored = [(self._contiguity((block,), axis), -position, axis) for position, axis in enumerate(candidates)]
        best = max(scored, default=None, key=lambda entry: entry[:2])
        return best[2] if best and best[0] > 0 else None

    # The function

    @property
    def grid(self) -> TaskGrid:
        is_flat = self.vector is not None and self.kernel.shared == (self.vector,)
        return TaskGrid(self.kernel, (Cut(self.kernel.shared, FLAT_CHUNK),) if is_flat else one_by_one(self._tiled))

    @property
    def _outer(self) -> list[Axis]:
        """The shared axes that are loops around vectors."""
        return [axis for axis in self.kernel.shared if axis != self.vector]

    @property
    def _tiled(self) -> list[Axis]:
        """Of these the ones that tile tasks count."""
        return [] if self.kernel.sequential else _tiled(self._outer)

    def lower(self) -> Lowered:
        chunked = self.vector is not None and len(self.kernel.shared) == 1
        outer, tiled = self._outer, self._tiled
        writer = self.writer
        with kernel_function(writer, self.name, self.workload):
            self._declare_temps()
            with self.trimming.tasks(self.grid):
                decode(writer, tiled, "tile")
                around = [Span.whole(self.vector)] if self.vector else []
                with self.trimming.loops([axis for axis in outer if axis not in tiled], tiled, around):
                    self._points(chunked)
        return Lowered(
            self.name, writer.text(), self.tasks, self.scratch, grid=self.grid, headers=frozenset(writer.headers)
        )

    def _is_register(self, temp: Slot) -> bool:
        return not temp.type.rank and temp.name not in self.carried

    def _declare_temps(self) -> None:
        for temp in self.kernel.temps:
            if not self._is_register(temp):
                ctype = C_TYPES[temp.type.dtype]
                self.writer.line(f"{ctype} *const {temp.name} = ({ctype} *)(scratch + {self.scratch});")
                lanes = self.target.vector_floats if self.vector else 1
                self.scratch += whole_lines(temp.type.bytes * lanes)

    def _points(self, chunked: bool) -> None:
        """The blocks at each point of the outer loops, over the vector axis if there is one."""
        if self.vector is None:
            self._blocks(None)
            return
        axis = self.vector
        if chunked:
            self.writer.line(f"const long first = tile * {FLAT_CHUNK};")
            ends = "end" if self.trimming.clips((axis,)) else "past"
            self.writer.line(f"const long {ends} = tw_least_of(first + {FLAT_CHUNK}, {axis.extent});")
            if ends != "past":
                self.writer.line(f"const long past = {self._clipped(Span((axis,), 'first', ends))};")
            self.writer.line(f"long {axis} = first;")
            tail = axis.extent % self.target.vector_floats > 0
            ranged_strips(self.writer, axis, "past", self._blocks, tail=tail)
            return
        past = self._clipped(Span.whole(axis)) if self.trimming.clips((axis,)) else ""
        with self._unless_there(self.blocks[0], self._emitter(None)) if self._tests_lines else nullcontext():
            self._strips(axis, self._blocks, past=past)

    def _clipped(self, span: Span) -> str:
        """Where whole vectors along the vector axis end that have an element below a size."""
        return self.trimming.clip(span, self.target.vector_floats, ())

    def _strips(self, axis: Axis, body: Callable[[Vector], None], first: int = 0, past: str = "") -> None:
        strips(self.writer, axis, self.target.vector_floats, body, first, past)

    def _blocks(self, vector: Vector | None) -> None:
        emitter = self._emitter(vector)
        blocks = list(self.blocks)
        while blocks:
            beside = [] if vector else self._beside(blocks[0], blocks[1:])
            self._block(blocks[0], emitter, beside)
            del blocks[: 1 + len(beside)]

    def _emitter(self, vector: Vector | None) -> Emitter:
        extents = {**self.slots.extents, **{temp.name: temp.type.dims for temp in self.kernel.temps}}
        return Emitter(self.writer, self._address(vector), vector, extents, self.slots.numerics)

    @contextmanager
    def _unless_there(self, block: Block, emitter: Emitter) -> Iterator[None]:
        """Around a block: where its result lies over an operand that it copies, only what it changes is written.

        What it changes must be the same for all that is done at the point, or vector of points, where `emitter` stands.
        """
        tests = []
        for update in filter(self._lie_alike, updates_of(block)):
            changes, moved = update.changes, f"(const void *){update.read} != (const void *){update.written}"
            if changes is None:
                tests.append(moved)
            elif not emitter.varies(changes) and not changes.axes & {*block.axes}:
                tests.append(f"{moved} || {emitter.scalar(changes)}")
        if not tests:
            yield
            return
        test = tests[0] if len(tests) == 1 else " && ".join(f"({one})" for one in tests)
        with self.writer.block(f"if ({test})"), emitter.scope():
            yield

    @cached_property
    def _tests_lines(self) -> bool:
        """Whether what the one block changes is the same for all vectors along a line, so that lines are left out."""
        changes = [update.changes for block in self.blocks for update in filter(self._lie_alike, updates_of(block))]
        if self.vector is None or not self._outer or len(self.blocks) != 1 or not changes:
            return False
        return not any(one is None or self.vector in one.axes for one in changes)

    def _lie_alike(self, update: Update) -> bool:
        """Whether the elements of both tensors are the same bytes where their first ones are."""
        slots = (update.read, update.written)
        if self.trimming.beyond or not all(slot in self.slots.buffers for slot in slots):
            return False
        return len({(self.slots.buffers[slot].dtype, self.slots.address(slot, update.index)[1]) for slot in slots}) == 1

    def _address(self, vector: Vector | None) -> Address:
        """Addresses of loads and stores.

        Where a shared axis is vectorised, a temporary over a block's axes holds a whole vector per element.
        """

        def address(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
            if slot not in self.temps:
                return self.slots.address(slot, index)
            flat = flatten(index, self.temps[slot].type.dims)
            if vector is None:
                return slot, flat
            return f"({slot} - {vector.axis})", flat * self.target.vector_floats + vector.axis

        return address

    # One block

    def _block(self, block: Block, emitter: Emitter, beside: Sequence[Block] = ()) -> None:
        with nullcontext() if self._tests_lines else self._unless_there(block, emitter):
            self._looped(block, emitter, beside)
        for one in (block, *beside):
            emitter.forget(one.writes)

    def _beside(self, block: Block, following: Sequence[Block]) -> list[Block]:
        """The blocks right behind one that reduce the same elements to other numbers: one pass over memory does all."""

        def is_alike(other: Block) -> bool:
            alike = (other.axes, other.reduction) == ((), block.reduction) and not other.reads & block.writes
            return alike and self._is_pass(other)

        return list(takewhile(is_alike, following)) if not block.axes and self._is_pass(block) else []

    def _is_pass(self, block: Block) -> bool:
        """Whether a block reduces vectors along memory, without leaving any out, to one number."""
        whole = not guards_of(block, lambda _: False)[0] and not _splits_sum(block, block.reduction)
        return whole and self._block_vector(block) in block.reduction

    def _looped(self, block: Block, emitter: Emitter, beside: Sequence[Block]) -> None:
        vector = None if emitter.vector else self._block_vector(block)
        loops = [axis for axis in block.axes if axis != vector]
        order = [*block.sequential, *(axis for axis in loops if axis not in block.sequential)]
        with nest(self.writer, order) as stack:
            if block.axes:
                stack.enter_context(emitter.scope())
            if vector in block.axes and vector is not None:
                self._strips(vector, lambda strip: self._body(block, self._along(emitter, strip), None))
            else:
                self._body(block, emitter, vector, beside)

    def _along(self, emitter: Emitter, strip: Vector) -> Emitter:
        """An emitter vectorised along a block's own axis; values held at this point are the same for all lanes."""
        inner = Emitter(self.writer, emitter.address, strip, emitter.extents, emitter.numerics)
        inner.names = dict(emitter.names)
        inner.fixed = {**emitter.fixed, **emitter.held}
        return inner

    def _body(self, block: Block, emitter: Emitter, along: Axis | None, beside: Sequence[Block] = ()) -> None:
        """The values of a block at one point (or one vector of points), stored or held for the blocks that follow.

        With them those of the blocks `beside` it.
        """
        blocks = (block, *beside)
        if block.monoid:
            found = self._reduce(blocks, emitter, along)
        else:
            found = [[emitter.value(value) for value in block.values]]
        for one, values in zip(blocks, found, strict=True):
            for store, value, expr in zip(one.stores, values, one.values, strict=True):
                dtype = self._dtype(store.slot)
                value = convert(value, one.accumulator or expr.dtype, dtype)
                if store.slot in self.temps and self._is_register(self.temps[store.slot]):
                    name = self.writer.name(f"held_{store.slot}")
                    self.writer.line(f"const {type_of(dtype, emitter.vector is not None)} {name} = {value};")
                    emitter.held[Load(store.slot, (), dtype)] = name
                else:
                    emitter.store(store.slot, store.index, value, dtype)

    # Reductions

    def _reduce(self, blocks: Sequence[Block], emitter: Emitter, along: Axis | None) -> list[list[str]]:
        """The accumulated values of each block: vectors when the emitter is vectorised, else scalars.

        Scalars are summed across lanes when `along` is given. Several blocks are taken in one pass (`_beside`).
        """
        block, wide = blocks[0], emitter.vector is not None or along is not None
        sums = [self._begun(one, self._chains(along), wide=wide) for one in blocks]
        names = sums[0][: len(block.values)]
        guards, values = guards_of(
            block,
            lambda part: emitter.varies(part) or (along in part.axes and not ranges_of((part,), block, self.kernel)),
        )
        order = reduction_order(block, guards, self.plain, along)
        pasts = self._pasts(block)
        guards = [guard for guard in guards if not self._ending(guard, block)]
        ranges = ranges_of(guards, block, self.kernel)
        firsts = self._ranges(ranges.values(), pasts, emitter)
        is_ranged = any(axis == along for axis, _ in ranges.values())
        guards = [guard for guard in guards if guard not in ranges]
        others, beside = tuple(sums[0][len(names) :]), tuple(zip(blocks[1:], sums[1:], strict=True))
        reduction = _Nest(block, values, along, _splits_sum(block, order), others, firsts, pasts, beside, is_ranged)
        self._nest(reduction, order, guards, names, emitter)
        return [self._ended(one, chains, along) for one, chains in zip(blocks, sums, strict=True)]

    def _begun(self, block: Block, chains: int, *, wide: bool) -> list[str]:
        """Declares the accumulators of a block: those of its values, and beside the first those of other chains."""
        starts = list(zip(kinds_of(block), identity(block, kinds_of(block)), strict=True))
        names: list[str] = []
        for kind, start in (*starts, *starts[:1] * (chains - 1)):
            names.append(self.writer.name("acc"))
            text = f"tw_splat{mark(kind)}({start})" if wide else start
            self.writer.line(f"{type_of(kind, wide)} {names[-1]} = {text};")
        return names

    def _ended(self, block: Block, chains: Sequence[str], along: Axis | None) -> list[str]:
        """What the accumulators of a block hold together."""
        kinds, names = kinds_of(block), list(chains[: len(block.values)])
        for other in chains[len(names) :]:
            self.writer.line(step(block, names, [other], wide=True))
        if block.monoid.startswith("arg"):
            unset = identity(block, kinds)[1]
            self.writer.line(f"if ({names[1]} == {unset}) {names[1]} = 0;")
        if along is None:
            return names
        total, across = self.writer.name("total"), f"{HORIZONTAL[block.monoid]}{mark(kinds[0])}"
        self.writer.line(f"const {C_TYPES[kinds[0]]} {total} = {across}({names[0]});")
        return [total]

    def _ending(self, guard: Expr, block: Block) -> tuple[Axis, Load] | None:
        """The reduction axis that a guard ends, and the size at which."""
        bound = bound_of(guard, frozenset(slot.name for slot in self.kernel.inputs))
        found = (axis for axis in block.reduction if bound and bound.place == Index.of(axis))
        return next(((axis, bound.size) for axis in found if bound), None)

    def _pasts(self, block: Block) -> dict[Axis, str]:
        """Declares where reduction axes end that stop at sizes: beyond there are only elements that change nothing."""
        guards, _ = guards_of(block, lambda _: False)
        pasts: dict[Axis, str] = {}
        for axis, load in filter(None, (self._ending(guard, block) for guard in guards)):
            past, before = self.writer.name(f"past_{axis}"), pasts.get(axis, axis.extent)
            size = self.trimming.size(load)
            self.writer.line(f"const long {past} = {size} < {before} ? (long){size} : {before};")
            pasts[axis] = past
        return pasts

    def _ranges(
        self, ranges: Iterable[tuple[Axis, KeyBound]], pasts: dict[Axis, str], emitter: Emitter
    ) -> dict[Axis, str]:
        """Declares where reduction axes begin, and adds to `pasts` where they end."""
        firsts: dict[Axis, str] = {}
        for axis, bound in ranges:
            name = self.writer.name(f"{'past' if bound.is_end else 'first'}_{axis}")
            low = "0" if bound.is_end else firsts.get(axis, "0")
            high = pasts.get(axis, str(axis.extent)) if bound.is_end else str(axis.extent)
            limit, more = emitter.scalar(bound.limit), bound.more
            inside = f"{limit} < {high} - {more} ? (long){limit} + {more} : {high}"
            self.writer.line(f"const long {name} = {limit} < {low} - {more} ? {low} : {inside};")
            (pasts if bound.is_end else firsts)[axis] = name
        return firsts

    def _nest(
        self, reduction: _Nest, order: Sequence[Axis], guards: Sequence[Expr], names: Sequence[str], emitter: Emitter
    ) -> None:
        """Reduction loops, each guard tested as soon as its axes are known."""
        inner_axes = set(order)
        ready = [guard for guard in guards if not (guard.axes & inner_axes)]
        waiting = [guard for guard in guards if guard not in ready]
        with ExitStack() as stack, emitter.scope():
            if ready:
                test = " && ".join(emitter.scalar(guard) for guard in ready)
                stack.enter_context(self.writer.block(f"if ({test})"))
            if not order:
                self._accumulate(reduction.block, reduction.values, names, emitter)
            elif order[0] == reduction.along:
                self._take_turns(reduction, order[0], names, emitter)
            elif reduction.splits and len(order) == 1:
                self._partial_sums(reduction, order[0], waiting, names, emitter)
            else:
                axis, past = order[0], reduction.past(order[0])
                begin = reduction.firsts.get(axis, "0")
                with self.writer.block(f"for (long {axis} = {begin}; {axis} < {past}; {axis}++)"), emitter.scope():
                    self._nest(reduction, order[1:], waiting, names, emitter)

    def _chains(self, along: Axis | None) -> int:
        return max(min(CHAINS, along.extent // self.target.vector_floats), 1) if along else 1

    def _take_turns(self, reduction: _Nest, axis: Axis, names: Sequence[str], emitter: Emitter) -> None:
        """A reduction along memory whose accumulators take whole vectors in turn; the remainder goes to the first."""
        lanes, chains = self.target.vector_floats, (names[0], *reduction.others)
        stride = lanes * len(chains)
        whole = axis.extent // stride * stride if reduction.others else 0

        def turns(strip: Vector) -> None:
            for turn, name in enumerate(chains):
                inner = self._along(emitter, strip)
                inner.names[axis] = f"({axis} + {turn * lanes})"
                self._take(reduction, (name,), turn, inner)

        def rest(strip: Vector) -> None:
            self._take(reduction, names, 0, self._along(emitter, strip))

        if reduction.is_ranged:
            with self.writer.block(""):
                self.writer.line(f"long {axis} = {reduction.firsts.get(axis, '0')};")
                if whole:
                    ranged_strips(self.writer, axis, reduction.past(axis), turns, step=str(stride), tail=False)
                ranged_strips(self.writer, axis, reduction.past(axis), rest)
            return
        if whole:
            ends = reduction.pasts.get(axis)
            test = f"{axis} < {whole}{f' && {axis} < {ends}' if ends else ''}"
            with self.writer.block(f"for (long {axis} = 0; {test}; {axis} += {stride})"):
                turns(Vector(axis))
        past = reduction.pasts.get(axis, "")
        self._strips(axis, rest, whole, past)

    def _take(self, reduction: _Nest, names: Sequence[str], turn: int, emitter: Emitter) -> None:
        """One vector more in the accumulators of a turn, of the block and of those beside it."""
        self._accumulate(reduction.block, reduction.values, names, emitter)
        for block, chains in reduction.beside:
            self._accumulate(block, block.values, (chains[turn],), emitter)

    def _partial_sums(
        self, reduction: _Nest, axis: Axis, guards: Sequence[Expr], names: Sequence[str], emitter: Emitter
    ) -> None:
        """The innermost loop of a long sum in stretches of SUM_STRETCH, each summed on its own before it is added.

        Rounding errors grow with the length of a stretch plus the number of stretches, instead of with their product.
        """
        kind = "vf" if emitter.vector else C_TYPES[reduction.block.accumulator or DType.F32]
        part, first, past = self.writer.name("part"), self.writer.name("first"), self.writer.name("past")
        begin, ends = reduction.firsts.get(axis, "0"), reduction.past(axis)
        with self.writer.block(f"for (long {first} = {begin}; {first} < {ends}; {first} += {SUM_STRETCH})"):
            self.writer.line(f"const long {past} = tw_least_of({first} + {SUM_STRETCH}, {ends});")
            self.writer.line(f"{kind} {part} = {'tw_splat(0)' if emitter.vector else '0'};")
            with self.writer.block(f"for (long {axis} = {first}; {axis} < {past}; {axis}++)"), emitter.scope():
                self._nest(reduction, (), guards, (part, *names[1:]), emitter)
            self.writer.line(f"{names[0]} += {part};")

    def _accumulate(self, block: Block, values: Sequence[Expr], names: Sequence[str], emitter: Emitter) -> None:
        """One element more in the accumulators, or one vector of them."""
        if len(values) > 1:
            self.writer.line(step(block, names, [emitter.scalar(value) for value in values]))
            return
        (expr,), (accumulator,) = values, kinds_of(block)
        if expr.dtype is not accumulator:
            expr = Cast(expr, accumulator)
        value, vector = emitter.value(expr), emitter.vector
        if vector and vector.count and vector.axis in block.reduction:
            padded, (neutral,) = self.writer.name("v"), identity(block, [accumulator])
            first = f"tw_first_n{mark(accumulator)}({value}, {vector.count}, tw_splat{mark(accumulator)}({neutral}))"
            self.writer.line(f"const {type_of(accumulator, True)} {padded} = {first};")
            value = padded
        self.writer.line(step(block, names[:1], [value], wide=vector is not None))


@dataclass(frozen=True)
class _Nest:
    """A reduction being written.

    values  those of its block without what guards skip
    along   the axis along which it is vectorised
    splits  whether its sum is split
    others  accumulators beside the first
    firsts  C variables for where axes begin, that do not from 0 on
    pasts   C variables for where axes end that stop at a size
    beside  blocks that are reduced in the same pass, each with its accumulators
    is_ranged  whether vectors along it begin and end where a range does
    """

    block: Block
    values: tuple[Expr, ...]
    along: Axis | None
    splits: bool
    others: tuple[str, ...]
    firsts: Mapping[Axis, str]
    pasts: Mapping[Axis, str]
    beside: tuple[tuple[Block, list[str]], ...] = ()
    is_ranged: bool = False

    def past(self, axis: Axis) -> str:
        """Where a reduction axis ends, in C."""
        return self.pasts.get(axis, str(axis.extent))


def _splits_sum(block: Block, order: Sequence[Axis]) -> bool:
    """Whether a sum is so long that adding element by element would lose digits."""
    points = prod(axis.extent for axis in order)
    return block.monoid == "sum" and (block.accumulator or DType.F32).is_float and points > 2 * SUM_STRETCH


def _tiled(outer: Sequence[Axis]) -> list[Axis]:
    """The outermost axes whose points are tile tasks: as many as stay within MAX_TILES, at least one."""
    tiled: list[Axis] = []
    tiles = 1
    for axis in outer:
        if tiled and tiles * axis.extent > MAX_TILES:
            break
        tiled.append(axis)
        tiles *= axis.extent
    return tiled
