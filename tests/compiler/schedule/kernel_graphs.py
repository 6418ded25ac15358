"""Random kernel graphs over small matrices, and what their tile tasks touch exactly.

An interpreter of plans runs tasks in any order that their waits allow.

Kernels are linear over integers, so that results are exact and depend on everything that is read. Each element of a
result reads

    sum     the same element of every operand; may write over one of them
    halo    the element and those above and below
    mix     its whole row
    flip    the element in the opposite row
    all     everything
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random

import numpy as np

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.plan import Plan, Task
from compiler.ir.plans.touched import Segment, Touched
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.problem import Placed
from tests.parse import parse_routine

ROWS = 6
PRIME = 2_147_483_647
KINDS = ("sum", "sum", "halo", "halo", "mix", "flip", "all")
SPLITS = (Tile("rows"), Tile("columns"))
SIZE = DType.F32.bytes

Point = tuple[int, ...]


def chain(*kinds: str, columns: int = 4) -> KernelGraph:
    """Kernels on matrices of so many columns, each of which reads the one before."""
    kind = TensorType(DType.F32, (ROWS, columns))
    calls = tuple(
        Call(parse_routine(f"routine {name} {name}(in x: {kind}; out y: {kind})"), (id,), (id + 1,))
        for id, name in enumerate(kinds)
    )
    return KernelGraph({id: Buffer.whole(id, kind) for id in range(len(kinds) + 1)}, calls, (0,), (len(kinds),))


def random_graph(random: Random, most: int = 12, narrow: int = 2) -> KernelGraph:
    """Calls on matrices of `narrow` columns or twice as many.

    Some pairs of results lie in one wider matrix, side by side or one above the other, which is read too.
    """
    buffers: dict[int, Buffer] = {}
    calls: list[Call] = []

    def whole(rows: int, columns: int) -> int:
        id = len(buffers)
        buffers[id] = Buffer.whole(id, TensorType(DType.F32, (rows, columns)))
        return id

    def write(out: int) -> None:
        rows, columns = buffers[out].type.dims
        alike = [id for id in known if buffers[id].type.dims == (rows, columns)]
        wide = [id for id in known if buffers[id].type.dims[0] == rows]
        kind = random.choice(KINDS) if wide else "all"
        pool = alike if kind in ("sum", "halo", "flip") else wide if kind == "mix" else known
        if not pool:
            kind, pool = "all", known
        recent = pool[-4:]
        read = tuple(dict.fromkeys(random.choice(recent) for _ in range(random.randint(1, 3))))
        slots = ", ".join(f"in x{at}: {buffers[id].type}" for at, id in enumerate(read))
        kernel = parse_routine(f"routine {kind} {kind}({slots}; out y: {buffers[out].type})")
        over = tuple(
            (0, at)
            for at, id in enumerate(read)
            if kind == "sum" and buffers[out].is_contiguous and buffers[id].strides == buffers[out].strides
        )
        calls.append(Call(kernel, read, (out,), over if random.random() < 0.7 else ()))

    inputs = (whole(ROWS, narrow), whole(ROWS, 2 * narrow))
    known = [*inputs]
    while len(calls) < most:
        columns = random.choice([narrow, 2 * narrow])
        if random.random() < 0.3:
            side_by_side = random.random() < 0.5
            joined = whole(ROWS, 2 * narrow) if side_by_side else whole(2 * ROWS, columns)
            width = narrow if side_by_side else columns
            for part in range(2):
                id = len(buffers)
                offset = part * (narrow if side_by_side else ROWS * columns)
                kind = TensorType(DType.F32, (ROWS, width))
                buffers[id] = Buffer(id, kind, Layout.plain(2), joined, buffers[joined].strides, offset)
                write(id)
                known.append(id)
            known.append(joined)
        else:
            out = whole(ROWS, columns)
            write(out)
            known.append(out)
    results = [id for id in known if buffers[id].storage == id and id not in inputs]
    outputs = tuple(dict.fromkeys([results[-1], random.choice(results)]))
    graph = KernelGraph(buffers, tuple(calls), inputs, outputs)
    graph.verify()
    return graph


def points(tile: Tile, tiles: int, first: int, last: int, dims: Point) -> Iterator[Point]:
    """The elements of a result that tile tasks [first, last) of `tiles` make."""
    rows, columns = map(range, dims)
    if tile == SPLITS[0]:
        rows = range(dims[0] * first // tiles, dims[0] * last // tiles)
    else:
        columns = range(dims[1] * first // tiles, dims[1] * last // tiles)
    return product(rows, columns)


def read_at(kind: str, point: Point, dims: Point) -> Iterator[Point]:
    """The elements of an operand that one element of a result reads."""
    row, column = point
    if kind == "sum":
        yield point
    elif kind == "halo":
        yield from ((near, column) for near in (row - 1, row, row + 1) if 0 <= near < dims[0])
    elif kind == "mix":
        yield from ((row, other) for other in range(dims[1]))
    elif kind == "flip":
        yield (dims[0] - 1 - row, column)
    else:
        yield from product(range(dims[0]), range(dims[1]))


def tile_tasks(tile: Tile, dims: Point) -> int:
    """As many as there are rows or columns."""
    return dims[0] if tile == SPLITS[0] else dims[1]


def lies_at(buffer: Buffer, point: Point) -> int:
    """In elements, from the beginning of its storage."""
    return buffer.offset + sum(at * stride for at, stride in zip(point, buffer.strides, strict=True))


@dataclass(frozen=True)
class ExactRegions:
    """`Regions` of such graphs: for each operand the least segment that holds what is touched."""

    kernels: KernelGraph

    def touched(self, call: int, tile: Tile, first: int, last: int) -> Touched:
        """By listing every element."""
        operands, buffers = self.kernels.calls[call], self.kernels.buffers
        out = buffers[operands.outputs[0]]
        made = [*points(tile, tile_tasks(tile, out.type.dims), first, last, out.type.dims)]
        reads = (
            {q for point in made for q in read_at(operands.kernel.family, point, buffers[id].type.dims)}
            for id in operands.inputs
        )
        return Touched(
            tuple(_hull(buffers[id], read) for id, read in zip(operands.inputs, reads, strict=True)),
            (_hull(out, made),),
        )


def _hull(buffer: Buffer, touched: Sequence[Point] | set[Point]) -> Segment:
    at = [lies_at(buffer, point) for point in touched]
    return Segment(SIZE * min(at), SIZE * (max(at) + 1))


def random_order(random: Random, kernels: KernelGraph, lanes: int, tiles: Sequence[int]) -> list[Placed]:
    """Calls in any order that respects what they read, each on any lanes."""
    before, left, order = predecessors(kernels), [*range(len(kernels.calls))], list[Placed]()
    while left:
        done = {one.call for one in order}
        call = random.choice([call for call in left if done.issuperset(before[call])])
        left.remove(call)
        count = random.choice([1, min(lanes, tiles[call])])
        order.append(Placed(call, tuple(sorted(random.sample(range(lanes), count))), 0.0, 0.0))
    return order


class Memory:
    """What the storages of a plan hold, one integer for each element; what nobody wrote is garbage."""

    def __init__(self, kernels: KernelGraph, plan: Plan, seed: int) -> None:
        garbage = np.random.default_rng(seed)
        given = np.random.default_rng(0)
        self.kernels, self.plan = kernels, plan
        self.arena = garbage.integers(PRIME, size=plan.arena_bytes // SIZE)
        self.apart = {
            storage: (given if storage in kernels.inputs else garbage).integers(PRIME, size=place.bytes // SIZE)
            for storage, place in sorted(plan.places.items())
            if place.space != "arena"
        }

    def cell(self, id: int, point: Point) -> tuple[np.ndarray, int]:
        """Where an element of a buffer lies."""
        buffer = self.kernels.buffers[id]
        place = self.plan.places[buffer.storage]
        if place.space == "arena":
            return self.arena, place.at // SIZE + lies_at(buffer, point)
        return self.apart[buffer.storage], lies_at(buffer, point)

    def computed(self, task: Task) -> list[tuple[int, Point, int]]:
        """What a task would write now: buffer, element and value."""
        call, (tile, tiles) = self.kernels.calls[task.call], self.plan.tiles[task.call]
        out = call.outputs[0]
        return [
            (out, point, self._value(task.call, point))
            for point in points(tile, tiles, task.first, task.last, self.kernels.buffers[out].type.dims)
        ]

    def _value(self, call: int, point: Point) -> int:
        operands = self.kernels.calls[call]
        total = call + 1
        for at, id in enumerate(operands.inputs):
            for weight, cell in enumerate(_cells(operands.kernel.family, point, self.kernels.buffers[id].type.dims)):
                array, place = self.cell(id, cell)
                total = (total + (7 * at + 3 * weight + 2) * int(array[place])) % PRIME
        return total

    def store(self, written: list[tuple[int, Point, int]]) -> None:
        """Writes what was computed."""
        for id, point, value in written:
            array, place = self.cell(id, point)
            array[place] = value

    def results(self) -> dict[int, list[int]]:
        """The graph's outputs."""
        return {id: self.apart[id].tolist() for id in self.kernels.outputs}


