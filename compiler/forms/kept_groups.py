"""Panels for dot-product instructions by steps that say where they read rows of A: those that are not zero alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.encodings.blocks import Blocks
from compiler.encodings.picks import Picks, order_of, steps_of
from compiler.encodings.zeros import CLASSES
from compiler.forms.cache_lines import LINE_BYTES
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

MOST_PLACES = 1 << 16
"""Places that 16 bits can tell."""
ORDER_BYTES = 2
"""Of the place of an input in another order."""


@dataclass(frozen=True)
class PlacedSteps(ABC):
    """Matrices B[batch, k, n] in panels of a number of steps each, every step with a place.

    In bytes, each part filled up to whole cache lines: int32[panels + 1], at which step each panel begins;
    int32[panels, panel], sums of columns, where `groups` has them; uint16[kept], the places; the steps.

    groups  how all of B would be packed
    fill    how many steps there are at most, in 1 / CLASSES of those of all groups
    """

    groups: Groups
    fill: int
    dtype: DType = DType.U8

    @property
    @abstractmethod
    def step_bytes(self) -> int:
        """Of one step."""

    @abstractmethod
    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant, given in its logical shape: uint8[elements]."""

    @abstractmethod
    def specimen(self) -> np.ndarray:
        """As many steps as there is room for: uint8[elements]."""

    @property
    def count(self) -> int:
        """How many panels there are."""
        return len(self.groups.panels.starts) * -(-self.groups.panels.columns // self.panel)

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
        sizes = (LANE_BYTES * (self.count + 1), sums, 2 * self.kept, self.step_bytes * self.kept)
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + -(-size // LINE_BYTES) * LINE_BYTES)
        starts, sums, places, steps, end = ends
        return starts, sums, places, steps, end

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.parts[-1]

    def _dense(self, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All groups, dtype[panels, groups, panel, group], and the sums as they are packed behind them."""
        each = self.groups.pack(constant)
        shape = (self.count, self.groups.groups, self.panel, self.groups.group)
        size = int(np.prod(shape[1:]))
        return each[:, :size].reshape(shape), np.ascontiguousarray(each[:, size:])

    def _no_sums(self) -> np.ndarray:
        return np.zeros((self.count, LANE_BYTES * self.panel if self.groups.sums else 0), np.uint8)

    def _laid_out(self, counts: np.ndarray, sums: np.ndarray, places: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The parts one after another: how many steps each panel has, sums, places, steps as bytes."""
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        packed = np.zeros(self.elements, np.uint8)
        pieces = (starts.astype("<i4"), sums, places.astype("<u2"), steps)
        for begin, end, piece in zip(self.parts, self.parts[1:], pieces, strict=False):
            octets = np.ascontiguousarray(piece).view(np.uint8).reshape(-1)
            assert len(octets) <= end - begin, "the encoding says how much is kept at most"
            packed[begin : begin + len(octets)] = octets
        return packed


@dataclass(frozen=True)
class KeptGroups(PlacedSteps):
    """The groups that are not zero for every column of their panel: dtype[kept, panel, group].

    The place of a step is the number of its group.
    """

    @property
    def step_bytes(self) -> int:
        """A group for each column."""
        return LANE_BYTES * self.panel

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant without the groups that are zero."""
        groups, sums = self._dense(constant)
        return self._packed(groups, np.asarray((groups != 0).any((2, 3))), sums)

    def specimen(self) -> np.ndarray:
        """Groups anywhere."""
        random = np.random.default_rng(self.kept)
        mask = np.zeros(self.count * self.groups.groups, bool)
        mask[random.permutation(mask.size)[: self.kept]] = True
        shape = (self.count, self.groups.groups, self.panel, self.groups.group)
        some = random.integers(1, 3, shape).astype(self.groups.dtype.numpy)
        return self._packed(some, mask.reshape(shape[:2]), self._no_sums())

    def _packed(self, groups: np.ndarray, mask: np.ndarray, sums: np.ndarray) -> np.ndarray:
        panels, places = np.nonzero(mask)
        return self._laid_out(mask.sum(1), sums, places, groups[panels, places])


@dataclass(frozen=True)
class PickedGroups(PlacedSteps):
    """Groups of weights that are not zero, each column's from anywhere in a window of A's row.

    A step is dtype[panel, group], the weights, then as many bytes of which each group says which elements of the window
    its weights are multiplied with. The place of a step is the element of a row at which its window begins.

    window    elements
    by_bytes  whether an element is told byte by byte, or as one number of its own width
    """

    window: int = 0
    by_bytes: bool = True

    @property
    def step_bytes(self) -> int:
        """A group of weights for each column, and where they are multiplied."""
        return 2 * LANE_BYTES * self.panel

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant without its zeros."""
        groups, sums = self._dense(constant)
        return self._packed(self._lines(groups), sums)

    def specimen(self) -> np.ndarray:
        """Columns that have about as many weights as there is room for, anywhere."""
        random = np.random.default_rng(self.kept)
        shape = (self.count, self.panel, self.groups.panels.depth)
        share = self.fill / CLASSES
        while True:
            lines = (random.random(shape) < share).astype(self.groups.dtype.numpy)
            if steps_of(lines != 0, self.groups.group, self.window).counts.sum() <= self.kept:
                return self._packed(lines, self._no_sums())
            share *= 0.9

    def _lines(self, groups: np.ndarray) -> np.ndarray:
        """dtype[panels, panel, depth] of all groups."""
        return groups.transpose(0, 2, 1, 3).reshape(self.count, self.panel, -1)[:, :, : self.groups.panels.depth]

    def _packed(self, lines: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Of dtype[panels, panel, depth]."""
        steps = steps_of(np.asarray(lines != 0), self.groups.group, self.window)
        panel, number = np.nonzero(np.arange(steps.bases.shape[1]) < steps.counts[:, None])
        bases, places = steps.bases[panel, number], steps.places[panel, number]
        column = np.arange(self.panel)[:, None]
        weights = lines[panel[:, None, None], column, bases[:, None, None] + np.maximum(places, 0)]
        weights = np.where(places >= 0, weights, np.zeros((), weights.dtype))
        return self._laid_out(steps.counts, sums, bases, self._steps(weights, np.maximum(places, 0)))

    def _steps(self, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Bytes of steps, of dtype[steps, panel, group] and the elements of windows that each is multiplied with."""
        parts = (np.ascontiguousarray(weights).view(np.uint8), self._told(places).view(np.uint8))
        return np.concatenate([part.reshape(len(weights), LANE_BYTES * self.panel) for part in parts], axis=1)

    def _told(self, places: np.ndarray) -> np.ndarray:
        """Which element of a window, in as many bytes as it has."""
        width = self.groups.dtype.bytes
        if not self.by_bytes:
            return places.astype(f"<u{width}")
        return np.ascontiguousarray(places[..., None] * width + np.arange(width)).astype(np.uint8)


@dataclass(frozen=True)
class PickedFloats(PickedGroups):
    """Groups of one float each, with a byte that says which element of the window it is multiplied with.

    The weights of all steps come first, float32[kept, panel], and then the bytes, uint8[kept, panel]. Where inputs are
    ordered, uint16[depth] follows behind them: which element of A's row each is.
    """

    ordered: bool = False

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.parts[-1] + (ORDER_BYTES * self.groups.panels.depth if self.ordered else 0)

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant without its zeros."""
        if not self.ordered:
            return super().pack(constant)
        groups, sums = self._dense(constant)
        lines = self._lines(groups)
        order = order_of(np.asarray(lines != 0).reshape(-1, lines.shape[2])[: self.groups.panels.columns])
        assert order is not None, "the encoding says that columns can be combined"
        return self._with_order(self._packed(lines[:, :, order], sums), order)

    def specimen(self) -> np.ndarray:
        """Columns that have about as many weights as there is room for, anywhere, in any order."""
        packed = super().specimen()
        if not self.ordered:
            return packed
        return self._with_order(packed, np.random.default_rng(self.kept).permutation(self.groups.panels.depth))

    def _with_order(self, packed: np.ndarray, order: np.ndarray) -> np.ndarray:
        packed[self.parts[-1] :] = order.astype("<u2").view(np.uint8)
        return packed

    @property
    def step_bytes(self) -> int:
        """A weight for each column, and a byte."""
        return (LANE_BYTES + 1) * self.panel

    @property
    def told(self) -> int:
        """At which byte it begins to be said which elements of the windows are taken."""
        return self.parts[-2] + LANE_BYTES * self.panel * self.kept

    def _steps(self, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
        assert len(weights) <= self.kept, "the encoding says how much is kept at most"
        steps = np.zeros(self.step_bytes * self.kept, np.uint8)
        for begin, part in (
            (0, weights.astype("<f4").view(np.uint8)),
            (self.told - self.parts[-2], places.astype("u1")),
        ):
            steps[begin : begin + part.size] = part.reshape(-1)
        return steps


def block_fill(groups: Groups, encoding: Blocks, dims: tuple[int, ...]) -> int | None:
    """What of these groups a constant of shape `dims` in this encoding keeps at most, in 1 / CLASSES.

    None where the matrix is not the whole constant, with lines for columns and along k what a group is, or has too many
    groups.
    """
    whole = is_whole(groups.panels, encoding, dims) and not groups.shift and not groups.run
    if not whole or groups.groups > MOST_PLACES or encoding.group % groups.group:
        return None
    last = groups.panels.source[-2]
    return encoding.fill(groups.panels.panel) if last[0] % groups.group == 0 else None


def recurrent_fill(groups: Groups, encoding: Blocks | Picks, dims: tuple[int, ...]) -> int | None:
    """What of these groups of one number weights of shape `dims` [..., gates, inputs] keep at most, in 1 / CLASSES.

    Or how many steps they take. None where the matrices are not the whole constant, or a panel's gates are not those of
    a block, or of steps, of the encoding's, or inputs are in another order.
    """
    panels = groups.panels
    if encoding.group != groups.group or (encoding.lines, encoding.along) != (len(dims) - 2, len(dims) - 1):
        return None
    if isinstance(encoding, Picks) and encoding.ordered:
        return None
    gates, inputs = dims[-2:]
    piece = panels.columns * inputs
    whole = sorted(panels.starts) == list(range(0, int(np.prod(dims)), piece))
    if not whole or panels.source != ((inputs, 1), (panels.columns, inputs)) or inputs > MOST_PLACES:
        return None
    if isinstance(encoding, Picks) and inputs < encoding.window:
        return None
    aligned = panels.columns == gates or (panels.columns % panels.panel == 0 and gates % panels.columns == 0)
    return encoding.fill(panels.panel) if aligned else None


def pick_fill(groups: Groups, encoding: Picks, dims: tuple[int, ...], window: int) -> int | None:
    """The steps that a constant of shape `dims` in this encoding takes at most, in 1 / CLASSES of those of all groups.

    None where the matrix is not the whole constant with its axes in the encoding's order, or windows are others.
    """
    panels = groups.panels
    if (encoding.group, encoding.window) != (groups.group, window) or panels.depth > MOST_PLACES:
        return None
    if not is_whole(panels, encoding, dims) or groups.shift or groups.run:
        return None
    others = [axis for axis, dim in enumerate(dims) if axis not in (encoding.lines, encoding.along) and dim > 1]
    taps = [(dims[axis], _step(dims, axis)) for axis in others]
    found = [(extent, step) for extent, step in panels.source[:-2] if extent > 1]
    return encoding.fill(panels.panel) if _joined(found) == _joined(taps) else None


def is_whole(panels: Panels, encoding: Blocks | Picks, dims: tuple[int, ...]) -> bool:
    """Whether B is all of a constant, with lines for columns and the other dimension that is named innermost in k."""
    *depth, (columns, column_step) = panels.source
    if panels.starts != (0,) or panels.depth * panels.columns != int(np.prod(dims)):
        return False
    if not depth or columns != dims[encoding.lines]:
        return False
    return [column_step, depth[-1][1]] == [_step(dims, encoding.lines), _step(dims, encoding.along)]


def _step(dims: tuple[int, ...], axis: int) -> int:
    """Elements from one index of a dimension to the next."""
    return int(np.prod(dims[axis + 1 :]))


def _joined(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Axes (extent, step), outermost first, of which those that lie one in another are one."""
    made: list[tuple[int, int]] = []
    for extent, step in axes:
        if made and made[-1][1] == extent * step:
            made[-1] = (made[-1][0] * extent, step)
        else:
            made.append((extent, step))
    return made
