"""Left sides of the rules of `splits`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, plus
from tests.compiler.rewrite.sketch import Sketch


def _parts(s: Sketch, axis: int | None = None) -> tuple[tuple[int, ...], int]:
    """A Split into two or three parts, and its axis."""
    axis = int(s.rng.integers(0, 4)) if axis is None else axis
    sizes = tuple(int(n) for n in s.rng.integers(1, 4, int(s.rng.integers(2, 4))))
    dims = [2, 3, 4, 5]
    dims[axis] = sum(sizes)
    written = axis - 4 if s.rng.integers(2) else axis
    return s.many("Split", s.x(*dims), None, outputs=len(sizes), axis=written, split=sizes), axis


def _maps(s: Sketch) -> Graph:
    parts, _ = _parts(s)
    kind = int(s.rng.integers(3))
    if kind == 0:
        low, high = s.c(-1.0), s.c(2.0)
        return s.graph(*(s("Clip", part, low, high) for part in parts))
    if kind == 1:
        return s.graph(*(s("LeakyRelu", part, alpha=0.25) for part in parts))
    return s.graph(*(s("Relu", part) for part in parts))


def _constants(s: Sketch) -> Graph:
    parts, axis = _parts(s)
    op, shared = str(s.rng.choice(["Add", "Mul"])), s.positive()
    results = []
    for part in parts:
        dims = s.dims(part)
        own = s.positive(*(extent if at == axis or s.rng.integers(2) else 1 for at, extent in enumerate(dims)))
        constant = shared if s.rng.integers(3) == 0 else own
        results.append(plus(s, part, constant) if op == "Add" else s("Mul", part, constant))
    return s.graph(*results)


def _depthwise(s: Sketch, **attrs: object) -> Graph:
    parts, _ = _parts(s, axis=1)
    results = []
    for part in parts:
        channels = s.dims(part)[1]
        bias = (s.normal(channels),) if s.rng.integers(2) else ()
        weights = s.normal(channels, 1, 3, 2)
        results.append(
            s("Conv", part, weights, *bias, group=channels, **{"pads": (1, 0, 1, 1), "strides": (2, 1), **attrs})
        )
    return s.graph(*results)


def _two_maps(s: Sketch) -> Graph:
    first, second = s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(1, 3))
    return s.graph(s("LeakyRelu", first, alpha=0.1), s("LeakyRelu", second, alpha=0.2))


def _dense(s: Sketch) -> Graph:
    parts = s.many("Split", s.x(1, 4, 5), None, outputs=2, axis=1, split=(2, 2))
    return s.graph(*(s("Conv", part, s.normal(2, 2, 1)) for part in parts))


def _one_constant(s: Sketch) -> Graph:
    first, second = s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(2, 2))
    return s.graph(s("Add", first, s.normal(2)), s("Add", second, s.x(2)))


LEFT: Mapping[str, Drawing] = {
    "map_of_split": _maps,
    "constants_of_split": _constants,
    "depthwise_of_split": _depthwise,
}

REFUSED: Mapping[str, Refusal] = {
    "map_of_split": (_two_maps, "different functions"),
    "constants_of_split": (_one_constant, "not all parts"),
    "depthwise_of_split": (_dense, "channel by channel"),
}
