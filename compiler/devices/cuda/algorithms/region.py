"""Regions: calls that run while a condition holds, or one of two lists of calls, between which the host decides.

The kernels of a body are those of its calls, on one stream, planned and verified like any others. A loop has two more:
`entry`, which puts everything where the first iteration finds it, and `turn`, which does the same for the next one
(`codegen.regions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from compiler.codegen.calls import function_name
from compiler.codegen.region_bodies import carried_in_place, packed, updating, uses_of
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm, Lower
from compiler.devices.cuda.codegen.last_block import last_block
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.regions import CudaBody, CudaRegion, Spot, Step
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES
from compiler.devices.cuda.codegen.workload import WIDEST_ACCESS, cuda_workload_of
from compiler.devices.cuda.model import seconds
from compiler.devices.cuda.target import CudaTarget
from compiler.errors import InternalError
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.kernel import Routine, Slot
from compiler.ir.machine import Workload
from compiler.ir.plans.plan import Plan, Task
from compiler.ir.region import NUMBER, Loop, Region
from compiler.ir.tensor import TensorType
from compiler.ir.tile import Tile
from compiler.schedule.memory.buffers import place_buffers
from compiler.tuning.proposal import Proposal

ALIGNMENT = 256
"""Bytes; of what lies in a region's scratch memory, as of any storage on a device."""
THREADS, BLOCK_BYTES, MOST_BLOCKS = 256, 16 << 10, 128
"""Of `entry` and `turn`: threads of a block, bytes that it copies, and how many there are at most."""
FLAG_BYTES = 16
"""Shared memory in which `turn` learns which block is the last one."""
ANY_KERNEL = (Tile("loops"), Tile("sequential"))
"""Tiles that carry out any kernel, and so also one of which a copy is left out."""
LegalTiles = Callable[[Workload, CudaTarget, int, str], list[Proposal]]


