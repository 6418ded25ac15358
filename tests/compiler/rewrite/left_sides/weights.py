"""Left sides of the rules of `weights`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, conv, inner_output, shape
from tests.compiler.rewrite.sketch import Sketch


def _linear(s: Sketch, matmul: bool = True) -> int:
    """A convolution or a matrix product with constant weights, its channel on axis 1 (MatMul: last)."""
    kind = int(s.rng.integers(0, 5 if matmul else 4))
    if kind < 3:
        return conv(s, s.x(1, 2, 5, *((4,) if kind else ())), op="ConvTranspose" if kind == 2 else "Conv")
    if kind == 4:
        return s("MatMul", s.x(2, 3, 2), s.normal(2, 3))
    turned = int(s.rng.integers(2))
    b = s.normal(3, 2) if turned else s.normal(2, 3)
    c = [(), (s.normal(3),), (s.normal(1, 3),), (s.c(0.5),)][int(s.rng.integers(4))]
    return s("Gemm", s.x(2, 2), b, *c, transB=turned, alpha=0.5, beta=float(s.rng.choice([1.0, 2.0])))


def _per_channel(s: Sketch, y: int, last: bool = False) -> int:
    dims = s.dims(y)
    if s.rng.integers(3) == 0:
        return s.positive()
    channels = dims[-1] if last else dims[1]
    return s.positive(channels, *(1,) * (0 if last else len(dims) - 2))


def _scaled(s: Sketch) -> Graph:
    y = _linear(s)
    last = s.nodes[-1].op == "MatMul"
    scale = _per_channel(s, y, last)
    op = str(s.rng.choice(["Mul", "Div"]))
    return s.graph(s(op, *((scale, y) if op == "Mul" and s.rng.integers(2) else (y, scale))))


def _shifted(s: Sketch) -> Graph:
    y = _linear(s, matmul=False)
    return s.graph(s("Add", _per_channel(s, y), y) if s.rng.integers(2) else s("Add", y, _per_channel(s, y)))


def _batch_norm(s: Sketch, y: int) -> int:
    n = s.dims(y)[1]
    return s("BatchNormalization", y, s.positive(n), s.normal(n), s.normal(n), s.positive(n), epsilon=1e-3)


def _scale_before(s: Sketch) -> Graph:
    kind = int(s.rng.integers(0, 4))
    if kind < 2:
        x = s.x(1, 4, 5)
        scaled = s("Mul", x, s.positive(4, 1) if s.rng.integers(2) else s.positive())
        return s.graph(conv(s, scaled, op=("Conv", "ConvTranspose")[kind]))
    x = s.x(2, 3)
    if kind == 2:
        return s.graph(s("MatMul", s("Mul", s.positive(3), x), s.normal(3, 2)))
    turned = int(s.rng.integers(2))
    scaled = s("Mul", x, s.positive(2, 1) if turned else s.positive(3))
    return s.graph(s("Gemm", scaled, s.normal(*((2, 2) if turned else (3, 2))), s.normal(2), transA=turned))


def _shared_scale(s: Sketch) -> Graph:
    y = conv(s, s.x(1, 2, 5), groups=1)
    return s.graph(s("Mul", y, s.c(2)), s("Abs", y))


LEFT: Mapping[str, Drawing] = {
    "batch_norm_into_weights": lambda s: s.graph(_batch_norm(s, _linear(s, matmul=False))),
    "batch_norm_alone": lambda s: s.graph(_batch_norm(s, s.x(2, 3, *shape(s)[:2]))),
    "scale_into_weights": _scaled,
    "shift_into_bias": _shifted,
    "scale_before_weights": _scale_before,
}

REFUSED: Mapping[str, Refusal] = {
    "batch_norm_into_weights": (
        lambda s: inner_output(s.graph(_batch_norm(s, conv(s, s.x(1, 2, 4)))), 1),
        "graph output",
    ),
    "batch_norm_alone": (
        lambda s: s.graph(
            s("BatchNormalization", s.x(1, 1, 2), s.normal(1), s.normal(1), s.normal(1), s.c([-1.0]), epsilon=0.0)
        ),
        "not finite",
    ),
    "scale_into_weights": (_shared_scale, "also read by"),
    "shift_into_bias": (lambda s: s.graph(s("Add", conv(s, s.x(1, 2, 4), groups=1), s.normal(1, 1, 1, 1))), ""),
    "scale_before_weights": (
        lambda s: s.graph(conv(s, s("Mul", s.x(1, 2, 4), s.positive(1, 1, 4)))),
        "not one number per channel",
    ),
}
