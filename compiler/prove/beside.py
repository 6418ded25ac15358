"""An artifact's errors beside those of float32 itself, and the decisions that rest on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.contract import BesideFloat32, LayerError, OutputError
from compiler.ir.graph import Value

TIMES, LEAST = 4.0, 1e-6
"""As far as float32 itself, and of the largest value, from which on an artifact's error is explained."""
SCORE = 0.5
"""What a box's score is above."""
Decisions = dict[str, tuple[int, int]]
"""By output how many of its rows decide, and how many of them otherwise than the reference."""


def count_decisions(
    decisions: Decisions, outputs: Sequence[Value], got: Sequence[np.ndarray], want: Sequence[np.ndarray]
) -> None:
    """Counts those of one way to run a program: classes, or boxes above a threshold (`BesideFloat32.decisions`).

    Of several ways that is kept which decides otherwise most often.
    """
    for value, found, right in zip(outputs, got, want, strict=True):
        is_float = value.type.dtype.is_float and not value.type.dtype.is_small
        if is_float and found.shape == right.shape and right.size and (decide := _way(right)):
            differing = int(np.count_nonzero(decide(found) != decide(right)))
            name = value.name or f"%{value.id}"
            decisions[name] = math.prod(right.shape[:-1]), max(differing, decisions.get(name, (0, 0))[1])


def _way(right: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """How the rows of an output decide, by its reference; None where they decide nothing."""
    if right.ndim == 2 and right.shape[1] > 1 and np.isfinite(right).all():
        return _classes
    return _boxes if right.ndim > 2 and (right >= 0).all() and (right <= 1).all() else None


def _classes(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows.argmax(axis=-1))


def _boxes(scores: np.ndarray) -> np.ndarray:
    """The class of each box, -1 where none is above the threshold."""
    return np.where(scores.max(axis=-1) > SCORE, scores.argmax(axis=-1), -1)


def is_far(one: BesideFloat32) -> bool:
    """Whether an output is so much less exact than float32 itself that it is to be explained."""
    return one.artifact > max(TIMES * one.float32, LEAST)


def beside_float32(
    outputs: Sequence[Value], ours: Sequence[OutputError], plain: Sequence[OutputError]
) -> tuple[BesideFloat32, ...]:
    """The errors of outputs of floats beside those of a `plain` evaluation, where that is finite."""
    return tuple(
        BesideFloat32(one.output, one.max_relative, own.max_relative)
        for value, one, own in zip(outputs, ours, plain, strict=True)
        if value.type.dtype.is_float and not value.type.dtype.is_small and math.isfinite(own.max_relative)
    )


def with_decisions(beside: Sequence[BesideFloat32], found: Mapping[str, tuple[int, int]]) -> tuple[BesideFloat32, ...]:
    """With those of one more case."""
    counted = ((one, *found.get(one.output, (0, 0))) for one in beside)
    return tuple(
        replace(one, decisions=one.decisions + rows, differing=one.differing + other) for one, rows, other in counted
    )


def explained(beside: Sequence[BesideFloat32], rounded: Collection[str], layers: Sequence[LayerError]) -> list[str]:
    """Of each output that is much less exact than float32 itself, by how much, and what rounds more, in words.

    rounded  algorithms of the program that spend a part of the tolerance
    layers   of each kernel its error, where that was found
    """
    permitted = f"{', '.join(sorted(rounded))} may round more, as far as the tolerance goes"
    why = permitted if rounded else "sums are in another order"
    return [
        f"output {one.output!r} is {one.artifact / max(one.float32, 1e-12):.0f} times as far from float64 as a plain "
        f"evaluation in float32: {one.artifact:.1e} and {one.float32:.1e} of the largest value; {why}{_begin(layers)}"
        for one in beside
        if is_far(one)
    ]


def _begin(layers: Sequence[LayerError]) -> str:
    """The first kernel whose result is so far off, in words; else the one that adds most to what it reads."""
    for one in layers:
        ours = math.inf if one.max_relative is None else one.max_relative
        if one.float32 is not None and ours > max(TIMES * one.float32, LEAST):
            return (
                f"; the first value that is so far off is {one.value!r}, which {_nodes(one)} compute: "
                f"{ours:.1e}, and {one.float32:.1e} in plain float32"
            )
    worst = max(layers, key=lambda one: (one.max_relative or 0.0) - (one.inherited or 0.0), default=None)
    return "" if worst is None else f"; most of it begins at {_nodes(worst)}"


def _nodes(one: LayerError) -> str:
    return f"{', '.join(map(repr, one.nodes)):.200}"
