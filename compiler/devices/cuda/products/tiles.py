"""Block tiles of products on a GPU: their sizes, what all tiles of a product share, and which are worth a look.

A block tile is shared out among warps, threads or warpgroups. k comes in steps, through stages of shared memory, and is
split so that the tiles of batch-1 shapes fill the multiprocessors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from compiler.devices.cuda.products.operand import access_of, half_of
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, packing_of
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level

MOST_PROPOSALS = 60
MOST_OFFSET = 2**31
"""Elements that offsets of 32 bits reach."""

BlockTile = tuple[int, int, int, int]
"""m and n of a block tile, m and n of a warp's, thread's or warpgroup's part of it."""
WARP_TILES: tuple[BlockTile, ...] = (
    *((64, 8, 16, 8), (128, 8, 32, 8), (32, 16, 16, 8), (64, 16, 16, 16), (128, 16, 32, 16)),
    *((16, 32, 16, 8), (16, 64, 16, 16), (16, 128, 16, 32)),
    *((32, 32, 16, 16), (32, 64, 16, 32), (32, 64, 16, 16), (32, 128, 32, 32)),
    *((64, 32, 32, 16), (64, 64, 32, 32), (64, 64, 32, 16), (64, 128, 32, 64), (64, 128, 32, 32)),
    *((128, 32, 32, 32), (128, 64, 32, 32), (128, 64, 64, 32), (128, 128, 64, 64), (128, 128, 64, 32)),
)
THREAD_TILES: tuple[BlockTile, ...] = (
    *((16, 32, 2, 2), (16, 64, 2, 4), (32, 32, 4, 2), (32, 64, 4, 4), (64, 32, 4, 4)),
    *((64, 64, 8, 4), (128, 64, 8, 8), (64, 128, 8, 8), (128, 128, 8, 8)),
)
STEP_BYTES = (64, 128)
"""Of a row in one step of k."""
STAGES = (2, 3, 4, 6)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts k is split."""
MOST_WAVES_SPLIT = 2
"""Blocks for each multiprocessor beyond which there is no reason to split k."""
CLUSTERS = (2, 4, 8)
"""Those that the blocks of a cluster may take."""
MOST_SPLIT_SUMS = 32 * 32
"""Sums of a warp that multiplies by three products, each of which needs its operands twice."""
ELEMENT_CYCLES = 12
"""Instructions of a warp for 32 elements that are gathered one by one, each of which has one row and one k."""


@dataclass(frozen=True)
class Sizes:
    """Of a tile: blocks of `m` x `n` results, in parts of `part_m` x `part_n`, and steps of `depth` elements of k.

    stages   of shared memory, each with the operands of a step
    parts    into which k is split; the blocks of a `cluster` take them, or blocks that meet in memory
    """

    m: int
    n: int
    part_m: int
    part_n: int
    depth: int
    stages: int
    parts: int = 1
    cluster: bool = False

    @property
    def shares(self) -> int:
        """Parts of a block tile: warps, threads or warpgroups of a block."""
        return self.m // self.part_m * (self.n // self.part_n)

    @property
    def sums_bytes(self) -> int:
        """Of shared memory, where results take the place of stages."""
        return self.m * (self.n + 8) * 4

    def levels(self, inner: str, **more: int) -> tuple[Level, ...]:
        """As the levels of a tile: `inner` has a part, and a block has `more` extents."""
        sizes = {"m": self.m, "n": self.n, "k": self.depth, "stages": self.stages, **more}
        split = (Level("cluster" if self.cluster else "grid", (("k", self.parts),)),) if self.parts > 1 else ()
        return (*split, Level("block", tuple(sizes.items())), Level(inner, (("m", self.part_m), ("n", self.part_n))))


@dataclass(frozen=True)
class Reading:
    """What an operand's `Access` costs: `count` elements at once, each of them made of so many loads.

    `instructions` are those of an element that is gathered.
    """

    count: int
    loads: int = 0
    is_copy: bool = False
    instructions: float = ELEMENT_CYCLES


def whole(element: DType) -> Reading:
    """Copies of 16 bytes."""
    return Reading(max(16 // element.bytes, 1), is_copy=True)


@dataclass(frozen=True)
class Shape:
    """What all tiles of a workload share and all that they cost depends on.

    Extents, and how operands are read as `element`. B is None where it is packed. Many workloads of a program, and more
    of those that choices and joins would make of it, have one shape.
    """

    batches: int
    rows: int
    columns: int
    depth: int
    element: DType
    a: Reading
    b: Reading | None

    @property
    def is_held(self) -> bool:
        """Whether an operand goes through registers, which one step ahead fills: more stages are of no use."""
        return not self.a.is_copy or (self.b is not None and not self.b.is_copy)

    def blocks(self, sizes: Sizes) -> int:
        """Of the launch, those of all parts of k."""
        return self.batches * -(-self.rows // sizes.m) * -(-self.columns // sizes.n) * sizes.parts

    def steps(self, sizes: Sizes) -> int:
        """Of one block."""
        return ceil(ceil(self.depth / sizes.depth) / sizes.parts)


def products_of(view: Contraction, workload: Workload, precision: str) -> list[tuple[str, DType]]:
    """The ways to multiply that a job's precision allows, with the dtype of operands in shared memory."""
    half = half_of(view, workload, exact=precision in ("fp32", "tf32"))
    if half is not None:
        return [("mma", half)]
    if precision == "fp32":
        return [("mma_3xtf32", DType.F32), ("ffma", DType.F32)]
    return [("mma_tf32", DType.F32)]


