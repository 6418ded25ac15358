"""Left sides of the rules of `gathers`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _gather(s: Sketch) -> Graph:
    """Of one index, of a range in either direction, of a range of several axes, or of all."""
    axis = int(s.rng.integers(3))
    ranges = [5, [-1], [1, 2, 3], [4, 2, 0], [[0, 1], [2, 3]], [0, 1, 2, 3, 4, 5]]
    indices = s.c(ranges[int(s.rng.integers(len(ranges)))], DType.I64)
    return s.graph(s("Abs", s("Gather", s.x(6, 6, 6), indices, axis=axis)))


def _scatter(s: Sketch, rows: np.ndarray, *dims: int, **attrs: str) -> Graph:
    x = s.x(3, 4, 2)
    updates = s.x(*dims, *(3, 4, 2)[rows.shape[-1] :])
    return s.graph(s("Abs", s("ScatterND", x, s.c(rows.reshape(*dims, -1), DType.I64), updates, **attrs)))


def _grid(first: tuple[int, ...], extents: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.indices(extents).reshape(len(extents), -1).T + np.array(first))


def _block(s: Sketch) -> Graph:
    kind = int(s.rng.integers(4))
    if kind == 0:
        return _scatter(s, _grid((1,), (2,)), 2)
    if kind == 1:
        return _scatter(s, _grid((0, 0, 1), (3, 4, 1)), 3, 4)
    if kind == 2:
        return _scatter(s, _grid((0, 1), (3, 2)), 3, 2)
    return _scatter(s, _grid((0, 0), (3, 4)), 3, 4)


def _between(s: Sketch, axis: int = 3) -> Graph:
    x = s("Reshape", s.x(2, 3, 5), None, shape=(2, 1, 3, 5))
    indices = s.c(s.rng.integers(0, s.dims(x)[axis], (2, 2)), DType.I64)
    return s.graph(s("Reshape", s("Gather", x, indices, axis=axis), None, shape=(2, -1)))


def _unfolded(s: Sketch, gap: int = 0) -> Graph:
    """Windows of a row, as channels of a 1 x 1 convolution: of a whole row or from its second element on."""
    taps, places, dilation, stride = (int(n) for n in s.rng.integers([2, 2, 1, 1], [4, 5, 3, 3]))
    first, rows = int(s.rng.integers(2)), (1,) * int(s.rng.integers(2))
    indices = first + dilation * np.arange(taps)[:, None] + stride * np.arange(places)
    indices[-1, -1] += gap
    batch, deep = int(s.rng.integers(1, 3)), 2
    x = s.x(batch, deep, *rows, int(indices.max()) + 1 + int(s.rng.integers(2)))
    taken = s("Gather", x, s.c(indices, DType.I64), axis=-1)
    image = s("Reshape", taken, None, shape=(batch, deep * taps, *rows, places))
    return s.graph(s("Conv", image, s.normal(3, deep * taps, *rows, 1), s.normal(3)))


LEFT: Mapping[str, Drawing] = {
    "gather_of_range": _gather,
    "scatter_of_block": _block,
    "gather_between_reshapes": _between,
    "unfold_into_conv": _unfolded,
}

REFUSED: Mapping[str, Refusal] = {
    "gather_of_range": (lambda s: s.graph(s("Gather", s.x(6), s.c([0, 1, 3], DType.I64), axis=0)), "no range"),
    "scatter_of_block": (lambda s: _scatter(s, _grid((1, 1), (2, 2)), 2, 2), "parts of axes"),
    "gather_between_reshapes": (
        lambda s: s.graph(
            s(
                "Reshape",
                s("Gather", s("Reshape", s.x(6), None, shape=(2, 3)), s.c([0, 0], DType.I64), axis=1),
                None,
                shape=(-1,),
            )
        ),
        "splits or joins",
    ),
    "unfold_into_conv": (lambda s: _unfolded(s, gap=1), "no windows"),
}
