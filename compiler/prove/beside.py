"""An artifact's errors beside those of float32 itself, and the decisions that rest on them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.contract import BesideFloat32, LayerError, OutputError
from compiler.ir.graph import Value

TIMES, LEAST = 4.0, 1e-6
"""As far as float32 itself, and of the largest value, from which on an artifact's error is explained."""
Decisions = dict[str, tuple[int, int]]
"""By output how many of its rows decide for a class, and how many of them otherwise than the reference."""


def count_decisions(
    decisions: Decisions, outputs: Sequence[Value], got: Sequence[np.ndarray], want: Sequence[np.ndarray]
) -> None:
    """Counts those of one way to run a program: outputs [rows, classes] of floats decide for their largest element.

    Of several ways that is kept which decides otherwise most often.
    """
    for value, found, right in zip(outputs, got, want, strict=True):
        is_float = value.type.dtype.is_float and not value.type.dtype.is_small
        if not is_float or right.ndim != 2 or right.shape[1] < 2 or found.shape != right.shape:
            continue
        if np.isfinite(right).all():
            other = int(np.count_nonzero(found.argmax(axis=1) != right.argmax(axis=1)))
            name = value.name or f"%{value.id}"
            decisions[name] = len(right), max(other, decisions.get(name, (0, 0))[1])


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
    why = f"{', '.join(sorted(rounded))} may round more" if rounded else "sums are in another order"
    if worst := max(layers, key=lambda one: (one.max_relative or 0.0) - (one.inherited or 0.0), default=None):
        why += f"; most of it begins at {', '.join(map(repr, worst.nodes)):.200}"
    return [
        f"output {one.output!r} is {one.artifact / max(one.float32, 1e-12):.0f} times as far from float64 as a plain "
        f"evaluation in float32: {one.artifact:.1e} and {one.float32:.1e} of the largest value; {why}"
        for one in beside
        if one.artifact > max(TIMES * one.float32, LEAST)
    ]
