"""The legal tiles of contractions by dot products, and what they should take.

A register tile has as many accumulators as the vector file holds; its blocks fit the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.devices.cpu.blocking import even_part, most_rows, parts
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.products.row_cuts import busiest, sizes, with_row_cuts
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.contraction import Contraction
from compiler.forms.groups import LANE_BYTES
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

MAX_VECTORS = 4
TASKS_PER_LANE = 4
"""Into how many tasks per lane the rows may be cut."""
STAGE_BYTES_PER_NS = 16.0
"""Bytes of A's rows staged in one nanosecond."""
PACK_NS = 0.25
"""One element of B brought into a panel when the program runs."""
FINISH_NS = 1.5
"""One vector of results through the maps that follow."""


@dataclass(frozen=True)
class DotProduct:
    """A contraction as these tiles see it: k in steps of one group.

    steps_per_ns  vectors of products that one core adds in a nanosecond
    staged        whether rows of A are copied before they are multiplied
    packed        whether B is packed ahead of time
    finish_ns     nanoseconds that the maps take for a vector of results
    few_steps     up to so many steps of a sum two register tiles share the registers
    stage_per_ns  bytes of A that are staged in a nanosecond
    pack_ns       nanoseconds that one element of B takes to be brought into a panel, where it is not
    parts         registers that a vector of B is taken apart into, elements of A being restricted to the first of them
    """

    algorithm: str
    view: Contraction
    group: int
    steps_per_ns: float
    staged: bool
    packed: bool
    parts: int = 1
    finish_ns: float = FINISH_NS
    few_steps: int = 0
    stage_per_ns: float = STAGE_BYTES_PER_NS
    pack_ns: float = PACK_NS

    @property
    def steps(self) -> int:
        """Groups along k; the last one may be padded."""
        return -(-self.view.depth // self.group)

    def tiles(self, target: CpuTarget, lanes: int) -> list[Proposal]:
        """Tiles m x n of registers, cheapest by the model first."""
        proposals, cuts = [], []
        for rows, vectors in self.registers(target):
            panel = vectors * target.vector_floats
            proposals.append(self._proposal(rows, panel, target, lanes))
            if self.view.batches == 1 and -(-self.view.rows // rows) >= lanes:
                cut = self._proposal(rows, panel, target, lanes, lanes)
                tall, wide = (cut.tile.extent("block", axis) for axis in "mn")
                part = busiest(sizes(self.view.rows, tall), sizes(self.view.columns, wide), lanes)
                cuts.append((cut.seconds * part, cut))
        return with_row_cuts(proposals, cuts, lanes)

    def registers(self, target: CpuTarget) -> Iterator[tuple[int, int]]:
        """Rows and vectors of columns of the register tiles that are proposed."""
        least = self.parts if self.view.columns > target.vector_floats else 1
        for vectors in self.widths(least, target):
            yield even_part(self.view.rows, self.most_rows(vectors, self.steps, target)), vectors

    def most_rows(self, vectors: int, steps: int, target: CpuTarget) -> int:
        """Rows of a register tile: as many as registers have room for, or half as many where sums have few steps.

        While maps are applied to one tile the next one is summed, if there are registers for both.
        """
        most = most_rows(vectors, target, self.parts)
        return parts(most, 2) if steps <= self.few_steps else most

    def widths(self, least: int, target: CpuTarget) -> Iterator[int]:
        """Vectors of columns, from `least` on, as long as none would be beyond the last column."""
        yield least
        for vectors in range(least + 1, MAX_VECTORS + 1):
            if (vectors - 1) * target.vector_floats < self.view.columns:
                yield vectors

    def row_room(self, columns: int, target: CpuTarget) -> int:
        """Bytes that the rows of a block may take, which all panels of so many columns are multiplied with in turn."""
        return target.l2_bytes // 2

    def sums_ns(self, rows: int, vectors: int, target: CpuTarget) -> float:
        """Nanoseconds that the products of a register tile take."""
        loads = (rows + vectors) * LANE_BYTES * target.vector_floats / target.rates.l1_per_ns
        steps = self.steps * self.kept(vectors * target.vector_floats)
        return steps * max(rows * vectors / self.steps_per_ns, loads)

    def kept(self, panel: int) -> float:
        """The share of B's groups that panels of so many columns have."""
        return 1.0

    def _proposal(self, rows: int, panel: int, target: CpuTarget, lanes: int, row_blocks: int = 1) -> Proposal:
        """With so many blocks of rows at least."""
        row_tiles, panels = -(-self.view.rows // rows), -(-self.view.columns // panel)
        fit = max(self.row_room(panels * panel, target) // (self.steps * LANE_BYTES * rows), 1)
        fewest = -(-row_tiles // min(fit, row_tiles))
        row_parts = {-(-row_tiles // parts) for parts in range(fewest, max(fewest, TASKS_PER_LANE * lanes) + 1)}
        column_parts = [parts for parts in (1, lanes, 2 * lanes) if parts <= panels]
        heights = [tall for tall in sorted(row_parts, reverse=True) if -(-row_tiles // tall) >= row_blocks]
        splits = [(tall, -(-panels // parts)) for tall in heights for parts in column_parts]
        tall, wide = min(splits, key=lambda split: self._nanoseconds(split, rows, panel, target, lanes))
        levels = (
            Level("block", (("m", tall * rows), ("n", wide * panel))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("n", target.vector_floats),)),
        )
        scopes = in_registers(self.view.kernel)
        seconds = 1e-9 * self._nanoseconds((row_tiles, panels), rows, panel, target, 1)
        blocks = -(-row_tiles // tall) if self.view.batches == 1 else 1
        return Proposal(Tile(self.algorithm, levels, scopes), seconds, row_blocks=blocks)

    def _nanoseconds(self, split: tuple[int, int], rows: int, panel: int, target: CpuTarget, lanes: int) -> float:
        """Of the lane with most tasks of `split` (register tiles down, panels across)."""
        tall, wide = split
        vectors, rates = panel // target.vector_floats, target.rates
        row_blocks = -(-self.view.rows // (rows * tall))
        column_blocks = -(-self.view.columns // (panel * wide))
        tasks = -(-self.view.batches * row_blocks * column_blocks // lanes)
        tile = self.sums_ns(rows, vectors, target) + rows * vectors * self.finish_ns
        row_bytes = self.steps * LANE_BYTES
        staged = -(-tasks // column_blocks) * tall * rows * row_bytes / self.stage_per_ns if self.staged else 0.0
        packed = 0.0 if self.packed else tasks * wide * panel * self.view.depth * self.pack_ns
        bytes_of_b = wide * panel * row_bytes * self.kept(panel)
        streams = tasks * bytes_of_b / rates.weights_per_ns if bytes_of_b > target.l2_bytes // 2 else 0.0
        return CALL_NS + max(tasks * tall * wide * tile, streams) + staged + packed
