"""Left sides of the rules of `passing`, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, conv, plus
from tests.compiler.rewrite.sketch import Sketch

Way = Callable[[Sketch], int]
"""Linear operators, and what lies between them and a scale."""


def _linear(s: Sketch, filters: int = 4) -> int:
    """A convolution over 4 x 6 positions."""
    return s("Conv", s.x(1, 2, 4, 6), s.normal(filters, 2, 1, 1), *((s.normal(filters),) if s.rng.integers(2) else ()))


def _pool(s: Sketch, x: int, op: str, padded: bool, **attrs: object) -> int:
    pads = (1, 1, 0, 1) if padded else (0, 0, 0, 0)
    return s(op, x, kernel_shape=(2, 2), strides=(2, 1), pads=pads, **attrs)


def _reshaped(s: Sketch, x: int) -> int:
    dims = s.dims(x)
    return s("Reshape", x, None, shape=(*dims[:2], -1) if s.rng.integers(2) else (dims[0], dims[1] // 2, 2, -1))


def _concat(s: Sketch) -> int:
    return s("Concat", _linear(s, 2), s.normal(1, 1, 4, 6), _linear(s, 3), axis=int(s.rng.choice([1, -3])))


BY_SCALE: tuple[Way, ...] = (
    _concat,
    lambda s: plus(s, _linear(s), _linear(s)),
    lambda s: plus(s, _linear(s), s.normal(4, 1, 1)),
    lambda s: plus(s, s("Mul", s.x(1, 4, 2, 2), s.positive()), s.normal(4, 1, 1)),
    lambda s: s("Relu", _linear(s)),
    lambda s: s("LeakyRelu", _concat(s), alpha=0.1),
    lambda s: s("PRelu", _linear(s), s.positive(4, 1, 1)),
    lambda s: _pool(s, _linear(s), "MaxPool", padded=True),
    lambda s: _pool(s, _linear(s), "AveragePool", padded=True, count_include_pad=int(s.rng.integers(2))),
    lambda s: s("GlobalAveragePool", s("Relu", _linear(s))),
    lambda s: _reshaped(s, _linear(s)),
    lambda s: s("Transpose", _linear(s), perm=(0, 2, 3, 1)),
    lambda s: s("Slice", _linear(s), *(None,) * 4, starts=(1,), ends=(3,), axes=(-1,), steps=(1,)),
    lambda s: s("Pad", _linear(s), *(None,) * 3, pads=(0, 0, 1, 0, 0, 0, 0, 2)),
    lambda s: s("Reshape", s("Transpose", _concat(s), perm=(0, 2, 3, 1)), None, shape=(1, 24, -1)),
)
BY_SHIFT: tuple[Way, ...] = (
    _concat,
    lambda s: plus(s, _linear(s), _linear(s)),
    lambda s: plus(s, s("Relu", s.x(1, 4, 4, 6)), _linear(s)),
    lambda s: _pool(s, _linear(s), "MaxPool", padded=True),
    lambda s: _pool(s, _linear(s), "AveragePool", padded=True, count_include_pad=0),
    lambda s: _pool(s, _linear(s), "AveragePool", padded=False, count_include_pad=1),
    lambda s: _reshaped(s, _linear(s)),
    lambda s: s("Transpose", _linear(s), perm=(1, 0, 3, 2)),
)


def _channel(s: Sketch, y: int) -> tuple[int, ...]:
    """The shape of a constant with one number for each channel of what was convolved, wherever that axis lies now."""
    dims, last = s.dims(y), s.nodes[-1]
    perm = last.attrs.get("perm")
    moved = perm.index(1) if isinstance(perm, tuple) else None if last.op == "Reshape" else 1
    if moved is None:
        return (dims[-1],) if len(dims) == 3 and dims[1] == 24 else (*dims[1:-1], 1)
    return tuple(extent if axis == moved else 1 for axis, extent in enumerate(dims))


def _scaled(s: Sketch) -> Graph:
    y = BY_SCALE[int(s.rng.integers(len(BY_SCALE)))](s)
    scale = s.positive() if s.rng.integers(4) == 0 else s.positive(*_channel(s, y))
    return s.graph(s("Div", y, scale) if s.rng.integers(3) == 0 else s("Mul", y, scale))


def _shifted(s: Sketch) -> Graph:
    y = BY_SHIFT[int(s.rng.integers(len(BY_SHIFT)))](s)
    return s.graph(plus(s, y, s.normal() if s.rng.integers(4) == 0 else s.normal(*_channel(s, y))))


def _scale_before(s: Sketch) -> Graph:
    """A scale, one to three operators that it passes, and a linear operator."""
    if s.rng.integers(4) == 0:
        x = s("Transpose", s("Mul", s.x(1, 4, 5, 2), s.positive(2)), perm=(0, 3, 1, 2))
        return s.graph(conv(s, x, groups=1))
    scaled = (
        s("Mul", s.x(1, 2, 5, 6), s.positive(2, 1, 1)) if s.rng.integers(2) else s("Div", s.x(1, 2, 5, 6), s.c(255.0))
    )
    steps: tuple[Callable[[int], int], ...] = (
        lambda x: s("Relu", x),
        lambda x: _pool(s, x, "MaxPool", padded=True),
        lambda x: _pool(s, x, "AveragePool", padded=True, count_include_pad=1),
        lambda x: s("Pad", x, *(None,) * 3, pads=(0, 0, 1, 1, 0, 0, 0, 0)),
    )
    for _ in range(int(s.rng.integers(1, 4))):
        scaled = steps[int(s.rng.integers(len(steps)))](scaled)
    if s.rng.integers(3) == 0:
        pooled = s("Reshape", s("GlobalAveragePool", scaled), None, shape=(1, 2))
        return s.graph(s("Gemm", pooled, s.normal(2, 3)))
    return s.graph(conv(s, scaled))


LEFT: Mapping[str, Drawing] = {
    "scale_past_operators": _scaled,
    "shift_past_operators": _shifted,
    "scale_before_operators": _scale_before,
}

REFUSED: Mapping[str, Refusal] = {
    "scale_past_operators": (
        lambda s: s.graph(s("Mul", s("Relu", _linear(s)), s.c(-1.0))),
        "not positive does not pass Relu",
    ),
    "shift_past_operators": (
        lambda s: s.graph(
            s("Add", _pool(s, _linear(s), "AveragePool", padded=True, count_include_pad=1), s.positive(4, 1, 1))
        ),
        "zeros of its padding",
    ),
    "scale_before_operators": (
        lambda s: s.graph(conv(s, _pool(s, s("Mul", s.x(1, 2, 9, 8), s.positive(8)), "MaxPool", padded=False))),
        "not the same at all positions of MaxPool",
    ),
}
