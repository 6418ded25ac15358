"""Left sides of the rules of `attention`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch

HEADS, QUERIES, KEYS, WIDTH = 4, 3, 5, 2


def _reshape(s: Sketch, x: int, *dims: int) -> int:
    return s("Reshape", x, None, shape=dims)


def _swapped(s: Sketch, x: int) -> int:
    rank = len(s.dims(x))
    return s("Transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _weights(s: Sketch, scores: int, batch: int) -> int:
    """The softmax of scores [., heads, queries, keys], which may be scaled, capped and masked.

    There is a mask for each of `batch`.
    """
    if s.rng.integers(2):
        scores = s("Mul", scores, s.c(0.5))
    if s.rng.integers(3) == 0:
        scores = s("Mul", s("Tanh", scores), s.c(2.0))
    mask = int(s.rng.integers(3))
    if mask == 0:
        scores = plus(s, scores, s.normal(*((batch, 1, 1, KEYS) if s.rng.integers(2) else (QUERIES, KEYS))))
    if mask == 1:
        kept = s("Less", s.normal(batch, 1, QUERIES, KEYS), s.c(1.0))
        scores = s("Where", kept, scores, s.c(-1e9))
    return s("Softmax", scores, axis=int(s.rng.choice([-1, 3])))


def _merged(s: Sketch) -> Graph:
    """Products over batch times heads, the mask and the softmax over both apart (Keras, fairseq).

    The scores may be transposed.
    """
    batch = int(s.rng.integers(1, 3))
    q, k, v = s.x(batch * HEADS, QUERIES, WIDTH), s.x(batch * HEADS, KEYS, WIDTH), s.x(batch * HEADS, KEYS, WIDTH)
    if s.rng.integers(2):
        scores = _reshape(s, s("MatMul", q, _swapped(s, k)), batch, HEADS, QUERIES, KEYS)
    else:
        scores = _swapped(s, _reshape(s, s("MatMul", k, _swapped(s, q)), batch, HEADS, KEYS, QUERIES))
    weights = _reshape(s, _weights(s, scores, 1), batch * HEADS, QUERIES, KEYS)
    return s.graph(s("MatMul", weights, v))


def _repeated(s: Sketch, x: int) -> int:
    """[batch, 2, keys, width], each head twice in a row."""
    batch, groups, keys, width = s.dims(x)
    apart = _reshape(s, x, batch, groups, 1, keys, width)
    spread = s("Expand", apart, None, shape=(batch, groups, HEADS // groups, keys, width))
    return _reshape(s, spread, batch, HEADS, keys, width)


def _grouped(s: Sketch) -> Graph:
    """Heads of queries that share those of keys and values (PyTorch); the keys may be scaled, and end at a size."""
    batch = int(s.rng.integers(1, 3))
    q = s.x(batch, HEADS, QUERIES, WIDTH)
    k, v = (_repeated(s, s.x(batch, 2, KEYS, WIDTH)) for _ in range(2))
    keys = _swapped(s, k)
    if s.rng.integers(2):
        keys = s("Mul", keys, s.c(0.75))
    scores = s("MatMul", q, keys)
    if batch == 2:
        scores = s("PadBeyond", scores, s.x(dtype=DType.I64), axis=3, value=-100.0)
    return s.graph(s("MatMul", _weights(s, scores, batch), v))


LEFT: Mapping[str, Drawing] = {
    "attention_in_one_shape": lambda s: _grouped(s) if s.rng.integers(2) else _merged(s),
}

REFUSED: Mapping[str, Refusal] = {
    "attention_in_one_shape": (lambda s: inner_output(_grouped(s), 1), "graph output"),
}
