"""The plane in which the positions of a task lie side by side, so that neighbours fill a vector.

Of a convolution a task has some rows of some images. Each input channel is one plane for each phase of the strides, in
the order row, column, image. Rows are as far apart as the windows of one look, so that every tap is at one distance
from a position, whichever position that is; what lies between the rows' ends is computed and thrown away. Of a plain
product a task has some rows of the matrix, and a tap is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.forms.cache_lines import LINE
from compiler.forms.contraction import is_constant
from compiler.forms.sparse import PLACES, SparseProduct, Streams
from compiler.forms.windowed import Sweep
from compiler.ir.index import Axis, flatten
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Plane:
    """Positions of a task and the channels that are staged at a time.

    rows     of outputs along the outer sweep; of the matrix, where nothing is swept
    images   points of the innermost free axis, which lie side by side at each position
    segment  channels staged at a time
    vectors  of positions whose sums are in registers together, of `lanes` floats each
    group    columns whose sums are
    """

    view: SparseProduct
    rows: int
    images: int
    segment: int
    vectors: int
    group: int
    lanes: int

    @staticmethod
    def of(view: SparseProduct, tile: Tile, lanes: int) -> Plane:
        """The plane that a tile asks for, on vectors of so many lanes."""
        return Plane(
            view,
            tile.extent("block", "m"),
            tile.extent("block", "b", 1),
            tile.extent("block", "k"),
            tile.extent("register", "m") // lanes,
            tile.extent("register", "n"),
            lanes,
        )

    @property
    def is_swept(self) -> bool:
        """Whether positions are those of a window, and not rows of a matrix."""
        return bool(self.view.sweeps)

    @property
    def down(self) -> Sweep | None:
        """The outer sweep."""
        return self.view.sweeps[0] if self.is_swept else None

    @property
    def across(self) -> Sweep | None:
        """The inner one of two sweeps."""
        return self.view.sweeps[1] if len(self.view.sweeps) > 1 else None

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Free axes of which a task has one point."""
        return self.view.free[:-1] if self.is_swept else ()

    @property
    def batch(self) -> Axis | None:
        """The free axis of which a task has `images` points."""
        return self.view.free[-1] if self.is_swept and self.view.free else None

    @property
    def columns(self) -> int:
        """Outputs of a row."""
        return self.across.output.extent if self.across else 1

    @property
    def pitch(self) -> int:
        """Positions from one row to the next."""
        return self.columns + _reach(self.across)

    @property
    def phases(self) -> list[tuple[int, int]]:
        """Of the rows and the columns: the planes of a channel, in their order."""
        return [(down, over) for down in _phases(self.down) for over in _phases(self.across)]

    @property
    def outputs(self) -> int:
        """Positions from the first output of a task to its last."""
        if not self.is_swept:
            return self.rows
        return ((self.rows - 1) * self.pitch + self.columns) * self.images

    @property
    def staged(self) -> int:
        """Positions that are staged."""
        if not self.is_swept:
            return self.rows
        return (self.rows + _reach(self.down)) * self.pitch * self.images

    @property
    def pointed(self) -> int:
        """Positions that are staged, in whole vectors."""
        return -(-self.staged // self.lanes) * self.lanes

    @property
    def chunks(self) -> int:
        """Parts of the outputs whose sums are in registers one after another."""
        return -(-self.outputs // (self.vectors * self.lanes))

    @property
    def summed(self) -> int:
        """Positions of all chunks."""
        return self.chunks * self.vectors * self.lanes

    @property
    def size(self) -> int:
        """Floats of a plane: an odd number of lines, so that planes do not share the sets of a cache."""
        farthest = (_reach(self.down) * self.pitch + _reach(self.across)) * self.images
        return _apart(max(self.pointed, self.summed + farthest))

    @property
    def channel(self) -> int:
        """Floats of all planes of a channel."""
        return len(self.phases) * self.size

    @property
    def floats(self) -> int:
        """Of scratch for the planes of a segment."""
        return -(-self.segment // self.lanes) * self.lanes * self.channel

    @property
    def sums_row(self) -> int:
        """Floats from the sums of one column to those of the next."""
        return _apart(self.summed)

    @property
    def is_legal(self) -> bool:
        """Whether the distance of every element from its segment's first fits its field."""
        return self.segment * self.channel <= PLACES

    @cached_property
    def grid(self) -> TaskGrid:
        """How tasks cut the kernel; each has all columns."""
        view = self.view
        if self.down is None:
            return TaskGrid(view.kernel, (Cut(view.free, self.rows),))
        batch = (Cut((self.batch,), self.images),) if self.batch else ()
        return TaskGrid(view.kernel, (*one_by_one(self.outer), *batch, Cut((self.down.output,), self.rows)))

    @property
    def is_aligned(self) -> bool:
        """Whether every tap reads whole lines."""
        apart = [shift for shift in (self._shifts(self.down, self.pitch), self._shifts(self.across, 1)) if shift]
        return all(shift * self.images % LINE == 0 for shifts in apart for shift in shifts)

    def _shifts(self, sweep: Sweep | None, step: int) -> list[int]:
        return [shift * step for _, shift in _taps(sweep)]

    def streams(self, workload: Workload) -> tuple[int, Streams]:
        """The weights as this plane reads them, with their input position."""
        view = self.view
        position = [slot.name for slot in workload.kernel.inputs].index(view.weights.slot)
        assert is_constant(workload, view.weights.slot)
        flat = flatten(view.weights.index, workload.kernel.inputs[position].type.dims)

        def stepped(axis: Axis) -> int:
            return flat.coefficient(axis) or 0

        across, planes = len(_phases(self.across)), self.size
        taps = []
        for sweep, phase, step in ((self.down, across * planes, self.pitch), (self.across, planes, 1)):
            if sweep is not None:
                distances = [
                    _phases(sweep).index(at) * phase + shift * step * self.images for at, shift in _taps(sweep)
                ]
                taps.append((stepped(sweep.tap), tuple(distances)))
        return position, Streams(
            (view.column.extent, stepped(view.column)),
            (view.depth.extent, stepped(view.depth)),
            tuple(taps),
            self.channel,
            self.group,
            self.segment,
            view.encoding.fill(self.group),
        )

    @property
    def tasks(self) -> int:
        """Tasks of the whole grid."""
        return prod(level.tasks for level in self.grid.levels)


def _taps(sweep: Sweep | None) -> list[tuple[int, int]]:
    """Phase of each tap, and how many outputs further it reads."""
    if sweep is None:
        return []
    places = (tap * sweep.dilation for tap in range(sweep.tap.extent))
    return [(place % sweep.stride, place // sweep.stride) for place in places]


def _phases(sweep: Sweep | None) -> list[int]:
    """Those that taps have."""
    return sorted({phase for phase, _ in _taps(sweep)}) or [0]


def _reach(sweep: Sweep | None) -> int:
    """Positions beyond an output that its taps look at."""
    return max((shift for _, shift in _taps(sweep)), default=0)


def _apart(floats: int) -> int:
    """Whole cache lines, an odd number of them."""
    lines = -(-floats // LINE)
    return LINE * (lines + (lines % 2 == 0))
