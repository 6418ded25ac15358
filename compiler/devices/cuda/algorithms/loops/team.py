"""Teams: the threads that compute one point of a kernel's shared axes together.

thread  Neighbouring threads take neighbouring points, so that accesses along the innermost shared axis are coalesced.
warp    The lanes share out the points of a block's own axes, or of its reduction, which shuffles then combine.
block   The same with all threads; warps combine through shared memory.
column  A block takes points that lie side by side, a team each: the threads with the same place in each row of the
        block. So what is strided along a reduction is still read by neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
THREADS = 128
"""Threads of a block whose teams are single threads or warps."""

TEAMS = (1, WARP, 128, 256, 512)
"""Sizes of a team that is no column; beyond WARP it is a whole block."""

COLUMNS = (32, 16, 8)
"""Points side by side in a block whose teams are columns."""
COLUMN_THREADS = (64, 128, 256, 512)
"""Threads of such a block."""
COLUMN_WORK, TEAM_WORK = 8, 8
"""Elements of a thread from which a larger team pays."""

SERIAL_WORK = 16
"""Elements that one thread takes in whatever order they lie."""

ENOUGH_POINTS, MANY_POINTS = 1024, 32768
"""Points from which a thread each keeps a device busier than a team each would, and than a column each would."""
ENOUGH_BLOCKS = 128
"""That keep a device busy."""


@dataclass(frozen=True)
class Team:
    """`size` threads; where `columns` is not 0, every `columns`th of a block."""

    size: int
    columns: int = 0

    def __post_init__(self) -> None:
        assert self.columns in COLUMNS if self.columns else self.size in TEAMS, self

    @property
    def is_warp(self) -> bool:
        """Whether it is all threads of a warp."""
        return self.size == WARP and not self.columns

    @property
    def is_block(self) -> bool:
        """Whether it takes a barrier of the block to hand values from one of its threads to another."""
        return self.columns > 0 or self.size > WARP

    def block(self, points: int) -> int:
        """Threads of a block, for so many points."""
        if self.is_block:
            return self.size * max(self.columns, 1)
        return min(THREADS, -(-max(points * self.size, 1) // WARP) * WARP)

    @property
    def lane(self) -> str:
        """A thread's number in its team, in C."""
        return (
            f"threadIdx.x / {self.columns}" if self.columns else "threadIdx.x % 32" if self.is_warp else "threadIdx.x"
        )

    @property
    def number(self) -> str:
        """A team's number in its block, in C; empty where it is the only one."""
        if self.columns:
            return f"threadIdx.x % {self.columns}"
        return f"threadIdx.x / {WARP}" if self.is_warp else "" if self.is_block else "threadIdx.x"

    @property
    def barrier(self) -> str:
        """What makes all of a team see what its threads wrote before; empty where there is one thread."""
        return "__syncthreads();" if self.is_block else "__syncwarp();" if self.is_warp else ""


def choose_team(points: int, work: int, neighbours: int, fits_registers: bool, most_columns: int) -> Team:
    """The team that suits a kernel.

    One thread where loops are short or many points lie side by side, a column where some do, else as many as the work
    of a point feeds. `work` is the number of elements of the largest block at a point, `neighbours` how many points lie
    side by side in what loops read, 0 where that runs along memory; `most_columns` is how many points' temporaries
    shared memory holds.
    """
    if work > SERIAL_WORK and points < MANY_POINTS and neighbours:
        widths = [width for width in COLUMNS if neighbours % width == 0 and width <= most_columns]
        columns = next((width for width in widths if points // width >= ENOUGH_BLOCKS), min(widths, default=0))
        if columns:
            enough = (threads for threads in COLUMN_THREADS if work * columns <= COLUMN_WORK * threads)
            return Team(next(enough, COLUMN_THREADS[-1]) // columns, columns)
    if fits_registers and (work <= SERIAL_WORK or (points >= ENOUGH_POINTS and neighbours)):
        return Team(1)
    return Team(next((size for size in TEAMS[1:] if work <= TEAM_WORK * size), TEAMS[-1]))
