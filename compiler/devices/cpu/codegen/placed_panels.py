"""Where the panels of a matrix without zeros lie, and the kernel that multiplies rows by one of them."""

from __future__ import annotations

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.kept_rows import KeptRowsKernel
from compiler.devices.cpu.codegen.picked_rows import PickedRowsKernel
from compiler.forms.kept_groups import PickedFloats, PlacedSteps


def panel_kernel(packing: PlacedSteps, rows: int, lanes: int, wide: int) -> KeptRowsKernel:
    """That of so many rows by a panel; `wide` floats lie between rows of its results."""
    shape = (rows, packing.groups.panels.depth, packing.panel // lanes, lanes, wide)
    return PickedRowsKernel(*shape, packing.window) if isinstance(packing, PickedFloats) else KeptRowsKernel(*shape)


def declare_panel(writer: Writer, packing: PlacedSteps, slot: str, number: str) -> str:
    """Declares the parts of panel `number`. Gives what the kernel takes of it, between the rows and its results."""
    _, _, places, steps, _ = packing.parts
    panel, weights = packing.panel, "b"
    writer.line(f"const char *const packed = (const char *){slot};")
    writer.line(f"const int32_t *const starts = (const int32_t *)packed + {number};")
    writer.line(f"const uint16_t *const places = (const uint16_t *)(packed + {places}) + starts[0];")
    writer.line(f"const float *const b = (const float *)(packed + {steps}) + starts[0] * {panel}L;")
    if isinstance(packing, PickedFloats):
        told = f"(const uint8_t *)(packed + {packing.told}) + starts[0] * {panel}L"
        writer.line(f"const uint8_t *const which = {told};")
        weights = "b, which"
    return f"{weights}, places, starts[1] - starts[0]"
