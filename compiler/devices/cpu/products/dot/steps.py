"""A step by dot products: one group of each row is broadcast against vectors of columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from compiler.devices.cpu.products.dot.lowering import DotContraction
from compiler.devices.cpu.target import NEAR_BYTES
from compiler.forms.groups import LANE_BYTES
from compiler.forms.kept_groups import PickedGroups
from compiler.ir.tensor import DType

RowAt = Callable[[int, str], str]


class DotStep:
    """The `Step` of products whose rows lie at a constant distance."""

    keeps_sums = True

    def multiply(self, product: DotContraction, rows: int) -> str:
        """With the places of steps, where zeros are left out."""
        return f"{product.name}_{rows}(a, b, {'places, steps, ' if product.kept else ''}c);"

    def begin(self, product: DotContraction) -> None:
        """Nothing is done before."""

    def end(self, product: DotContraction) -> None:
        """Nothing is done after."""

    def write(self, product: DotContraction, rows: int) -> None:
        """c[rows][panel] = a[rows][groups] b[groups][panel]; rows of a lie a constant distance apart.

        Without zeros, b has `steps` steps, and `places` says where each of them reads rows.
        """
        writer, shape, kind = product.writer, product.shape, product.vector_type
        which = "const uint16_t *places, long steps, " if product.kept else ""
        head = f"void {product.name}_{rows}(const char *a, const char *b, {which}{product.scalar_type} *c)"
        step, steps = ("step", "steps") if product.kept else ("k", product.groups.groups)
        with writer.block(f"static inline __attribute__((always_inline)) {head}"):
            writer.line(f"{kind} acc[{rows}][{shape.vectors}] = {{0}};")
            with writer.block(f"for (long {step} = 0; {step} < {steps}; {step}++)"):
                if product.kept:
                    writer.line("const long k = places[step];")
                if isinstance(product.kept, PickedGroups):
                    _picked_step(product, rows, product.kept)
                else:
                    add_products(product, rows, step, partial(_row_at, product))
            store_sums(product, rows)
        writer.line()


def _picked_step(product: DotContraction, rows: int, picked: PickedGroups) -> None:
    """The window of all rows that begins at element `k`, of which each lane picks what its weights are for."""
    writer, shape, lanes = product.writer, product.shape, product.target.vector_floats
    element = picked.groups.dtype.bytes
    writer.include("tw_pick.h")
    load, pick = "tw_groups", {1: "tw_pick_bytes", 2: "tw_pick_halves"}[element]
    if picked.window * element == NEAR_BYTES:
        load, pick = "tw_pick_near_window", "tw_pick_near"
    for vector in range(shape.vectors):
        place = f"b + step * {picked.step_bytes} + {vector * lanes * LANE_BYTES}"
        writer.line(f"const vi y{vector} = tw_groups({place});")
        writer.line(f"const vi which{vector} = tw_groups({place} + {shape.panel * LANE_BYTES});")
    for row in range(rows):
        writer.line(f"const vi x{row} = {load}({_row_at(product, row, f'k * {element}')});")
        for vector in range(shape.vectors):
            acc = f"acc[{row}][{vector}]"
            writer.line(f"{acc} = {product.held.dot}({acc}, {pick}(x{row}, which{vector}), y{vector});")


def store_sums(product: DotContraction, rows: int) -> None:
    """From registers to `c`."""
    writer, shape, lanes = product.writer, product.shape, product.target.vector_floats
    store = "tw_store" if product.held.total is DType.F32 else "tw_store_i"
    writer.line(f"#pragma GCC unroll {rows}")
    with writer.block(f"for (int row = 0; row < {rows}; row++)"):
        for vector in range(shape.vectors):
            writer.line(f"{store}(c + row * {shape.panel} + {vector * lanes}, acc[row][{vector}]);")


def add_products(product: DotContraction, rows: int, step: str, row_at: RowAt, read: str = "") -> None:
    """Group `k` of all rows, which a C function may be named to read, with the vectors of one step of B.

    `row_at` gives where the element of a row of A lies that is so many bytes behind its first, in C.
    """
    writer, shape, lanes = product.writer, product.shape, product.target.vector_floats
    held, by_lane = product.held, product.target.multiplies_by_lane
    load, dot = (held.lone_group, f"{held.dot}_by") if by_lane else ("tw_group", held.dot)
    for vector in range(shape.vectors):
        place = f"b + ({step} * {shape.panel} + {vector * lanes}) * {LANE_BYTES}"
        writer.line(f"const vi y{vector} = tw_groups({place});")
    for row in range(rows):
        writer.line(f"const vi x{row} = {read or load}({row_at(row, f'k * {LANE_BYTES}')});")
        for vector in range(shape.vectors):
            acc = f"acc[{row}][{vector}]"
            writer.line(f"{acc} = {dot}({acc}, x{row}, y{vector});")


def _row_at(product: DotContraction, row: int, offset: str) -> str:
    """Where the element of a row of A lies that is so many bytes behind its first, in C."""
    return f"a + {offset} + {row * (product.row_step or product.row_bytes)}L"
