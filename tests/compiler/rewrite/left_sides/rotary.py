"""Left sides of the rules of `rotary`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output, plus
from tests.compiler.rewrite.sketch import Sketch

WIDTH = 6


def _slice(s: Sketch, x: int, start: int, end: int, step: int = 1) -> int:
    return s("Slice", x, None, None, None, None, starts=(start,), ends=(end,), axes=(3,), steps=(step,))


def _parts(s: Sketch, x: int, paired: bool) -> tuple[int, int]:
    """The halves of the last axis, or its even and odd places."""
    if paired:
        return _slice(s, x, 0, WIDTH, 2), _slice(s, x, 1, WIDTH, 2)
    if s.rng.integers(2):
        a, b = s.many("Split", x, None, outputs=2, axis=3, split=(WIDTH // 2, WIDTH // 2))
        return a, b
    return _slice(s, x, 0, WIDTH // 2), _slice(s, x, WIDTH // 2, 2**63 - 1)


def _times(s: Sketch, a: int, b: int) -> int:
    return s("Mul", a, b) if s.rng.integers(2) else s("Mul", b, a)


def _angles(s: Sketch, width: int) -> int:
    return s.x(1, 1, 3, width) if s.rng.integers(2) else s.normal(3, width)


def _by_halves(s: Sketch, columns: int = WIDTH) -> Graph:
    """As PyTorch writes it, with halves or neighbours."""
    x, paired = s.x(1, 2, 3, WIDTH), bool(s.rng.integers(2))
    first, second = _parts(s, x, paired)
    if paired:
        apart = (1, 2, 3, WIDTH // 2, 1)
        columns_of = [s("Reshape", part, None, shape=apart) for part in (s("Neg", second), first)]
        turned = s("Reshape", s("Concat", *columns_of, axis=4), None, shape=(1, 2, 3, WIDTH))
    else:
        turned = s("Concat", s("Neg", second), first, axis=3)
    straight = _times(s, x, _angles(s, WIDTH))
    return s.graph(plus(s, straight, _times(s, turned, _angles(s, columns))))


def _by_parts(s: Sketch) -> Graph:
    a, b = _parts(s, s.x(1, 2, 3, WIDTH), paired=False)
    cosines, sines = _angles(s, WIDTH // 2), _angles(s, WIDTH // 2)
    minus = s("Sub", _times(s, a, cosines), _times(s, b, sines))
    both = plus(s, _times(s, a, sines), _times(s, b, cosines))
    return s.graph(s("Concat", minus, both, axis=3))


LEFT: Mapping[str, Drawing] = {
    "rotary_by_halves": _by_halves,
    "rotary_by_parts": _by_parts,
}

REFUSED: Mapping[str, Refusal] = {
    "rotary_by_halves": (lambda s: _by_halves(s, columns=1), "not given for each element"),
    "rotary_by_parts": (lambda s: inner_output(_by_parts(s), 1), "graph output"),
}
