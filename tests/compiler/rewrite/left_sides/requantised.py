"""Left sides of the rules of `requantised`, and what they refuse.

Scales are powers of two, so that nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch

F32, I8, U8 = DType.F32, DType.I8, DType.U8


def _scale(s: Sketch, *shape: int) -> int:
    return s.c(2.0 ** -s.rng.integers(2, 6, shape), F32)


def _quantised(s: Sketch, x: int, scale: int | None = None) -> Graph:
    """Rounded to bytes of either sign, with a zero point or without."""
    dtype = I8 if s.rng.integers(2) else U8
    zero = [(), (s.c(s.rng.integers(0, 100), dtype),)][int(s.rng.integers(2))]
    return s.graph(s("QuantizeLinear", x, _scale(s) if scale is None else scale, *zero))


def _dequantised(s: Sketch) -> int:
    return s("DequantizeLinear", s.x(1, 4, 3, 3, dtype=U8), _scale(s), s.c(s.rng.integers(256), U8))


def _scaled(s: Sketch) -> int:
    """A product's sums with a factor and a bias for each channel."""
    sums = s("Cast", s.x(1, 4, 3, 3, dtype=DType.I32), to=1)
    return s("Add", s("Mul", sums, _scale(s, 4, 1, 1)), s.c(s.rng.integers(-9, 9, (4, 1, 1)) / 8, F32))


def _behind_constants(s: Sketch) -> Graph:
    """A product, a residual addition or a Concat of both, with or without a clamp or a bend, before it is rounded."""
    kind = int(s.rng.integers(4))
    x = _dequantised(s) if kind == 1 else _scaled(s)
    if kind == 2:
        x = s("Add", x, _dequantised(s))
    if kind == 3:
        x = s("Concat", x, _dequantised(s), axis=1)
    if kind == 1:
        x = s("Add", x, _dequantised(s))
    clamp = int(s.rng.integers(5))
    if clamp == 1:
        x = s("Relu", x)
    if clamp == 2:
        x = s("Clip", x, s.c(-0.5, F32), s.c(6.0, F32))
    if clamp == 3:
        x = s("LeakyRelu", x, alpha=0.25)
    if clamp == 4:
        x = s("PRelu", x, s.c(0.125, F32))
    return _quantised(s, x)


def _clamped(s: Sketch) -> Graph:
    """A clamp that ends beyond what bytes hold."""
    dtype, zero = (U8, 0) if s.rng.integers(2) else (I8, -128)
    x = s.x(2, 40)
    if s.rng.integers(2):
        x = s("Relu", x)
    else:
        x = s("Clip", x, s.c(0.0), s.c(float(s.rng.choice([6.0, 7.5]))))
    scale = s.c(6 / 255, F32 if s.dtype is DType.F64 else s.dtype)
    return s.graph(s("QuantizeLinear", x, scale, s.c(zero, dtype)))


def _clamped_within(s: Sketch) -> Graph:
    """A clamp that bytes would not make: they go down to -100 / 32."""
    x = s("Relu", s.x(2, 3, dtype=F32))
    return s.graph(s("QuantizeLinear", x, s.c(1 / 32, F32), s.c(100, U8)))


def _read_elsewhere(s: Sketch) -> Graph:
    """A sum that is a graph output as well."""
    x = _scaled(s)
    return s.graph(s("QuantizeLinear", x, _scale(s)), x)


LEFT: Mapping[str, Drawing] = {
    "saturated_anyway": _clamped,
    "scaled_ahead": _behind_constants,
}

REFUSED: Mapping[str, Refusal] = {
    "saturated_anyway": (_clamped_within, "0.0 becomes 100, where u8 ends at 0"),
    "scaled_ahead": (_read_elsewhere, "graph output"),
}