@cache
def _cells(kind: str, point: Point, dims: Point) -> tuple[Point, ...]:
    return tuple(read_at(kind, point, dims))


def run(
    kernels: KernelGraph, plan: Plan, random: Random, over: Mapping[int, int] | None = None
) -> dict[int, list[int]]:
    """The results when tasks run in a random order that lanes and waits allow.

    Others run between a task's reading and its writing. Outputs in `over` lie in the memory of an input.

    Lanes are as fast as each other, or one after the other runs ahead as far as it may.
    """
    memory = Memory(kernels, plan, random.randrange(1 << 30))
    memory.apart |= {out: memory.apart[into] for out, into in (over or {}).items()}
    streams = [[task for task in plan.runs if task.lane == lane] for lane in range(plan.lanes)]
    ended, pending = [0] * plan.lanes, dict[int, list[tuple[int, Point, int]]]()
    eager = random.random() < 0.6
    ranks = random.sample(range(plan.lanes), plan.lanes)
    while any(ended[lane] < len(streams[lane]) for lane in range(plan.lanes)):
        able = [
            lane
            for lane in range(plan.lanes)
            if lane in pending
            or (
                ended[lane] < len(streams[lane])
                and all(ended[wait.lane] >= wait.count for wait in streams[lane][ended[lane]].waits)
            )
        ]
        lane = min(able, key=ranks.__getitem__) if eager and random.random() < 0.95 else random.choice(able)
        if lane in pending:
            memory.store(pending.pop(lane))
            ended[lane] += 1
        else:
            pending[lane] = memory.computed(streams[lane][ended[lane]])
        if random.random() < 0.02:
            ranks = random.sample(range(plan.lanes), plan.lanes)
    return memory.results()
