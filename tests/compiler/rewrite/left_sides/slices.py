"""Left sides of the rules of `slices`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, inner_output
from tests.compiler.rewrite.sketch import Sketch


def _cut(s: Sketch, x: int) -> int:
    """A Slice that takes something of one or two axes, forwards or backwards."""
    dims = s.dims(x)
    axes = [int(a) for a in s.rng.permutation(len(dims))[: int(s.rng.integers(1, 3))]]
    starts, ends, steps = [], [], []
    for axis in axes:
        a, b = sorted(int(v) for v in s.rng.choice(dims[axis] + 1, 2, replace=False))
        backwards = bool(s.rng.integers(2))
        starts.append(b - 1 if backwards else a - (dims[axis] if s.rng.integers(2) and a < dims[axis] else 0))
        ends.append((a - 1 if a else -(2**31)) if backwards else (b if b < dims[axis] else 2**31 - 1))
        steps.append((-1 if backwards else 1) * int(s.rng.integers(1, 3)))
    places = tuple(axis - (len(dims) if s.rng.integers(2) else 0) for axis in axes)
    return s("Slice", x, *(None,) * 4, starts=tuple(starts), ends=tuple(ends), axes=places, steps=tuple(steps))


def _joined(s: Sketch) -> tuple[int, tuple[int, ...]]:
    parts = tuple(s.x(2, extent, 3) for extent in (2, 1, 4))
    return s("Concat", *parts, axis=int(s.rng.choice([1, -2]))), parts


def _slice_of_concat(s: Sketch) -> Graph:
    whole, _ = _joined(s)
    begin, extent = [(0, 2), (2, 1), (3, 4)][int(s.rng.integers(3))]
    a, b = sorted(int(v) for v in s.rng.choice(extent + 1, 2, replace=False))
    back = bool(s.rng.integers(2))
    start, end = (begin + b - 1, begin + a - 1 if begin + a else -(2**31)) if back else (begin + a, begin + b)
    attrs = {"starts": (start, 1), "ends": (end, 3), "axes": (1, 2), "steps": (-1 if back else 1, 1)}
    return s.graph(s("Slice", whole, *(None,) * 4, **attrs))


def _split_of_concat(s: Sketch) -> Graph:
    whole, _ = _joined(s)
    parts = s.many("Split", whole, None, outputs=3, axis=1, split=(2, 1, 4))
    return s.graph(*(s("Abs", part) for part in parts))


def _window(s: Sketch, x: int, first: int, past: int, axis: int = 1) -> int:
    return s("Slice", x, *(None,) * 4, starts=(first,), ends=(past,), axes=(axis,), steps=(1,))


def _parts(s: Sketch) -> Graph:
    """Neighbouring windows, all of them or some; or the end of a Concat, which is joined with something new."""
    x, y = s.x(2, 5, 3), s.x(2, 2, 3)
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s.graph(s("Concat", y, _window(s, x, 0, 2), _window(s, x, 2, 4), axis=1))
    if kind == 1:
        return s.graph(s("Abs", s("Concat", _window(s, x, 0, 3), _window(s, x, 3, 5), axis=1)))
    if kind == 2:
        first, *_, last = s.many("Split", x, None, outputs=4, axis=1, split=(1, 2, 1, 1))
        return s.graph(s("Concat", _window(s, x, 0, 4), last, y, first, axis=1))
    joined = s("Concat", x, y, s.x(2, 1, 3), axis=1)
    return s.graph(s("Concat", _window(s, joined, 5, 8), s.x(2, 5, 3), axis=-2))


def _of_pad(s: Sketch) -> Graph:
    pads = (1, 2, 2, 1)
    padded = s("Pad", s.x(2, 4), *(None,) * 3, pads=pads, constant_value=float(s.rng.integers(2)))
    first, past = int(s.rng.integers(2, 4)), int(s.rng.integers(4, 7))
    if s.rng.integers(2):  # only padding is cut off
        first, past = int(s.rng.integers(0, 3)), 7 - int(s.rng.integers(0, 2))
    else:  # all padding is
        padded = _window(s, padded, 1, 3, axis=0)
    return s.graph(s("Abs", _window(s, padded, first, past)))


LEFT: Mapping[str, Drawing] = {
    "slice_of_everything": lambda s: s.graph(
        s("Abs", s("Slice", s.x(2, 3), *(None,) * 4, starts=(0,), ends=(2**31 - 1,), axes=(-1,), steps=(1,)))
    ),
    "slice_of_slice": lambda s: s.graph(_cut(s, _cut(s, s.x(4, 5, 3)))),
    "slice_of_concat": _slice_of_concat,
    "split_of_one": lambda s: s.graph(s("Abs", s("Split", s.x(2, 3), None, axis=1, split=(3,)))),
    "split_of_concat": _split_of_concat,
    "concat_of_parts": _parts,
    "slice_of_pad": _of_pad,
    "concat_of_split": lambda s: s.graph(
        s("Abs", s("Concat", *s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(1, 3)), axis=-1))
    ),
    "concat_of_concat": lambda s: s.graph(s("Concat", s.x(2, 1), s("Concat", s.x(2, 3), s.x(2, 2), axis=1), axis=-1)),
}

REFUSED: Mapping[str, Refusal] = {
    "slice_of_everything": (
        lambda s: s.graph(s("Abs", s("Slice", s.x(3), *(None,) * 4, starts=(2,), ends=(-9,), axes=(0,), steps=(-1,)))),
        "",
    ),
    "slice_of_slice": (lambda s: s.graph(_cut(s, s("Abs", _cut(s, s.x(4, 5))))), ""),
    "slice_of_concat": (
        lambda s: s.graph(s("Slice", _joined(s)[0], *(None,) * 4, starts=(1,), ends=(4,), axes=(1,), steps=(1,))),
        "several operands",
    ),
    "split_of_one": (lambda s: s.graph(*s.many("Split", s.x(2, 3), None, outputs=2, axis=1, split=(1, 2))), ""),
    "split_of_concat": (
        lambda s: s.graph(*s.many("Split", _joined(s)[0], None, outputs=3, axis=1, split=(1, 2, 4))),
        "other parts",
    ),
    "concat_of_parts": (
        lambda s: s.graph(
            s("Concat", *(_window(s, x, a, b) for x in (s.x(2, 5),) for a, b in ((3, 5), (0, 3))), axis=1)
        ),
        "",
    ),
    "slice_of_pad": (
        lambda s: s.graph(_window(s, s("Pad", s.x(2, 4), *(None,) * 3, pads=(0, 1, 0, 1), mode="edge"), 1, 4)),
        "elements of the tensor",
    ),
    "concat_of_split": (
        lambda s: s.graph(
            s("Abs", s("Concat", *s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(2, 2))[::-1], axis=1))
        ),
        "",
    ),
    "concat_of_concat": (
        lambda s: inner_output(s.graph(s("Concat", s.x(2, 1), s("Concat", s.x(2, 3), s.x(2, 2), axis=1), axis=1)), 1),
        "needed elsewhere",
    ),
}
