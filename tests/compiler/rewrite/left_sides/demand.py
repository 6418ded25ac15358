"""Left sides of the rules of `demand`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output
from tests.compiler.rewrite.sketch import Sketch


def _window(s: Sketch, x: int, axis: int) -> int:
    extent = s.dims(x)[axis]
    first, past = sorted(int(n) for n in s.rng.choice(extent + 1, 2, replace=False))
    step = int(s.rng.integers(1, 3))
    if (first, past, step) == (0, extent, 1):
        past -= 1
    return s("Slice", x, *(None,) * 4, starts=(first,), ends=(past,), axes=(axis,), steps=(step,))


def _block(s: Sketch, x: int) -> int:
    """Attention and a layer of two products, as a transformer has them."""
    dims = s.dims(x)
    q, k, v = (s("MatMul", x, s.normal(8, 8)) for _ in range(3))
    scores = s("Softmax", s("MatMul", q, s("Transpose", k, perm=(0, 2, 1))), axis=-1)
    x = s("Add", x, s("MatMul", scores, v))
    rows = s("Reshape", s("LayerNormalization", x, s.positive(8), s.normal(8)), None, shape=(-1, 8))
    hidden = s("Relu", s("Gemm", rows, s.normal(16, 8), s.normal(16), transB=1))
    out = s("Gemm", hidden, s.normal(16, 8), s.normal(8))
    return s("Add", s("Reshape", out, None, shape=dims), x)


def _rows_of_block(s: Sketch) -> Graph:
    return s.graph(_window(s, s("Mul", _block(s, s.x(1, 5, 8)), s.normal(5, 1)), 1))


def _of_product(s: Sketch) -> Graph:
    """Rows or columns, of either kind of product, with a bias along either axis."""
    if s.rng.integers(2):
        product = s("MatMul", s.x(2, 40, 30), s.x(2, 30, 20))
        return s.graph(
            _window(
                s, s("Add", product, s.normal(*((20,) if s.rng.integers(2) else (40, 1)))), int(s.rng.integers(1, 3))
            )
        )
    a, b = (
        (30, 40) if (first := int(s.rng.integers(2))) else (40, 30),
        (20, 30) if (second := int(s.rng.integers(2))) else (30, 20),
    )
    product = s(
        "Gemm",
        s.x(*a),
        s.normal(*b),
        s.normal(*((40, 20) if s.rng.integers(2) else (20,))),
        transA=first,
        transB=second,
    )
    return s.graph(_window(s, s("Transpose", product, perm=(1, 0)), int(s.rng.integers(2))))


LEFT: Mapping[str, Drawing] = {
    "slice_past_sums": lambda s: _rows_of_block(s) if s.rng.integers(2) else _of_product(s),
}

REFUSED: Mapping[str, Refusal] = {
    "slice_past_sums": (
        lambda s: inner_output(s.graph(_window(s, s("MatMul", s.x(40, 30), s.normal(30, 20)), 0)), 1),
        "needed elsewhere",
    ),
}
