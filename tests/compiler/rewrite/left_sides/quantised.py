"""Left sides of the rules of `quantised`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _bytes(s: Sketch, *shape: int, signed: bool = True) -> int:
    """A constant of bytes."""
    dtype = DType.I8 if signed else DType.U8
    return s.c(s.rng.integers(-128 if signed else 0, 128 if signed else 256, shape), dtype)


def _power(s: Sketch, *shape: int) -> int:
    """Scales that are powers of two, so that a product of two is exact in every precision."""
    return s.c(2.0 ** -s.rng.integers(2, 6, shape), DType.F32)


def _dequantised_input(s: Sketch, *shape: int) -> int:
    """Random bytes as floats, with one scale."""
    signed = bool(s.rng.integers(2))
    zero = [(), (_bytes(s, signed=signed),)][int(s.rng.integers(2))]
    return s("DequantizeLinear", s.x(*shape, dtype=DType.I8 if signed else DType.U8), _power(s), *zero)


def _dequantised_weights(s: Sketch, shape: tuple[int, ...], channel: int, each: bool | None = None) -> int:
    """Constant bytes as floats, with one scale for all or one for each channel."""
    signed = bool(s.rng.integers(2))
    per = (shape[channel],) if (s.rng.integers(2) if each is None else each) else ()
    zero = [(), (_bytes(s, *per, signed=signed),)][int(s.rng.integers(2))]
    return s("DequantizeLinear", _bytes(s, *shape, signed=signed), _power(s, *per), *zero, axis=channel)


def _product_of_bytes(s: Sketch) -> Graph:
    """A product whose operands are dequantised just before it.

    Its bias has whole multiples of the scales' least product.
    """
    kind = int(s.rng.integers(4))
    if kind < 2:
        x = _dequantised_input(s, 1, 4, *(5,) * (kind + 1))
        groups = int(s.rng.choice([1, 2]))
        w = _dequantised_weights(s, (6, 4 // groups, *(2,) * (kind + 1)), 0)
        bias = [(), (s.c(s.rng.integers(-9, 9, 6), DType.F32),)][int(s.rng.integers(2))]
        return s.graph(s("Relu", s("Conv", x, w, *bias, group=groups, pads=(1,) * 2 * (kind + 1))))
    if kind == 2:
        return s.graph(s("MatMul", _dequantised_input(s, 2, 3, 5), _dequantised_weights(s, (5, 4), 1)))
    turned = int(s.rng.integers(2))
    w = _dequantised_weights(s, (4, 5) if turned else (5, 4), 0 if turned else 1)
    bias = [(), (s.c(s.rng.integers(-9, 9, 4), DType.F32),)][int(s.rng.integers(2))]
    return s.graph(s("Gemm", _dequantised_input(s, 3, 5), w, *bias, transB=turned, alpha=0.5, beta=2.0))


def _between(s: Sketch) -> Graph:
    """Views, a pool, a Relu, padding or a Resize between a DequantizeLinear and a QuantizeLinear of the same scale."""
    dtype = DType.I8 if s.rng.integers(2) else DType.U8
    scale, zero = s.c(s.rng.uniform(0.01, 2), DType.F32), s.c(s.rng.integers(0, 100), dtype)

    def dequantised() -> int:
        return s("DequantizeLinear", s.x(1, 4, 6, dtype=dtype), scale, zero)

    x = dequantised()
    if not s.rng.integers(3):
        x = s.many("Split", x, None, outputs=2, axis=2, split=(2, 4))[int(s.rng.integers(2))]
    for _ in range(int(s.rng.integers(3))):
        kind = int(s.rng.integers(8))
        if kind == 0:
            x = s("Transpose", x, perm=(0, 2, 1))
        if kind == 1:
            x = s("Relu", x)
        if kind == 2:
            x = s("MaxPool", x, kernel_shape=(2,), strides=(1,), pads=(1, 0))
        if kind == 3:
            x = s("Reshape", x, None, shape=(1, s.dims(x)[2], s.dims(x)[1]))
        if kind == 4 and s.dims(x) == (1, 4, 6):
            x = s("Concat", x, dequantised(), axis=1)
        if kind == 5:
            x = s("Resize", x, None, None, None, mode="nearest", scales=(1.0, 1.0, 2.0))
        if kind == 6:
            x = s("Pad", x, None, pads=(0, 0, 1, 0, 0, 2), constant_value=float(s.rng.choice([0.0, 0.7, -9.0, 1e9])))
        if kind == 7:
            x = s("Pad", x, None, pads=(0, 1, 0, 0, 0, 0), mode="reflect")
    return s.graph(s("QuantizeLinear", x, scale, zero))


def _enlarged(s: Sketch, scale: float = 2.0) -> Graph:
    """Numbers enlarged, then rounded to bytes."""
    modes = ("floor", "ceil", "round_prefer_floor")
    larger = s(
        "Resize",
        s.x(1, 2, 5),
        None,
        None,
        None,
        mode="nearest",
        scales=(1.0, 1.0, scale),
        nearest_mode=modes[int(s.rng.integers(3))],
    )
    dtype = DType.I8 if s.rng.integers(2) else DType.U8
    return s.graph(
        s("QuantizeLinear", larger, s.c(s.rng.uniform(0.01, 2), DType.F32), s.c(s.rng.integers(0, 100), dtype))
    )


def _read_between(s: Sketch) -> Graph:
    """A view that is a graph output as well."""
    scale = _power(s)
    turned = s("Transpose", s("DequantizeLinear", s.x(2, 3, dtype=DType.U8), scale), perm=(1, 0))
    return s.graph(s("QuantizeLinear", turned, scale), turned)


LEFT: Mapping[str, Drawing] = {
    "bytes_between": _between,
    "products_of_bytes": _product_of_bytes,
    "quantised_before_resize": _enlarged,
}

REFUSED: Mapping[str, Refusal] = {
    "bytes_between": (_read_between, "graph output"),
    "products_of_bytes": (
        lambda s: s.graph(s("MatMul", _dequantised_input(s, 2, 3), _dequantised_weights(s, (3, 4), 0, each=True))),
        "which is no channel of the result",
    ),
    "quantised_before_resize": (lambda s: _enlarged(s, 0.5), "not more elements"),
}
