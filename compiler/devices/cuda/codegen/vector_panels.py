"""B packed without the groups of k that are zero for all columns of a block tile, with the numbers of the others.

Each tile of n has steps of its own: as many groups of neighbours along k as fit, the last one filled up with none
(Chen et al., SC 2021, "Efficient tensor core-based GPU kernels for structured sparsity under reduced precision", whose
column vectors are groups of one).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from compiler.devices.cuda.codegen.panels import rounded_to_tf32
from compiler.encodings.zeros import CLASSES, kept
from compiler.ir.packing import Panels, strided
from compiler.ir.tensor import DType

ALIGNMENT = 128
"""Bytes that each part is a multiple of."""
MOST_GROUPS = (1 << 16) - 1
"""Of k: a number of 16 bits more stands for no group."""


@dataclass(frozen=True)
class VectorPanels:
    """B[k, n] as steps of tiles element[columns, depth], panel by panel of `columns` columns.

    In bytes, each part filled up to ALIGNMENT: int32[panels + 1], at which step each panel begins; uint16[steps, depth
    / group], the numbers of the groups of k that a step has, `groups` for none; the tiles. `matrix` says where B lies
    in the constant (its `panel` means nothing here).

    group    neighbours along k that are kept together
    fill     how many groups are kept at most, in 1 / CLASSES of all
    element  what the elements become; rounded to tf32 where `as_tf32`
    """

    matrix: Panels
    columns: int
    depth: int
    group: int
    fill: int
    element: DType
    as_tf32: bool = False
    dtype: DType = DType.U8

    def __post_init__(self) -> None:
        assert self.depth % (2 * self.group) == 0 == self.matrix.depth % self.group, "steps and k have whole groups"
        assert self.groups <= MOST_GROUPS, "16 bits name a group"
        assert len(self.matrix.starts) == 1, "numbers are those of one matrix"

    @property
    def groups(self) -> int:
        """Of all of k."""
        return self.matrix.depth // self.group

    @property
    def step_groups(self) -> int:
        """Of a step."""
        return self.depth // self.group

    @property
    def count(self) -> int:
        """How many panels there are."""
        return -(-self.matrix.columns // self.columns)

    @property
    def kept(self) -> int:
        """Groups of all panels for which there is room."""
        return -(-self.fill * self.count * self.groups // CLASSES)

    @property
    def steps(self) -> int:
        """Of all panels, however the groups are divided among them."""
        return (self.kept + self.count * (self.step_groups - 1)) // self.step_groups

    @property
    def tile_bytes(self) -> int:
        """Of a step."""
        return self.columns * self.depth * self.element.bytes

    @cached_property
    def parts(self) -> tuple[int, int, int, int]:
        """At which byte beginnings, numbers and tiles begin, and the end."""
        ends = [0]
        for size in (4 * (self.count + 1), 2 * self.steps * self.step_groups, self.steps * self.tile_bytes):
            ends.append(ends[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        starts, numbers, tiles, end = ends
        return starts, numbers, tiles, end

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.parts[-1]

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant without the groups that are zero. Raises ValueError where more are not than there is room."""
        plain = constant.astype(np.float32, copy=False)
        dense = strided(plain, self.matrix.source, self.matrix.starts[0])
        return self._packed(dense.reshape(self.matrix.depth, self.matrix.columns).T)

    def specimen(self) -> np.ndarray:
        """As many groups as there is room for, anywhere, about as many in each panel."""
        random = np.random.default_rng(self.kept)
        mask = np.zeros((self.groups, self.count), bool)
        order = random.random(mask.shape).argsort(0)
        mask[order.reshape(-1)[: self.kept], np.tile(np.arange(self.count), self.groups)[: self.kept]] = True
        columns = np.repeat(np.repeat(mask.T, self.columns, 0), self.group, 1)[: self.matrix.columns]
        largest = 1 if self.element.is_float else np.iinfo(np.int8).max
        return self._packed(np.where(columns, largest * random.uniform(0.1, 1, columns.shape), 0).astype(np.float32))

    def _packed(self, lines: np.ndarray) -> np.ndarray:
        """Of float32[columns, depth]."""
        whole = np.zeros((self.count * self.columns, self.matrix.depth), np.float32)
        whole[: self.matrix.columns] = lines
        groups = whole.reshape(self.count, self.columns, self.groups, self.group)
        mask = np.asarray(kept(groups).any((1, 3)))
        if mask.sum() > self.kept:
            raise ValueError(f"{mask.sum()} groups are not zero, {self.kept} at most by the encoding")
        steps = -(-mask.sum(1) // self.step_groups)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)])
        numbers = np.full((self.steps, self.step_groups), self.groups)
        tiles = np.zeros((self.steps, self.columns, self.depth), np.float32)
        for panel, (first, past) in enumerate(pairwise(starts)):
            (found,) = np.nonzero(mask[panel])
            numbers[first:past].reshape(-1)[: len(found)] = found
            lines = np.zeros((self.columns, (past - first) * self.step_groups, self.group), np.float32)
            lines[:, : len(found)] = groups[panel][:, found]
            tiles[first:past] = lines.reshape(self.columns, past - first, self.depth).swapaxes(0, 1)
        rounded = rounded_to_tf32(tiles) if self.as_tf32 else tiles
        return self._laid_out(starts.astype("<i4"), numbers.astype("<u2"), rounded.astype(self.element.numpy))

    def _laid_out(self, *pieces: np.ndarray) -> np.ndarray:
        """The parts one after another, as bytes."""
        packed = np.zeros(self.elements, np.uint8)
        for begin, piece in zip(self.parts, pieces, strict=False):
            octets = np.ascontiguousarray(piece).view(np.uint8).reshape(-1)
            packed[begin : begin + len(octets)] = octets
        return packed
