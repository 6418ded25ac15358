"""Where the choices of `low_rank` are offered, and where not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _low(s: Sketch, rows: int, columns: int) -> np.ndarray:
    """Of rank 1 and 2 in whole numbers."""
    rank = int(s.rng.integers(1, 3))
    return np.asarray(2.0 ** s.rng.integers(0, 2, (rows, rank)) @ 2.0 ** s.rng.integers(0, 2, (rank, columns)))


def _product(s: Sketch) -> Graph:
    x = s.x(3, 8)
    if s.rng.integers(2):
        return s.graph(s("MatMul", x, s.c(_low(s, 8, 16))))
    return s.graph(s("Gemm", x, s.c(_low(s, 16, 8)), s.c(np.ones(16)), alpha=0.5, beta=2.0, transA=0, transB=1))


LEFT: Mapping[str, Drawing] = {"product_by_low_rank": _product}

REFUSED: Mapping[str, Refusal] = {
    "product_by_low_rank": (
        lambda s: s.graph(s("Gemm", s.x(8, 3), s.c(_low(s, 8, 16)), alpha=1.0, beta=1.0, transA=1, transB=0)),
        "its input is transposed",
    ),
}
