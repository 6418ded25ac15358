"""Reductions of the generic CUDA lowering: a thread's accumulators, and how those of several threads become one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from compiler.codegen.reductions import kinds_of, step
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter
from compiler.devices.cuda.target import WARP
from compiler.ir.expr import Cast
from compiler.ir.kernel import Block


def accumulate(block: Block, names: Sequence[str], emitter: CudaEmitter) -> None:
    """One element more in the accumulators."""
    values = [
        emitter.scalar(value if value.dtype is kind else Cast(value, kind))
        for value, kind in zip(block.values, kinds_of(block), strict=True)
    ]
    emitter.writer.line(step(block, names, values))


def combine_lanes(writer: Writer, block: Block, names: Sequence[str]) -> None:
    """A butterfly of shuffles: every lane of a warp ends with the same bits, for each step is commutative."""
    with writer.block(f"for (int bits = {WARP // 2}; bits; bits /= 2)"):
        others = [writer.name("other") for _ in names]
        for other, name, kind in zip(others, names, kinds_of(block), strict=True):
            writer.line(f"const {CUDA_TYPES[kind]} {other} = tw_of_lane({name}, bits);")
        writer.line(step(block, names, others))


def combine_parts(
    writer: Writer, block: Block, names: Sequence[str], shared: int, parts: int, own: str, columns: int = 0
) -> int:
    """Through shared memory from byte `shared` on; returns where that memory ends.

    Each thread combines the parts of its team in the same order. Part `own` is the thread's, or in teams that are no
    `columns` that of its warp. What lies there must have no other use.
    """
    kinds = kinds_of(block)
    held = [writer.name("part") for _ in names]
    for part, kind in zip(held, kinds, strict=True):
        ctype = CUDA_TYPES[kind]
        writer.line(f"{ctype} *const {part} = ({ctype} *)(shared + {shared});")
        shared += -(-parts * max(columns, 1) * kind.bytes // 16) * 16
    column = f" * {columns} + threadIdx.x % {columns}" if columns else ""
    with nullcontext() if columns else writer.block(f"if (lane % {WARP} == 0)"):
        for part, name in zip(held, names, strict=True):
            writer.line(f"{part}[{own}{column}] = {name};")
    writer.line("__syncthreads();")
    for part, name in zip(held, names, strict=True):
        writer.line(f"{name} = {part}[0{column}];")
    with writer.block(f"for (int from = 1; from < {parts}; from++)"):
        others = [writer.name("other") for _ in names]
        for other, part, kind in zip(others, held, kinds, strict=True):
            writer.line(f"const {CUDA_TYPES[kind]} {other} = {part}[from{column}];")
        writer.line(step(block, names, others))
    return shared
