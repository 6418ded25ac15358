"""The innermost loops of a product by one panel whose steps have a weight for each column from within a window of k."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.kept_rows import KeptRowsKernel


@dataclass(frozen=True)
class PickedRowsKernel(KeptRowsKernel):
    """c[row][column] = sum over steps of x[row][places[step] + which[step][column]] b[step][column], for one panel.

    window  elements of x among which `which` says one; as many as the target picks from
    """

    window: int

    @property
    def arguments(self) -> str:
        """Of the C function."""
        whole = "const float *b, const uint8_t *which, const uint16_t *places"
        return f"const float *x, {whole}, long steps, float *c"

    def _step(self, writer: Writer, turn: int) -> None:
        writer.include("tw_pick.h")
        writer.line(f"const long k{turn} = places[step + {turn}];")
        for vector in range(self.vectors):
            place = self._place(turn, vector)
            writer.line(f"const vf y{turn}_{vector} = tw_load(b + {place});")
            writer.line(f"const vi which{turn}_{vector} = tw_pick_which(which + {place});")
        for row in range(self.rows):
            window = f"x + k{turn} + {row * self.depth}"
            for vector in range(self.vectors):
                picked = f"tw_pick_float_of_{self.window}({window}, which{turn}_{vector})"
                writer.line(f"acc[{turn}][{row}][{vector}] += {picked} * y{turn}_{vector};")
