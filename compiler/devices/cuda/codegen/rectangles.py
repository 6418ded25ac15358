"""What follows a product over rectangles of pixels: some of a rectangle may lie outside of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.forms.channelwise import Side
from compiler.ir.expr import Load
from compiler.ir.index import Axis


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
        names = {f"{side.output.name}{part}" for side, _ in self._ragged for part in ("Tile", "In")}
        return super()._axes() | {axis for axis in self.view.m if axis.name in names}

    def _vector(self, writer: Writer, early: Mapping[Load, str]) -> None:
        tests = []
        for side, size in self._ragged:
            found = {axis.name for axis in self.view.m}
            terms = [(f"{side.output.name}Tile", f" * {size}"), (f"{side.output.name}In", "")]
            tests.append(f"{' + '.join(name + by for name, by in terms if name in found)} < {side.output.extent}")
        if not tests:
            super()._vector(writer, early)
            return
        with writer.block(f"if ({' && '.join(tests)})"):
            super()._vector(writer, early)