def region_algorithm(legal_tiles: LegalTiles, lower: Lower) -> CudaAlgorithm:
    """The algorithm `region`, for bodies whose calls are tiled and lowered by these."""

    def tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
        region = workload.kernel
        if not isinstance(region, Region):
            return []
        each = (
            sum(
                min(
                    option.seconds
                    for option in legal_tiles(cuda_workload_of(body, call, encoded=False), target, 1, precision)
                )
                for call in body.calls
            )
            for body in region.bodies
        )
        return [Proposal(Tile("region"), seconds(0.0, target) + region.times * max(each))]

    def lowered(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaRegion:
        assert isinstance(workload.kernel, Region)
        return _Lowering(name, workload, workload.kernel, target, legal_tiles, lower).lower()

    return CudaAlgorithm(("region",), tiles, lowered)


@dataclass
class _Lowering:
    """One region about to be lowered.

    Its scratch memory holds the flag that a body leaves, new values that are not written over the old ones, rows, and
    behind these the arena and the scratch memory of the body that needs most.
    """

    name: str
    workload: Workload
    region: Region
    target: CudaTarget
    legal: LegalTiles
    lower_call: Lower
    taken: int = 0
    known: dict[tuple[Workload, Tile], CudaLowered] = field(default_factory=dict)

    def lower(self) -> CudaRegion:
        """Raises InternalError where an operand is not plain, or does not begin its storage."""
        own = self.workload.inputs[: len(self.workload.inputs) - len(self.region.uses)]
        for buffer in (*own, *self.workload.outputs):
            if not buffer.is_contiguous or not buffer.layout.is_plain or buffer.offset:
                raise InternalError(f"region {self.name} needs plain buffers", fix="report this model: it is our fault")
        return self._loop(self.region.loop) if self.region.loop else self._choice()

    def _choice(self) -> CudaRegion:
        outputs = [self._result(at) for at in range(len(self.workload.outputs))]
        bodies = [
            self._body(number, [Spot(1 + at) for at in range(len(graph.inputs))], outputs)
            for number, graph in enumerate(self.region.bodies)
        ]
        return replace(self._whole(bodies), going=Spot(0))

    def _loop(self, loop: Loop) -> CudaRegion:
        over = carried_in_place(self.region.bodies[0], loop)
        columns = range(loop.carried, loop.carried + loop.columns)
        again = self._take(1) if loop.decides else None
        beside = {at: self._take(self._bytes(at)) for at in range(loop.carried) if over[at] is None}
        rows = {at: self._take(self._bytes(at) // loop.most) for at in columns}
        first, number = loop.first, self._result(loop.carried + loop.columns)
        inputs = [number, *(self._result(at) for at in range(loop.carried))]
        inputs += [Spot(first + loop.carried + at) for at in range(loop.outer)]
        outputs = [again] if again else []
        outputs += [beside.get(at, self._result(at)) for at in range(loop.carried)]
        outputs += rows.values()
        turn = self._turn(loop, beside, rows)
        whole = self._whole([self._body(0, inputs, outputs, over)])
        return replace(
            whole,
            counters=whole.counters + turn.kernel.counters,
            loop=loop,
            entry_step=self._entry(loop),
            turn_step=turn,
            trips=Spot(0) if loop.given[0] else None,
            going=Spot(int(loop.given[0])) if loop.given[1] else None,
            again=again,
        )

    def _result(self, at: int) -> Spot:
        return Spot(len(self.workload.inputs) + at)

    def _bytes(self, result: int) -> int:
        return self.workload.outputs[result].type.bytes

    def _take(self, size: int) -> Spot:
        """So many bytes of scratch memory, which nothing else has."""
        spot = Spot(len(self.workload.inputs) + len(self.workload.outputs), self.taken)
        self.taken += _aligned(size)
        return spot

    def _whole(self, bodies: Sequence[CudaBody]) -> CudaRegion:
        """Without what only a loop has. Bodies never run at the same time, and begin their memory at the same byte."""
        needed = (
            _aligned(body.plan.arena_bytes) + max((_aligned(one.scratch_bytes) for one in body.lowered), default=0)
            for body in bodies
        )
        return CudaRegion(
            self.name,
            "",
            grid=1,
            block=1,
            scratch_bytes=self.taken + max(needed),
            counters=sum(one.counters for body in bodies for one in body.lowered),
            packings={
                use.slot: packing
                for body in bodies
                for use, packing in packed(body.kernels, body.uses, [one.packings for one in body.lowered])
            },
            bodies=tuple(bodies),
        )

    def _body(
        self, number: int, inputs: Sequence[Spot], outputs: Sequence[Spot], over: Sequence[int | None] = ()
    ) -> CudaBody:
        """`over` has, of each carried value, the call that writes the new one over the old one."""
        graph = self.region.bodies[number]
        calls = range(len(graph.calls))
        tiles = self.region.tiles[number] if self.region.tiles else [self._best(graph, at) for at in calls]
        lowered = [self._kernel(graph, at, tile, over) for at, tile in enumerate(tiles)]
        plan = _plan(graph, tiles, lowered)
        scratch = len(self.workload.inputs) + len(self.workload.outputs)
        return CudaBody(
            graph,
            plan,
            tuple(lowered),
            tuple(inputs),
            tuple(outputs),
            uses_of(self.region, number),
            Spot(scratch, self.taken),
            Spot(scratch, self.taken + _aligned(plan.arena_bytes)),
        )

    def _kernel(self, graph: KernelGraph, at: int, tile: Tile, over: Sequence[int | None]) -> CudaLowered:
        workload = cuda_workload_of(graph, graph.calls[at], encoded=False)
        if self.region.loop and at in over and tile in ANY_KERNEL:
            shorter = updating(workload, graph, graph.calls[at], over.index(at), self.region.loop)
            if tile in [option.tile for option in self.legal(shorter, self.target, 1, "fp32")]:
                workload = shorter
        key = workload.nameless, tile
        if key not in self.known:
            name = f"{self.name}_{function_name(workload, len(self.known))}"
            self.known[key] = self.lower_call(name, workload, tile, self.target)
        return self.known[key]

    def _best(self, graph: KernelGraph, at: int) -> Tile:
        options = self.legal(cuda_workload_of(graph, graph.calls[at], encoded=False), self.target, 1, "fp32")
        return min(options, key=lambda option: option.seconds).tile

    def _entry(self, loop: Loop) -> Step:
        """First values to their place; columns, which may not be filled, become zero; nothing was done yet."""
        types = [buffer.type for buffer in self.workload.outputs]
        columns = range(loop.carried, loop.carried + loop.columns) if any(loop.given) or loop.decides else ()
        moves = [_Move(self._result(at), types[at], Spot(loop.first + at)) for at in range(loop.carried)]
        moves += [_Move(self._result(at), types[at]) for at in columns]
        return _step(f"{self.name}_entry", moves, self._result(loop.carried + loop.columns), counts=False)

    def _turn(self, loop: Loop, beside: Mapping[int, Spot], rows: Mapping[int, Spot]) -> Step:
        """New values to the place of the old ones, rows to their columns; one more iteration was done."""
        types = [buffer.type for buffer in self.workload.outputs]
        moves = [_Move(self._result(at), types[at], spot) for at, spot in beside.items()]
        moves += [
            _Move(self._result(at), TensorType(types[at].dtype, types[at].dims[1:]), spot, is_row=True)
            for at, spot in rows.items()
        ]
        return _step(f"{self.name}_turn", moves, self._result(loop.carried + loop.columns), counts=True)


def _plan(graph: KernelGraph, tiles: Sequence[Tile], lowered: Sequence[CudaLowered]) -> Plan:
    """The calls one after another on one stream. Raises VerifyError."""
    places, arena = place_buffers(graph)
    tasks = tuple(Task(call, 0, 0, kernel.grid) for call, kernel in enumerate(lowered) if kernel.grid)
    counts = tuple((tile, kernel.grid) for tile, kernel in zip(tiles, lowered, strict=True))
    plan = Plan(1, tasks, counts, places, arena, "sequential")
    plan.verify(graph)
    return plan


@dataclass(frozen=True)
class _Move:
    """A tensor copied from a `source`, or zero without one; to the row that has the iteration's number if `is_row`."""

    to: Spot
    type: TensorType
    source: Spot | None = None
    is_row: bool = False


def _step(name: str, moves: Sequence[_Move], number: Spot, *, counts: bool) -> Step:
    """A kernel whose threads share out what is moved.

    Of iterations there is one more, when all blocks have read how many there were; or, unless it `counts`, none.
    """
    moves = [move for move in moves if move.type.bytes]
    sources = [(move.source, move.type) for move in moves if move.source]
    results = [*((move.to, move.type) for move in moves), (number, NUMBER)]
    inputs, outputs = (
        tuple(Slot(f"t_{letter}{at}", type) for at, (_, type) in enumerate(own))
        for letter, own in (("x", sources), ("y", results))
    )
    counted = outputs[-1].name
    blocks = min(max(sum(move.type.bytes for move in moves) // BLOCK_BYTES, 1), MOST_BLOCKS)
    left = iter(inputs)
    writer = Writer()
    writer.line(f"const int64_t first = (int64_t)tile * {THREADS} + threadIdx.x;")
    if counts:
        writer.line(f"const int64_t number = *{counted};")
    for move, output in zip(moves, outputs, strict=False):
        is_wide = move.type.bytes % WIDEST_ACCESS == 0
        kind = "uint4" if is_wide else CUDA_TYPES[move.type.dtype]
        count = move.type.bytes // (WIDEST_ACCESS if is_wide else move.type.dtype.bytes)
        to = f"(({kind} *){output.name})[{f'number * {count} + ' if move.is_row else ''}at]"
        value = f"((const {kind} *){next(left).name})[at]" if move.source else f"{kind}{{}}"
        writer.line(f"for (int64_t at = first; at < {count}; at += {THREADS * blocks}) {to} = {value};")
    meets = counts and blocks > 1
    with last_block(writer, "0", blocks, "((int *)shared)") if meets else nullcontext():
        if counts and not meets:
            writer.line("__syncthreads();")
        writer.line(f"if ({'threadIdx.x' if counts else 'first'} == 0) *{counted} = {'number + 1' if counts else '0'};")
    buffers = [tuple(Buffer.whole(at, slot.type) for at, slot in enumerate(own)) for own in (inputs, outputs)]
    routine = Routine("While", name, inputs, outputs)
    workload = Workload(routine, buffers[0], buffers[1], (False,) * len(inputs))
    frame = Frame(blocks, THREADS, FLAG_BYTES * meets, counters=int(meets))
    spots = tuple(spot for spot, _ in (*sources, *results))
    return Step(framed(name, workload, writer.lines, frame), spots)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
