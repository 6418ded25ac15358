"""What model.c holds for every kind of device: ports, tables of structs, operands, the description as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.codegen.weights import Weights
from compiler.codegen.writer import Writer
from compiler.ir.buffers import KernelGraph
from compiler.ir.packing import Packing
from compiler.ir.plans.plan import Plan
from compiler.ir.small import BITS
from compiler.ir.tensor import DType, TensorType

DLPACK: Mapping[DType, tuple[str, int]] = {
    DType.BOOL: ("TW_BOOL", 8),
    DType.BF16: ("TW_BFLOAT", 16),
    **{dtype: ("TW_FLOAT", 8 * dtype.bytes) for dtype in (DType.F16, DType.F32, DType.F64)},
    **{dtype: ("TW_INT", 8 * dtype.bytes) for dtype in (DType.I8, DType.I16, DType.I32, DType.I64)},
    **{dtype: ("TW_UINT", 8 * dtype.bytes) for dtype in (DType.U8, DType.U16, DType.U32, DType.U64, *BITS)},
}


SPACES = {"input": "SPACE_INPUT", "output": "SPACE_OUTPUT", "arena": "SPACE_ARENA", "constant": "SPACE_WEIGHTS"}


def ports(writer: Writer, kernels: KernelGraph) -> None:
    """The table of inputs, then outputs."""
    ports = [kernels.buffers[value].type for value in (*kernels.inputs, *kernels.outputs)]
    for at, port in enumerate(ports):
        dims = ", ".join(map(str, port.dims)) or "0"
        writer.line(f"static const int64_t shape_{at}[] = {{{dims}}};")
    rows = [f"{{{code}, {bits}, {port.rank}, shape_{at}, {port.bytes}UL}}" for at, port, (code, bits) in _coded(ports)]
    writer.line(f"enum {{ PORTS_IN = {len(kernels.inputs)}, PORTS_OUT = {len(kernels.outputs)} }};")
    table(writer, "port", "ports", "PORTS", rows)


def _coded(ports: Sequence[TensorType]) -> list[tuple[int, TensorType, tuple[str, int]]]:
    return [(at, port, DLPACK[port.dtype]) for at, port in enumerate(ports)]


def table(writer: Writer, struct: str, name: str, count: str, rows: Sequence[object]) -> None:
    """An array of structures, given as they print, and how many there are."""
    writer.line(f"enum {{ {count} = {len(rows)} }};")
    with writer.block(f"static const struct {struct} {name}[{max(len(rows), 1)}] =", "};"):
        for row in rows:
            writer.line(f"{row},")
        if not rows:
            writer.line("{0},")
    writer.line()


@dataclass(frozen=True)
class Operand:
    """A row of `operands`: a place, by byte, in one of the spaces; of an input or an output its position is `port`."""

    space: str
    port: int
    at: int

    def behind(self, size: int) -> Operand:
        """What lies so many bytes behind."""
        return replace(self, at=self.at + size)

    def __str__(self) -> str:
        return f"{{{self.space}, {self.port}, {self.at}}}"


def operand(kernels: KernelGraph, plan: Plan, id: int, packing: Packing | None, weights: Weights) -> Operand:
    """Where a buffer's first element lies. A constant is added to `weights`."""
    buffer = kernels.buffers[id]
    place = plan.places[buffer.storage]
    at = buffer.offset * buffer.dtype.bytes
    port = place.at if place.space in ("input", "output") else 0
    if place.space == "arena":
        at += place.at
    if place.space == "constant":
        source = kernels.buffers[buffer.storage]
        at = weights.place(source, kernels.constants[source.id], packing) + (0 if packing else at)
    return Operand(SPACES[place.space], port, at)


def description(kernels: KernelGraph, plan: Plan, weight_bytes: int, others: Sequence[Plan] = ()) -> str:
    """What tw_describe says: JSON. Lanes and arena are the most that one of the plans has."""

    def described(values: tuple[int, ...]) -> list[dict[str, object]]:
        return [
            {"dtype": str(kernels.buffers[v].type.dtype), "shape": list(kernels.buffers[v].type.dims)} for v in values
        ]

    plans = (plan, *others)
    facts = {
        "inputs": described(kernels.inputs),
        "outputs": described(kernels.outputs),
        "lanes": max(one.lanes for one in plans),
        "calls": len(kernels.calls),
        "arena_bytes": max(one.arena_bytes for one in plans),
        "weight_bytes": weight_bytes,
        "plans": [_plan_facts(one) for one in plans],
    }
    return json.dumps(facts, sort_keys=True)


def _plan_facts(plan: Plan) -> dict[str, object]:
    limit = None if plan.most_handover_s == math.inf else float(nanoseconds(plan))
    return {
        "scheduler": plan.scheduler,
        "lanes": plan.lanes,
        "tasks": len(plan.tasks),
        "arena_bytes": plan.arena_bytes,
        "most_handover_ns": limit,
    }


def c_string(text: str) -> str:
    """A literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def nanoseconds(plan: Plan) -> str:
    """The plan's limit as C writes it."""
    return "INFINITY" if plan.most_handover_s == math.inf else f"{1e9 * plan.most_handover_s:g}"
