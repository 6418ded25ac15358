"""Windows over an image as rows at a constant distance: a product for each tap, of an image that is copied once.

The image is cut into phases, one for each remainder of a position by the stride: in its phase a tap of neighbouring
outputs reads neighbouring pixels. All lines of a phase have the same `pitch`, so outputs that follow each other along a
line, and on to the next one, read pixels that follow each other too. Between two lines lie a few outputs that there are
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product as points
from math import prod

from compiler.forms.contraction import Contraction
from compiler.forms.operand import guarded
from compiler.forms.windowed import as_image
from compiler.ir.expr import Const, Expr, Where
from compiler.ir.index import Axis


@dataclass(frozen=True)
class Side:
    """One axis of the outputs, `position` = `output` * stride + `tap` * dilation; without a tap they are the same."""

    output: Axis
    position: Axis
    tap: Axis | None = None
    stride: int = 1
    dilation: int = 1

    @property
    def taps(self) -> range:
        """The numbers of the taps."""
        return range(self.tap.extent if self.tap else 1)

    def phase(self, tap: int) -> int:
        """The phase that a tap reads."""
        return tap * self.dilation % self.stride

    def place(self, tap: int) -> int:
        """By how many pixels of its phase a tap is ahead of the output."""
        return tap * self.dilation // self.stride

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """Those that taps read."""
        return tuple(sorted({self.phase(tap) for tap in self.taps}))

    def reach(self, phase: int) -> int:
        """Pixels of a phase that the taps of one output look over."""
        return 1 + max(self.place(tap) for tap in self.taps if self.phase(tap) == phase)

    @property
    def most(self) -> int:
        """The reach in the phase in which it is largest."""
        return max(map(self.reach, self.phases))


@dataclass(frozen=True)
class WindowRows:
    """A contraction whose A is an image.

    view       k with the axes of taps first, then those of a pixel
    condition  where a pixel is inside the image, over positions; None: everywhere
    value      an element of a pixel, over positions
    outer      axes of m around the image
    lines, columns  the two sides; there may be no lines
    pixel      axes of k within a pixel
    """

    view: Contraction
    condition: Expr | None
    value: Expr
    outer: tuple[Axis, ...]
    lines: Side | None
    columns: Side
    pixel: tuple[Axis, ...]

    @property
    def run(self) -> int:
        """Elements of a pixel."""
        return prod(axis.extent for axis in self.pixel)

    @property
    def height(self) -> int:
        """Lines of outputs."""
        return self.lines.output.extent if self.lines else 1

    @property
    def width(self) -> int:
        """Outputs of a line."""
        return self.columns.output.extent

    @property
    def pitch(self) -> int:
        """Pixels from one line to the next."""
        return self.width - 1 + self.columns.most

    @cached_property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """Phases of the image, of lines and columns."""
        return tuple(points(self.lines.phases if self.lines else (0,), self.columns.phases))

    def positions(self, lines: int) -> int:
        """Outputs of so many lines, with what lies between the lines."""
        return (lines - 1) * self.pitch + self.width

    def phase_pixels(self, lines: int) -> int:
        """Pixels of a phase that so many lines of outputs read."""
        return (lines - 1 + (self.lines.most if self.lines else 1)) * self.pitch

    def offsets(self, lines: int) -> Iterator[int]:
        """For each tap, in the order of k, which pixel the first output reads, where phases follow each other."""
        size = self.phase_pixels(lines)
        for y in self.lines.taps if self.lines else (0,):
            for x in self.columns.taps:
                line, row = (self.lines.phase(y), self.lines.place(y)) if self.lines else (0, 0)
                phase = self.phases.index((line, self.columns.phase(x)))
                yield phase * size + row * self.pitch + self.columns.place(x)


def window_rows(view: Contraction, condition: Expr | None, value: Expr, *, by_line: bool = False) -> WindowRows | None:
    """The form of a contraction whose A is `value` where `condition` holds; None if there is no window.

    `by_line`: the taps of a line are part of a pixel, which is then copied once for each output of a line.
    """
    if not view.m or not view.k:
        return None
    inner, taps = view.m[-2:], view.k
    a = value if condition is None else Where(condition, value, Const(0, value.dtype))
    if by_line:
        image = as_image(a, inner[-1:], taps)
        along = {sweep.tap for sweep in image.sweeps} if image else set()
        if not along or len(inner) < 2:
            return None
        taps = tuple(axis for axis in taps if axis not in along)
        inner = inner[:1]
    image = as_image(a, inner, taps)
    if image is None or not image.sweeps:
        return None
    sides = {
        sweep.output: Side(sweep.output, sweep.position, sweep.tap, sweep.stride, sweep.dilation)
        for sweep in image.sweeps
    }
    *above, last = view.m[-2:]
    lines = sides.get(above[0], Side(above[0], above[0])) if above else None
    columns = sides.get(last, Side(last, last))
    swept = [side.tap for side in (lines, columns) if side and side.tap]
    pixel = tuple(axis for axis in view.k if axis not in swept)
    if not pixel:
        return None
    condition, value = guarded(image.value)
    ordered = replace(view, k=(*swept, *pixel))
    return WindowRows(ordered, condition, value, view.m[:-2], lines, columns, pixel)
