"""What lowering one kernel gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.codegen.c_scalar import C_TYPES
from compiler.codegen.writer import Writer
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing


@dataclass(frozen=True)
class Lowered:
    """A kernel as C: `void name(void *const *p, char *scratch, long begin, long end)` runs tile tasks begin .. end-1.

    `p` holds the buffers' first elements, inputs then outputs; `scratch` is private to the lane and holds `scratch_bytes`. An input
    with a Packing is given packed.
    """

    name: str
    text: str
    tiles: int
    scratch_bytes: int = 0
    packings: Mapping[int, Packing] = field(default_factory=dict)


def declarations(workload: Workload) -> list[str]:
    """C lines that give each slot's pointer its name."""
    kernel = workload.kernel
    lines = []
    for position, slot in enumerate((*kernel.inputs, *kernel.outputs)):
        ctype = C_TYPES[slot.type.dtype]
        const = "const " if position < len(kernel.inputs) else ""
        lines.append(f"{const}{ctype} *const {slot.name} = ({const}{ctype} *)p[{position}];")
    return lines


def decode(writer: Writer, axes: Sequence[Axis], flat: str) -> None:
    """Declares the axes of a row-major position."""
    stride = 1
    lines = []
    for axis in reversed(axes):
        place = flat if stride == 1 else f"{flat} / {stride}"
        if axis is not axes[0]:
            place += f" % {axis.extent}"
        if str(axis) != place:
            lines.append(f"const long {axis} = {place};")
        stride *= axis.extent
    for line in reversed(lines):
        writer.line(line)
