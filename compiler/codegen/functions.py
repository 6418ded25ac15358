"""How a generated function begins, in C and in CUDA C++: names, a comment that says what is computed, positions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from compiler.codegen.writer import Writer
from compiler.forms.normal_form import rename_axes, rename_slots
from compiler.ir.index import Axis
from compiler.ir.kernel import Kernel, Routine, Slot
from compiler.ir.machine import Workload


def with_c_names(kernel: Kernel | Routine) -> Kernel | Routine:
    """A kernel whose axes are capitalised and whose slots (tensors) have names that begin with `t_`.

    Generated code's own variables and C's keywords are lower case and none begins with `t_`, so that no axis and no
    slot clashes with one.
    """
    if isinstance(kernel, Routine):
        inputs, outputs = (
            tuple(Slot(f"t_{slot.name}", slot.type) for slot in part) for part in (kernel.inputs, kernel.outputs)
        )
        return replace(kernel, inputs=inputs, outputs=outputs)
    slots = (*kernel.inputs, *kernel.temps, *kernel.outputs)
    return rename_axes(rename_slots(kernel, {slot.name: f"t_{slot.name}" for slot in slots}), str.capitalize)


def describe(writer: Writer, workload: Workload, *notes: str) -> None:
    """A comment that says what a kernel computes, of what shapes; `notes` are further lines of it."""
    kernel = workload.kernel
    results = f"-> {', '.join(str(slot.type) for slot in kernel.outputs)}"
    comment = (f"{kernel.family}: {', '.join(str(slot.type) for slot in kernel.inputs)}", results, *notes)
    for at, text in enumerate(comment):
        writer.line(f"{' *' if at else '/*'} {text}{' */' if at == len(comment) - 1 else ''}")


def nest(writer: Writer, axes: Iterable[Axis], ctype: str = "long") -> ExitStack:
    """Loops over axes, outermost first: their body is what is written while the stack is open."""
    stack = ExitStack()
    for axis in axes:
        stack.enter_context(writer.block(f"for ({ctype} {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
    return stack


def decode(
    writer: Writer, axes: Sequence[Axis], flat: str, ctype: str = "long", used: Container[Axis] | None = None
) -> None:
    """Declares the axes of a row-major position, all or those that are used."""
    stride = 1
    lines = []
    for axis in reversed(axes):
        place = flat if stride == 1 else f"{flat} / {stride}"
        if axis is not axes[0]:
            place += f" % {axis.extent}"
        if str(axis) != place and (used is None or axis in used):
            lines.append(f"const {ctype} {axis} = {place};")
        stride *= axis.extent
    for line in reversed(lines):
        writer.line(line)
