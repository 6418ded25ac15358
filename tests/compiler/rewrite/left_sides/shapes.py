"""Left sides of the rules of `shapes`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _reshape(s: Sketch, x: int) -> int:
    dims = s.dims(x)
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s("Flatten", x, axis=int(s.rng.integers(0, len(dims) + 1)))
    if kind == 1:
        return s("Unsqueeze", x, None, axes=(int(s.rng.integers(0, len(dims) + 1)),))
    if kind == 2 and 1 in dims:
        return s("Squeeze", x, None, axes=(dims.index(1),))
    return s("Reshape", x, None, shape=(-1, int(s.rng.choice([1, dims[0]]))))


def _transpose(s: Sketch, x: int) -> int:
    return s("Transpose", x, perm=tuple(int(axis) for axis in s.rng.permutation(len(s.dims(x)))))


def _unit_transpose(s: Sketch) -> Graph:
    dims = [1, 2, 1, 3, 1]
    long = iter([1, 3])
    perm = [0, 2, 4]
    places = sorted(int(p) for p in s.rng.choice(5, 2, replace=False))
    order = [int(a) for a in s.rng.permutation(perm)]
    return s.graph(s("Transpose", s.x(*dims), perm=tuple(next(long) if p in places else order.pop() for p in range(5))))


def _cast_of_cast(s: Sketch) -> Graph:
    first, second = [(DType.I8, 6), (DType.U8, 10), (DType.F32, 11), (DType.F16, 1), (DType.BOOL, 1)][
        int(s.rng.integers(5))
    ]
    x = s.x(2, 3, dtype=first)
    return s.graph(s("Cast", s("Cast", x, to=second), to=int(s.rng.choice([1, 7, 9, 11, 10]))))


def _rearranged(s: Sketch) -> Graph:
    """A Reshape or two around transposes that are one Transpose, or none, as tf2onnx writes them around heads."""
    kind = int(s.rng.integers(3))
    if kind == 0:
        x = s("Reshape", s.x(1, 4, 6), None, shape=(1, 1, 4, 3, 2))
        x = s("Transpose", x, perm=(0, 3, 1, 2, 4))
        return s.graph(s("Transpose", s("Reshape", x, None, shape=(3, -1, 2)), perm=(0, 2, 1)))
    if kind == 1:
        x = s("Transpose", s("Reshape", s.x(6, 4), None, shape=(2, 3, 4)), perm=(2, 0, 1))
        return s.graph(s("Abs", s("Transpose", s("Reshape", x, None, shape=(4, 6)), perm=(1, 0))))
    x = s("Transpose", s.x(2, 3, 4), perm=(1, 0, 2))
    return s.graph(s("Transpose", s("Reshape", x, None, shape=(3, 2, 2, 2)), perm=(1, 0, 2, 3)))


LEFT: Mapping[str, Drawing] = {
    "reshape_to_own_shape": lambda s: s.graph(s("Abs", s("Reshape", s.x(2, 3), None, shape=(0, -1)))),
    "reshape_of_reshape": lambda s: s.graph(_reshape(s, _reshape(s, s.x(2, 1, 3)))),
    "reshape_by_another_name": lambda s: s.graph(
        s("Flatten", s.x(2, 3, 2)) if s.rng.integers(2) else s("Squeeze", s.x(1, 3, 1), None)
    ),
    "transpose_of_nothing": lambda s: s.graph(s("Abs", s("Transpose", s.x(2, 3), perm=(0, 1)))),
    "transpose_of_unit_axes": _unit_transpose,
    "transpose_of_transpose": lambda s: s.graph(_transpose(s, _transpose(s, s.x(2, 3, 4)))),
    "rearrangement_of_rearrangement": _rearranged,
    "expand_to_own_shape": lambda s: s.graph(s("Abs", s("Expand", s.x(2, 3), None, shape=(2, 1)))),
    "cast_of_cast": _cast_of_cast,
}

REFUSED: Mapping[str, Refusal] = {
    "reshape_to_own_shape": (lambda s: s.graph(s("Abs", s("Reshape", s.x(2, 3), None, shape=(3, 2)))), ""),
    "reshape_of_reshape": (lambda s: s.graph(s("Flatten", s("Transpose", s("Flatten", s.x(2, 3, 2))))), ""),
    "reshape_by_another_name": (lambda s: s.graph(s("Reshape", s.x(2, 3), None, shape=(-1,))), ""),
    "transpose_of_nothing": (lambda s: s.graph(s("Abs", s("Transpose", s.x(2, 2), perm=(1, 0)))), ""),
    "transpose_of_unit_axes": (lambda s: s.graph(s("Transpose", s.x(1, 2, 3), perm=(0, 2, 1))), ""),
    "transpose_of_transpose": (lambda s: s.graph(s("Transpose", s("Abs", s("Transpose", s.x(2, 3))))), ""),
    "rearrangement_of_rearrangement": (
        lambda s: s.graph(s("Reshape", s("Transpose", s.x(2, 3, 4), perm=(1, 0, 2)), None, shape=(3, 8))),
        "",
    ),
    "expand_to_own_shape": (lambda s: s.graph(s("Abs", s("Expand", s.x(1, 3), None, shape=(2, 3)))), ""),
    "cast_of_cast": (lambda s: s.graph(s("Cast", s("Cast", s.x(3), to=1), to=11)), "loses something"),
}
