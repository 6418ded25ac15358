"""Sums of both products in fp32: register tiles of them, and what becomes of the sums."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.expressions import Vector
from compiler.devices.cpu.attention.ends import kept_keys
from compiler.devices.cpu.attention.frame import Frame
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, as_attention
from compiler.forms.bounds import neutral_from, within
from compiler.forms.key_bounds import key_bounds
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile

PACK_NS = 0.05
"""One element of the keys or values packed."""


@dataclass
class FloatSums:
    """Those of a kernel under a tile.

    Levels: `block` n, keys of a block; `register` m and n, the register tile of the scores; `vector` m and n, that of
    the product with the values.
    """

    frame: Frame
    view: Attention

    def __post_init__(self) -> None:
        frame, view, tile = self.frame, self.view, self.frame.tile
        self.key_block = tile.extent("block", "n")
        self.key_blocks = parts(view.keys.extent, self.key_block)
        self.last_keys = view.keys.extent - (self.key_blocks - 1) * self.key_block
        """Keys of the last block."""
        self.score_rows, self.panel = tile.extent("register", "m"), tile.extent("register", "n")
        self.mixed_rows, self.value_panel = tile.extent("vector", "m"), tile.extent("vector", "n")
        assert self.key_blocks == 1 or self.key_block % self.panel == 0, "a block of keys holds whole panels"
        self.panels = parts(view.keys.extent, self.panel)
        self.value_panels = parts(view.columns.extent, self.value_panel)
        inputs = frozenset(slot.name for slot in view.kernel.inputs)
        last = (view.scores, *view.maps)[-1].values[0]
        sides = {*view.batch, *view.rows}
        unread = [one.bound for one in frame.trimming.beyond if one.bound.place.axes <= sides]
        self.maps = tuple(within(block, unread) for block in view.maps)
        """Of the scores, whatever they are in rows whose results do not depend on them."""
        self.key_sizes = neutral_from(last, view.keys, float("-inf"), inputs)
        """From the least of them on scores are -infinity."""
        found = key_bounds(view)
        self.ends = found if found.bounds and not self.key_sizes else None
        """Where the keys of each query begin and end, if comparisons with their places say so."""
        self.kept = tuple(within(block, unread) for block in found.kept)
        """The maps of scores that no bound leaves out."""

    @staticmethod
    def of(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> FloatSums:
        """Those of a kernel that `as_attention` accepts."""
        view = as_attention(workload.kernel)
        assert view is not None, f"the tile stage offers `{tile.algorithm}` only to kernels of that form"
        return FloatSums(Frame(name, workload, view, tile, target), view)

    @property
    def counts_keys(self) -> bool:
        """Whether `some` keys of a block, perhaps not all, are multiplied."""
        return bool(self.key_sizes) or self.ends is not None

    @property
    def row_floats(self) -> int:
        """Scores of a query and a block of keys, in whole vectors."""
        return parts(min(self.key_block, self.view.keys.extent), self.frame.lanes) * self.frame.lanes

    @property
    def past_keys(self) -> str:
        """Where keys end, in C."""
        return "live_keys" if self.key_sizes else str(self.view.keys.extent)

    @property
    def past_panels(self) -> str:
        """Whether panels of keys end behind `panel`, in C."""
        return f"panel * {self.panel} < live_keys" if self.key_sizes else f"panel < {self.panels}"

    def score(self, vector: Vector, place: str, row: str = "") -> str:
        """The C name of what follows the product on the scores at a place.

        With the query's `row` in the block keys before `firsts[row]` and from `pasts[row]` on have the lowest score,
        where places say which count.
        """
        frame, value = self.frame, self.frame.writer.name("score")
        frame.writer.line(f"const vf {value} = tw_load({place});")
        ends = self.ends if row else None
        maps = self.maps if ends is None else self.kept
        value = finish(frame.emitter(vector), frame.slots, self.view.scores, maps, value)
        return value if ends is None else kept_keys(frame.writer, ends, self.view.keys, row, value)

    def result(self, vector: Vector, column: str) -> None:
        """Stores results: the sums at a column of `held`, times `whole`, and what follows."""
        frame, value = self.frame, self.frame.writer.name("mixed")
        frame.writer.line(f"const vf {value} = tw_load(held + {column}) * whole;")
        finish(frame.emitter(vector), frame.slots, self.view.mixed, self.view.epilogue, value)
