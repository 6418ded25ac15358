"""References that compute their result piece by piece, so that what they hold meanwhile stays small.

Windows of a tensor are gathered for the outputs of one piece. Padding is never made: what a window has of it is filled
in where the window is gathered, so that an attribute cannot ask for more memory than operands and results have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.operator import Arrays
from compiler.ops.window import Window

PIECE_ELEMENTS = 2**20
"""That a piece holds at once, unless one position of the result needs more: 8 MiB of float64, which allocators keep."""

Region = tuple[slice, ...]


@dataclass
class Pieces:
    """A result of `shape` and `dtype`, and its parts: where each lies, and its elements. The parts cover the result."""

    shape: tuple[int, ...]
    dtype: np.dtype
    parts: Iterator[tuple[Region, np.ndarray]]
    _result: np.ndarray | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, array: np.ndarray) -> Pieces:
        """A result that is whole already."""
        found = cls(array.shape, array.dtype, iter(()))
        found._result = array
        return found

    def assembly(self) -> Iterator[float]:
        """After each part how much of the result there is, from 0 to 1."""
        written, size = 0, math.prod(self.shape)
        for region, part in self.parts:
            if self._result is None:
                self._result = np.empty_like(part, self.dtype, shape=self.shape)
            self._result[region] = part
            written += part.size
            yield written / max(size, 1)

    @property
    def result(self) -> np.ndarray:
        """As far as it is assembled, in the module of its parts."""
        return np.empty(self.shape, self.dtype) if self._result is None else self._result

    def assembled(self) -> np.ndarray:
        """The whole result."""
        for _ in self.assembly():
            pass
        return self.result


@dataclass(frozen=True)
class InPieces:
    """A reference of one output that is computed in pieces."""

    pieces: Callable[[Node, Arrays], Pieces]

    def __call__(self, node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        """The whole result, assembled from its pieces."""
        return (self.pieces(node, arrays).assembled(),)


def regions(extents: Sequence[int], each: int) -> Iterator[Region]:
    """Regions that cover `extents`, row-major, of as many positions as PIECE_ELEMENTS has room for, at `each` each."""
    room = max(PIECE_ELEMENTS // max(each, 1), 1)
    blocks: list[int] = []
    for extent in reversed(extents):
        blocks.insert(0, max(min(extent, room), 1))
        room = max(room // blocks[0], 1)
    starts = (range(0, extent, block) for extent, block in zip(extents, blocks, strict=True))
    for start in itertools.product(*starts):
        ends = map(min, extents, map(sum, zip(start, blocks, strict=True)))
        yield tuple(slice(first, end) for first, end in zip(start, ends, strict=True))


def unfolded(x: np.ndarray, places: Sequence[Window], outputs: Region, padding: float = 0) -> np.ndarray:
    """The windows of x [N, C, *S] for a region of outputs: [N, C, *taps, *outputs], `padding` outside of x."""
    taps = tuple(place.kernel for place in places)
    counts = tuple(one.stop - one.start for one in outputs)
    found = np.full_like(x, padding, shape=(*x.shape[:2], *taps, *counts))
    whole = slice(None), slice(None)
    if math.prod(taps) <= math.prod(counts):
        for tap in np.ndindex(*taps):
            spans = [
                span(t * place.dilation - place.before + one.start * place.stride, place.stride, place.extent, count)
                for t, place, one, count in zip(tap, places, outputs, counts, strict=True)
            ]
            found[(*whole, *tap, *(to for to, _ in spans))] = x[(*whole, *(at for _, at in spans))]
        return found
    for output in np.ndindex(*counts):
        spans = [
            span((o + one.start) * place.stride - place.before, place.dilation, place.extent, place.kernel)
            for o, place, one in zip(output, places, outputs, strict=True)
        ]
        found[(*whole, *(to for to, _ in spans), *output)] = x[(*whole, *(at for _, at in spans))]
    return found


def span(offset: int, step: int, extent: int, count: int) -> tuple[slice, slice]:
    """Of the positions offset + i * step, i below `count`, those in 0 .. extent - 1: the i, and the positions."""
    first = max(-(offset // step), 0)
    end = max(min((extent - 1 - offset) // step + 1, count), first)
    return slice(first, end), slice(offset + first * step, offset + (end - 1) * step + 1 if end > first else 0, step)
