"""Panels for dot-product instructions without the groups that are zero for all columns of a panel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.forms.cache_lines import LINE_BYTES
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.ir.blocks import Blocks
from compiler.ir.tensor import DType
from compiler.ir.zeros import CLASSES

MOST_GROUPS = 1 << 16
"""Places of groups that 16 bits can tell."""


@dataclass(frozen=True)
class KeptGroups:
    """One matrix B[k, n] as its panels' groups that are not zero for every column, each with its place.

    In bytes, each part filled up to whole cache lines: int32[panels + 1], at which step each panel begins;
    int32[panels, panel], sums of columns, where `groups` has them; uint16[kept], which group each step is;
    dtype[kept, panel, group], the steps.

    groups  how all groups would be packed
    fill    what is kept at most, in 1 / CLASSES of all panels' groups
    """

    groups: Groups
    fill: int
    dtype: DType = DType.U8

    @property
    def count(self) -> int:
        """How many panels there are."""
        return -(-self.groups.panels.columns // self.panel)

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.groups.panels.panel

    @property
    def kept(self) -> int:
        """Steps of all panels for which there is room."""
        return -(-self.fill * self.count * self.groups.groups // CLASSES)

    @cached_property
    def parts(self) -> tuple[int, int, int, int, int]:
        """At which byte beginnings, sums, places and steps begin, and the end."""
        sums = LANE_BYTES * self.panel * self.count if self.groups.sums else 0
        sizes = (LANE_BYTES * (self.count + 1), sums, 2 * self.kept, LANE_BYTES * self.panel * self.kept)
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + -(-size // LINE_BYTES) * LINE_BYTES)
        starts, sums, places, steps, end = ends
        return starts, sums, places, steps, end

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.parts[-1]

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant, given in its logical shape, without the groups that are zero: uint8[elements]."""
        each = self.groups.pack(constant)
        size = self.groups.groups * self.panel * self.groups.group
        steps = each[:, :size].reshape(self.count, self.groups.groups, self.panel * self.groups.group)
        return self._packed(steps, np.asarray((steps != 0).any(2)), np.ascontiguousarray(each[:, size:]))

    def specimen(self) -> np.ndarray:
        """As many steps as there is room for, anywhere: uint8[elements]."""
        random = np.random.default_rng(self.kept)
        mask = np.zeros(self.count * self.groups.groups, bool)
        mask[random.permutation(mask.size)[: self.kept]] = True
        shape = (self.count, self.groups.groups, self.panel * self.groups.group)
        sums = np.zeros((self.count, LANE_BYTES * self.panel if self.groups.sums else 0), np.uint8)
        return self._packed(random.integers(1, 3, shape).astype(self.groups.dtype.numpy), mask.reshape(shape[:2]), sums)

    def _packed(self, steps: np.ndarray, mask: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Of dtype[panels, groups, panel * group], where bool[panels, groups] holds, and the bytes of sums."""
        panels, places = np.nonzero(mask)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(mask.sum(1))])
        pieces = (starts.astype("<i4"), sums, places.astype("<u2"), steps[panels, places])
        packed = np.zeros(self.elements, np.uint8)
        for begin, end, piece in zip(self.parts, self.parts[1:], pieces, strict=False):
            octets = np.ascontiguousarray(piece).view(np.uint8).reshape(-1)
            assert len(octets) <= end - begin, "the encoding says how much is kept at most"
            packed[begin : begin + len(octets)] = octets
        return packed


def block_fill(groups: Groups, encoding: Blocks, dims: tuple[int, ...]) -> int | None:
    """What of these groups a constant of shape `dims` in this encoding keeps at most, in 1 / CLASSES.

    None where the matrix is not the whole constant, with lines for columns and along k what a group is, or has too many
    groups.
    """
    panels = groups.panels
    *depth, (columns, column_step) = panels.source
    whole = int(np.prod(dims))
    if panels.starts != (0,) or panels.depth * panels.columns != whole or groups.shift or not depth:
        return None
    steps = [int(np.prod(dims[axis + 1 :])) for axis in (encoding.lines, encoding.along)]
    if [column_step, depth[-1][1]] != steps or columns != dims[encoding.lines]:
        return None
    if depth[-1][0] % groups.group or encoding.group % groups.group or groups.run or groups.groups > MOST_GROUPS:
        return None
    return encoding.fill(panels.panel)
