"""What the parts of an attention kernel write to: the C text, the scratch, loops over a block of queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cpu.attention.cuts import QueryCuts
from compiler.devices.cpu.codegen.strips import copy_row
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention
from compiler.forms.byte_attention import ByteAttention
from compiler.forms.cache_lines import whole_lines
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


@dataclass
class Frame:
    """A kernel under a tile; `scratch` are the bytes that regions take so far."""

    name: str
    workload: Workload
    view: Attention | ByteAttention
    tile: Tile
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer, self.slots, self.lanes = Writer(), Slots(self.workload), self.target.vector_floats
        self.trimming = Trimming(self.writer, self.view.kernel, self.slots, self.lanes)
        queries = self.view.queries
        self.task = min(self.tile.extent("lane", "m"), queries)
        self.block = min(self.tile.extent("block", "m"), queries)
        self.cuts = QueryCuts(queries, self.task, self.block)
        self.scratch = 0

    def region(self, kind: str, name: str, octets: int, what: str) -> None:
        """Declares so many bytes of scratch as elements of a C type."""
        self.writer.line(f"{kind} *const {name} = ({kind} *)(scratch + {self.scratch}); /* {what} */")
        self.scratch += whole_lines(octets)

    def octets(self, name: str, octets: int, what: str) -> None:
        """Declares so many bytes of scratch."""
        self.writer.line(f"char *const {name} = scratch + {self.scratch}; /* {what} */")
        self.scratch += whole_lines(octets)

    def emitter(self, vector: Vector | None = None) -> Emitter:
        """Of expressions at the axes' present values, along a vector."""
        return Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)

    def round_row(self, into: str, depth: Sequence[Axis], value: Expr) -> None:
        """into[k] = a row of values in bf16; what lies beyond k is 0 and stays so."""
        self.writer.line(f"tw_bf16 *const into = (tw_bf16 *)({into});")
        copy_row(self.writer, self.emitter, self.lanes, depth, value, "into", suffix="_bf16")

    @contextmanager
    def rows(self) -> Iterator[None]:
        """A loop over the queries of a block, `row` by `row`."""
        with self.writer.block("for (long row = 0; row < count; row++)"):
            self.declare_query("row")
            yield

    def declare_query(self, row: str) -> None:
        """Declares the axes of a row of the block."""
        self.writer.line(f"const long query = row0 + {row};")
        decode(self.writer, self.view.rows, "query")
