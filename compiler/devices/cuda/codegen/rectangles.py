"""Products over rectangles of pixels, and what follows them: some of a rectangle may lie outside of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.forms.channelwise import Side
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index


def tile_axis(side: Side, size: int) -> Axis:
    """The axis that counts rectangles of `size` pixels along a side."""
    return Axis(f"{side.output.name}Tile", -(-side.output.extent // size))


def inner_axis(side: Side, size: int) -> Axis:
    """The axis of the pixels of a rectangle along a side."""
    return Axis(f"{side.output.name}In", size)


@dataclass(frozen=True)
class Rectangles:
    """Results as rectangles of `sizes` pixels along `sides`, rows and columns, for each of `outer`, such as images."""

    outer: tuple[Axis, ...]
    sides: tuple[Side, Side]
    sizes: tuple[int, int]

    @property
    def tiles(self) -> tuple[Axis, ...]:
        """The axes that count them, the last one fastest."""
        return (*self.outer, *map(tile_axis, self.sides, self.sizes))

    @property
    def m(self) -> tuple[Axis, ...]:
        """The rows of a product over them: rectangles, then the pixels of each. Axes of one are left out."""
        return tuple(axis for axis in (*self.tiles, *map(inner_axis, self.sides, self.sizes)) if axis.extent > 1)

    @property
    def pixel(self) -> dict[Axis, Index]:
        """Which pixel a row is of, by the axes of the sides."""
        return {
            side.output: Index.of(tile_axis(side, size)) * size + inner_axis(side, size)
            for side, size in zip(self.sides, self.sizes, strict=True)
        }

    def declare(self, writer: Writer) -> None:
        """Declares those of `tiles` that are longer than one, of the block whose first row is `first_m`."""
        counted = [axis for axis in self.tiles if axis.extent > 1]
        if counted:
            writer.line(f"const int rectangle = first_m / {prod(self.sizes)};")
            decode(writer, counted, "rectangle", "int")


@dataclass(frozen=True)
class InsideEpilogue(Epilogue):
    """The maps on rectangles of pixels, of which those are left out that are outside.

    `sides` have rectangles of `sizes` pixels.
    """

    sides: tuple[tuple[Side, int], ...] = ()

    @property
    def _ragged(self) -> tuple[tuple[Side, int], ...]:
        return tuple((side, size) for side, size in self.sides if side.output.extent % size)

    def _axes(self) -> frozenset[Axis]:
        axes = {axis for ragged in self._ragged for axis in (tile_axis(*ragged), inner_axis(*ragged))}
        return super()._axes() | (axes & {*self.view.m})

    def _vector(self, writer: Writer, early: Mapping[Load, str]) -> None:
        tests = []
        for side, size in self._ragged:
            terms = [(tile_axis(side, size), f" * {size}"), (inner_axis(side, size), "")]
            tests.append(
                f"{' + '.join(f'{axis}{by}' for axis, by in terms if axis in self.view.m)} < {side.output.extent}"
            )
        if not tests:
            super()._vector(writer, early)
            return
        with writer.block(f"if ({' && '.join(tests)})"):
            super()._vector(writer, early)
