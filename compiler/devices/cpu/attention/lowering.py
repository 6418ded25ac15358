"""The skeleton: a task is some queries of a head, whose keys and values are packed before the first of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.devices.cpu.attention.frame import Frame
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.trimming import Span
from compiler.forms.contraction import axes_of


class Element(Protocol):
    """How both products and the softmax are computed, for what elements lie in the scratch."""

    @property
    def note(self) -> str:
        """What the comment above the kernel's function ends with."""

    @property
    def ends_at_sizes(self) -> bool:
        """Whether blocks of queries end where a size that is known while running says so."""

    def write_kernels(self) -> None:
        """Writes the C functions of both products."""

    def declare(self) -> None:
        """Declares regions of the scratch and variables, among them `packed`, the head that is packed: none yet."""

    def pack(self) -> None:
        """Packs the keys and values of a head."""

    def copy_queries(self) -> None:
        """Brings the `count` queries from `row0` on into the form that is multiplied."""

    def attend(self) -> None:
        """Computes and stores the results of these queries."""

    def end(self) -> None:
        """Writes what the function does last."""


@dataclass
class LoweredAttention(Lowering):
    """A kernel under a tile."""

    frame: Frame
    element: Element

    def __post_init__(self) -> None:
        self.workload = self.frame.workload

    @property
    def grid(self) -> TaskGrid:
        """How tasks cut the result: heads, and blocks of their rows."""
        view = self.frame.view
        return TaskGrid(view.kernel, (*one_by_one(view.batch), Cut(view.rows, self.frame.task)))

    def lower(self) -> Lowered:
        """The C functions of both products with the softmax between them."""
        frame, element = self.frame, self.element
        view, writer = frame.view, frame.writer
        element.write_kernels()
        notes = (
            f"heads {axes_of(view.batch)}; queries {axes_of(view.rows)}; keys {axes_of((view.keys,))};",
            f"depth {axes_of(view.depth)}; columns {axes_of((view.columns,))}{element.note}",
        )
        with kernel_function(writer, frame.name, self.workload, *notes):
            element.declare()
            with frame.trimming.tasks(self.grid):
                self._task()
            element.end()
        return Lowered(
            frame.name, writer.text(), self.tasks, frame.scratch, grid=self.grid, headers=frozenset(writer.headers)
        )

    def _task(self) -> None:
        """Blocks of the queries of a task, behind what its head needs."""
        frame, element = self.frame, self.element
        view, writer = frame.view, frame.writer
        of_head = parts(view.queries, frame.task)
        writer.line(f"const long head = tile / {of_head};")
        decode(writer, view.batch, "head")
        with writer.block("if (packed != head)"):
            writer.line("packed = head;")
            element.pack()
        writer.line(f"const long first = tile % {of_head} * {frame.task};")
        clips = element.ends_at_sizes and frame.trimming.beyond
        ends = "end" if clips else "past"
        writer.line(f"const long {ends} = tw_least_of(first + {frame.task}, {view.queries});")
        if clips:
            past = frame.trimming.clip(Span(view.rows, "first", ends), frame.block, ())
            writer.line(f"const long past = {past};")
        with writer.block(f"for (long row0 = first; row0 < past; row0 += {frame.block})"):
            writer.line(f"const long count = tw_least_of(past - row0, {frame.block});")
            element.copy_queries()
            element.attend()
