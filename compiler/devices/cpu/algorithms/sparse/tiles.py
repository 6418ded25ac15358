"""Tiles for products by sparse weights: how many positions, images and columns are summed together, and from where."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.devices.cpu.algorithms.sparse.plane import Plane
from compiler.devices.cpu.blocking import even_part, parts
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.zeros import CLASSES, GROUPS
from compiler.forms.sparse import SparseProduct, as_sparse_product
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

MOST_VECTORS = 16
MOST_CHUNKS = 4
"""Of a task, whose sums are in registers one after another."""
MOST_FILL = 0.6
"""Of all places that groups of columns keep; where they keep more the dense form is faster."""
MOST_TILES = 12
L1_PART, L2_PART = 0.75, 0.5
"""The parts of the caches that a segment's planes may fill."""
STAGE_NS, FINISH_NS = 0.9, 1.5
"""One vector transposed on its way in, and on its way out with the maps that follow."""
LOAD_STEPS, SPLIT_STEPS = 1.15, 2.0
"""Multiply-adds for which there is time while a vector is loaded: from one line, and from two."""
FAR = 1.6
"""How much longer a load from the second-level cache takes."""
STREAM_STEPS = 12
"""What a stream costs beside its elements, in multiply-adds."""


def sparse_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The cheapest by the model first; empty for a kernel whose weights are not sparse."""
    view = as_sparse_product(workload)
    if view is None or view.rows < target.vector_floats:
        return []
    options = [
        _proposal(plane, workload, target)
        for group in GROUPS
        if view.encoding.fill(group) <= MOST_FILL * CLASSES
        for plane in _planes(view, group, target, lanes)
    ]
    distinct = {option.tile: option for option in sorted(options, key=lambda option: -option.seconds)}
    return sorted(distinct.values(), key=lambda option: option.seconds)[:MOST_TILES]


def _most_vectors(group: int, target: CpuTarget) -> int:
    """Of positions, whose sums, with the positions themselves and a weight, the registers hold."""
    free = target.vector_registers - 2
    return max(min(free // (group + (group > 1)), MOST_VECTORS), 1)


def _planes(view: SparseProduct, group: int, target: CpuTarget, lanes: int) -> Iterator[Plane]:
    width = target.vector_floats
    most = _most_vectors(group, target)
    batch = view.free[-1].extent if view.sweeps and view.free else 1
    for images in sorted({1, min(batch, width)} if batch * 2 > width else {1, min(batch, 2)}):
        for rows in _row_counts(view, images, most, width, lanes):
            one = Plane(view, rows, images, 1, 1, group, width)
            vectors = even_part(parts(one.outputs, width), most)
            for segment in _segments(Plane(view, rows, images, 1, vectors, group, width), target):
                plane = Plane(view, rows, images, segment, vectors, group, width)
                if plane.is_legal:
                    yield plane


def _row_counts(view: SparseProduct, images: int, most: int, width: int, lanes: int) -> list[int]:
    """Rows whose outputs fill half of the registers, all, or all a few times; two and four of many images.

    However long these are: what windows of several rows share is staged once.
    """
    whole = view.sweeps[0].output.extent if view.sweeps else view.rows
    row = Plane(view, 2, images, 1, 1, 1, width).outputs - Plane(view, 1, images, 1, 1, 1, width).outputs
    sizes = (most // 2, *(chunks * most for chunks in range(1, MOST_CHUNKS + 1)))
    found = {min(max(vectors * width // row, 1), whole) for vectors in sizes}
    found |= {even_part(whole, rows) for rows in found} if view.sweeps else set()
    found |= {min(2, whole), min(4, whole)} if images > 1 else set()
    if lanes > 1:
        found |= {max(parts(whole, lanes), 1)}
    return sorted(found)


def _segments(plane: Plane, target: CpuTarget) -> list[int]:
    """Channels whose planes stay in the first-level cache, or in the second."""
    depth, width = plane.view.depth.extent, target.vector_floats
    fitting = {int(share) // (4 * plane.channel) for share in (L1_PART * target.l1_bytes, L2_PART * target.l2_bytes)}
    return sorted({min(depth, max(fit // width * width, width)) for fit in fitting})


def _proposal(plane: Plane, workload: Workload, target: CpuTarget) -> Proposal:
    levels = (
        Level("block", (("m", plane.rows), ("b", plane.images), ("k", plane.segment))),
        Level("register", (("m", plane.vectors * plane.lanes), ("n", plane.group))),
    )
    tile = Tile("sparse", levels, in_registers(plane.view.kernel))
    blocks = plane.tasks if plane.down and not plane.view.free else 1
    return Proposal(tile, _seconds(plane, workload, target), row_blocks=blocks)


def _seconds(plane: Plane, workload: Workload, target: CpuTarget) -> float:
    """Transposing what is staged, the elements that are kept, their arrival, and transposing the sums."""
    view, width, rates = plane.view, plane.lanes, target.rates
    _, streams = plane.streams(workload)
    depth = view.depth.extent
    staged = len(plane.phases) * parts(plane.staged, width) * parts(depth, width) * width * STAGE_NS
    load = LOAD_STEPS if plane.is_aligned else SPLIT_STEPS
    far = FAR if 4 * plane.floats > target.l1_bytes else 1.0
    step = max(plane.group * plane.vectors, plane.vectors * load * far + plane.group + 1)
    sums = streams.segments * streams.groups * (2 * plane.group * plane.vectors + STREAM_STEPS)
    products = plane.chunks * (streams.kept * step + sums) / rates.fma_per_ns
    finished = parts(plane.outputs, width) * parts(view.column.extent, width) * width * FINISH_NS
    arriving = streams.elements / rates.weights_per_ns + plane.tasks * plane.chunks * streams.elements / rates.l2_per_ns
    return 1e-9 * (CALL_NS + plane.tasks * (staged + products + finished) + arriving)
