"""How much is computed while compiling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.ir.tensor import DType
from compiler.rewrite import rewrite
from compiler.rewrite.rules.folding import LARGEST
from tests.compiler.rewrite.sketch import Sketch


def _bytes(s: Sketch, *shape: int) -> tuple[int, int, int]:
    """Constant bytes with their scale and zero point."""
    return s.c(np.ones(shape), DType.U8), s.c(0.5), s.c(3, DType.U8)


def quantised_product(s: Sketch, extent: int) -> int:
    scales = (s.c(0.5), s.c(3, DType.U8))
    return s("QLinearMatMul", *_bytes(s, extent, extent), *_bytes(s, extent, extent), *scales)


def quantised_convolution(s: Sketch, extent: int) -> int:
    scales = (s.c(0.5), s.c(3, DType.U8))
    return s("QLinearConv", *_bytes(s, 1, extent, 8, 8), *_bytes(s, extent, extent, 3, 3), *scales)


def pool(op: str) -> Callable[[Sketch, int], int]:
    return lambda s, extent: s(op, s.c(np.ones((1, 1, extent, extent))), kernel_shape=(extent // 2,) * 2)


@pytest.mark.parametrize(
    ("op", "drawing", "largest"),
    [
        ("QLinearMatMul", quantised_product, 256),
        ("QLinearConv", quantised_convolution, 256),
        *((op, pool(op), 512) for op in ("AveragePool", "MaxPool", "LpPool")),
    ],
)
def test_what_is_too_much_work_for_its_size_is_not_computed_while_compiling(
    op: str, drawing: Callable[[Sketch, int], int], largest: int
) -> None:
    for extent, stays in ((16, False), (largest, True)):
        s = Sketch(dtype=DType.F32)
        s("Tanh", s("Cast", drawing(s, extent), to=1))
        after = rewrite(s.graph())
        assert any(node.op == op for node in after.graph.nodes) == stays, extent
    assert any("too much work" in str(refusal) for refusal in after.refusals)


def test_a_matrix_of_codes_is_computed_however_large_it_is_and_a_table_of_rows_is_not() -> None:
    codes, scale = np.ones((4100, 4100), np.int8), np.full(4100, 0.5, np.float32)
    assert codes.size * 4 > LARGEST

    def dequantised(s: Sketch) -> int:
        return s("DequantizeLinear", s.c(codes, DType.I8), s.c(scale), axis=1)

    def by_hand(s: Sketch) -> int:
        return s("Transpose", s("Mul", s("Cast", s.c(codes, DType.I8), to=1), s.c(scale)), perm=(1, 0))

    def left(s: Sketch, *values: int) -> set[str]:
        after = rewrite(s.graph(*values)).graph
        for array in after.constants.values():
            if array.dtype == np.float32 and array.size > 2**20:
                assert not array.flags.owndata, "what is large lies in a file"
        return {node.op for node in after.nodes}

    for made, stays in ((dequantised, set()), (by_hand, {"Transpose"})):
        s = Sketch(dtype=DType.F32)
        assert left(s, s("MatMul", s.x(1, 4100), made(s))) == {"MatMul"} | stays
        s = Sketch(dtype=DType.F32)
        assert left(s, s("Gather", made(s), s.x(2, dtype=DType.I64), axis=0)) > {"Gather"}
    s = Sketch(dtype=DType.F32)
    small = s("DequantizeLinear", s.c(codes[:1000, :1000], DType.I8), s.c(scale[:1000]), axis=0)
    rows = s("Gather", small, s.x(2, dtype=DType.I64), axis=0)
    assert left(s, rows) == {"DequantizeLinear", "Gather"}
    assert left(s, rows, s("Add", small, s.x(1, 1000))) == {"Gather", "Add"}, "something else reads it, too"
