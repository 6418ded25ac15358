"""Left sides of the rules of `tables`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch

F32, I8, U8 = DType.F32, DType.I8, DType.U8


def _pair(s: Sketch, x: int, dtype: DType) -> int:
    """Rounded to bytes and made floats again."""
    scale, zero = s.c(s.rng.uniform(0.01, 0.1), F32), s.c(s.rng.integers(0, 100), dtype)
    return s("DequantizeLinear", s("QuantizeLinear", x, scale, zero), scale, zero)


def _activation(s: Sketch) -> Graph:
    """One operator, or several with a pair behind each, that all read the same bytes."""
    x_type, y_type = (I8 if s.rng.integers(2) else U8 for _ in range(2))
    start = s("DequantizeLinear", s.x(3, 5, dtype=x_type), s.c(0.05, F32), s.c(s.rng.integers(0, 60), x_type))
    kind = int(s.rng.integers(4))
    if kind == 0:
        y = s("Gelu", start)
    if kind == 1:
        y = s("Mul", start, s("Sigmoid", start))
    if kind == 2:
        y = s("Exp", s("Clip", s("Neg", start), s.c(-2.0, F32), s.c(2.0, F32)))
    if kind == 3:
        grown = _pair(s, s("Erf", _pair(s, s("Div", start, s.c(1.5, F32)), y_type)), y_type)
        y = s("Mul", _pair(s, s("Mul", start, s("Add", grown, s.c(1.0, F32))), x_type), s.c(0.5, F32))
    return s.graph(s("QuantizeLinear", y, s.c(0.04, F32), s.c(s.rng.integers(0, 100), y_type)))


def _of_another_rank(s: Sketch) -> Graph:
    """A number of more axes than the bytes have."""
    row = s("Sigmoid", s("DequantizeLinear", s.x(3, 5, dtype=U8), s.c(0.05, F32)))
    return s.graph(s("QuantizeLinear", s("Add", row, s.c(np.ones((1, 1, 1)), F32)), s.c(0.04, F32), s.c(3, U8)))


LEFT: Mapping[str, Drawing] = {"function_of_a_byte": _activation}

REFUSED: Mapping[str, Refusal] = {"function_of_a_byte": (_of_another_rank, "another shape")}