def shape_of(view: Contraction, workload: Workload, element: DType) -> Shape:
    """The shape of a product whose operands lie in shared memory as `element`."""
    slots = Slots(workload)
    packed = packing_of(view, workload, 1) is not None
    a, b = (_reading(value, view.k[-1], slots, element) for value in (view.a, view.b))
    return Shape(view.batches, view.rows, view.columns, view.depth, element, a, None if packed else b)


def _reading(value: Expr, k: Axis, slots: Slots, element: DType) -> Reading:
    access = access_of(value, k, slots, element)
    return Reading(access.count, len(access.loads), access.is_copy)


def block_tiles(
    algorithm: str,
    more_warps: tuple[BlockTile, ...] = (),
    more_threads: tuple[BlockTile, ...] = (),
    columns: int | None = None,
) -> Iterator[BlockTile]:
    """Those of an algorithm, which may have more than products alone have a use for.

    With `columns` of the product those that would leave half of their columns empty are left out, but the narrowest.
    """
    for tile in (*THREAD_TILES, *more_threads) if algorithm == "ffma" else (*WARP_TILES, *more_warps):
        _, n, part_m, part_n = tile
        if algorithm == "mma_3xtf32" and part_m * part_n > MOST_SPLIT_SUMS:
            continue
        if columns is None or n <= 8 or n < 2 * columns:
            yield tile


def inner_of(algorithm: str) -> str:
    """The level that has a part of a block tile."""
    return "thread" if algorithm == "ffma" else "warp"


def depths_of(element: DType) -> tuple[int, ...]:
    """Elements of k in a step."""
    return tuple(size // element.bytes for size in STEP_BYTES)


def sizes_of(
    tiles: Iterable[BlockTile],
    depths: Iterable[int],
    shape: Shape,
    target: CudaTarget,
    stages: Iterable[int] = STAGES,
    lag: int = 0,
) -> Iterator[Sizes]:
    """Of tiles and steps: as many stages as there is something to fill with, and each way to split k.

    `lag` stages are still read while the next one begins.
    """
    for tile in tiles:
        for depth in depths:
            steps = -(-shape.depth // depth)
            most = 2 if shape.is_held else max(steps + 1, 2) + lag
            for count in stages:
                if count <= most:
                    for parts, cluster in splits(shape, *tile[:2], steps, target):
                        yield Sizes(*tile, depth, count, parts, cluster)


def splits(shape: Shape, m: int, n: int, steps: int, target: CudaTarget) -> Iterator[tuple[int, bool]]:
    """Into how many parts k may be split, and whether the blocks of a cluster take them."""
    clusters = CLUSTERS if target.has_clusters else ()
    tiles = shape.batches * -(-shape.rows // m) * -(-shape.columns // n)
    for parts in parts_of(steps):
        if parts > 1 and tiles * parts > MOST_WAVES_SPLIT * target.multiprocessors:
            continue
        for cluster in (False, True) if parts in clusters else (False,):
            yield parts, cluster


def parts_of(steps: int) -> list[int]:
    """Into how many parts k may be split so that each of them has steps."""
    return [parts for parts in PARTS if parts <= steps and -(-steps // -(-steps // parts)) == parts]
