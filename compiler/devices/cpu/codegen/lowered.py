"""What lowering one kernel gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from compiler.codegen.functions import describe
from compiler.codegen.scalars import C_TYPES
from compiler.codegen.task_grid import TaskGrid
from compiler.codegen.writer import Writer
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing


@dataclass(frozen=True)
class Lowered:
    """A kernel as C: `void name(void *const *p, char *scratch, long begin, long end)` runs tile tasks begin .. end-1.

    `p` holds the buffers' first elements, inputs then outputs. `scratch` is private to the lane and holds
    `scratch_bytes`. An input with a Packing is given packed. `grid` says what a tile task works on; None: unknown, it
    may be anything. `headers` are those of few kernels that this one needs.
    """

    name: str
    text: str
    tiles: int
    scratch_bytes: int = 0
    packings: Mapping[int, Packing] = field(default_factory=dict)
    grid: TaskGrid | None = None
    headers: frozenset[str] = frozenset()


class Lowering(ABC):
    """A kernel about to be written as C, which takes a while: how its tile tasks cut it is known before."""

    workload: Workload

    @property
    @abstractmethod
    def grid(self) -> TaskGrid | None:
        """As `Lowered.grid`."""

    @property
    def tasks(self) -> int:
        """How many tile tasks there are; one if what they work on is unknown."""
        results = [slot.type.elements for slot in self.workload.kernel.outputs]
        return 0 if not any(results) else self.grid.tasks if self.grid else 1

    @abstractmethod
    def lower(self) -> Lowered:
        """The C function, written once."""


@contextmanager
def kernel_function(writer: Writer, name: str, workload: Workload, *notes: str) -> Iterator[None]:
    """The kernel's C function below its comment; the caller writes its body, where slots' pointers have their names."""
    describe(writer, workload, *notes)
    with writer.block(signature(name)):
        declare_slots(writer, workload)
        writer.line("(void)scratch;")
        yield


def signature(name: str) -> str:
    """The head of a kernel's C function (see Lowered)."""
    return f"void {name}(void *const *p, char *scratch, long begin, long end)"


def declare_slots(writer: Writer, workload: Workload) -> None:
    """Gives each slot's pointer its name; not every function uses all inputs.

    An input that is one number is copied: bytes that are stored may alias what is behind a pointer, for which C would
    load and convert a scale again in each step of a loop.
    """
    kernel, buffers = workload.kernel, (*workload.inputs, *workload.outputs)
    for position, slot in enumerate((*kernel.inputs, *kernel.outputs)):
        buffer = buffers[position]
        ctype = C_TYPES[buffer.dtype]
        const = "const " if position < len(kernel.inputs) else ""
        if const and not (slot.type.rank or buffer.type.rank or buffer.offset):
            writer.line(f"const {ctype} {slot.name}[1] = {{*(const {ctype} *)p[{position}]}};")
        else:
            writer.line(f"{const}{ctype} *const {slot.name} = ({const}{ctype} *)p[{position}];")
    for slot in kernel.inputs:
        writer.line(f"(void){slot.name};")
