"""Loops over vectors along one axis, and values put where a kernel's blocks store them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from compiler.codegen.c_expr import Emitter, Vector
from compiler.codegen.writer import Writer
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block
from compiler.ir.normal_form import Slots
from compiler.ir.tensor import DType


def strips(writer: Writer, axis: Axis, lanes: int, body: Callable[[Vector], None]) -> None:
    """Whole vectors along an axis, then the rest as one partial vector."""
    whole = axis.extent // lanes * lanes
    if whole:
        with writer.block(f"for (long {axis} = 0; {axis} < {whole}; {axis} += TW_LANES)"):
            body(Vector(axis))
    if axis.extent % lanes:
        with writer.block(""):
            writer.line(f"const long {axis} = {whole};")
            body(Vector(axis, str(axis.extent % lanes)))


def copy_row(
    writer: Writer,
    at: Callable[[Vector], Emitter],
    lanes: int,
    axes: Sequence[Axis],
    value: Expr,
    into: str,
    factor: str = "",
) -> None:
    """into[k] = value at each point k of the axes, the last one fastest; times `factor` if given. `at` gives the emitter at a vector."""
    *outer, inner = axes
    with ExitStack() as stack:
        place = Index.of(0)
        for axis in outer:
            stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
            place = place * axis.extent + axis
        place = place * inner.extent + inner

        def copy(vector: Vector) -> None:
            emitter = at(vector)
            text = f"{emitter.vf(value)} * {factor}" if factor else emitter.vf(value)
            store_vector(writer, f"{into} + {emitter.index(place)}", text, vector)

        strips(writer, inner, lanes, copy)


def store_vector(writer: Writer, place: str, value: str, vector: Vector) -> None:
    """The live lanes of a vector, to memory."""
    tail = f"_n({place}, {value}, {vector.count})" if vector.count else f"({place}, {value})"
    writer.line(f"tw_store{tail};")


def finish(emitter: Emitter, slots: Slots, product: Block, maps: Sequence[Block], value: str) -> str:
    """Puts a product's value where its block stores it, and those of the maps that follow; the name of the last value."""
    _put(emitter, slots, product.stores[0].slot, product.stores[0].index, value)
    for block in maps:
        for store, expr in zip(block.stores, block.values, strict=True):
            value = emitter.vf(expr)
            _put(emitter, slots, store.slot, store.index, value)
    return value


def _put(emitter: Emitter, slots: Slots, slot: str, index: tuple[Index, ...], value: str) -> None:
    if slot in slots.buffers:
        emitter.store(slot, index, value, slots.buffers[slot].type.dtype)
    emitter.held[Load(slot, index, DType.F32)] = value
