"""Inputs to judge a program on: random ones in the ranges that their readers demand (`ranges`), and edge cases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from compiler.ir import arithmetic
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.tensor import DType, TensorType
from compiler.prove.interval import EVERYTHING, TRUTH, Interval
from compiler.prove.ranges import derive

BYTE = 255
LARGE = 100.0
"""Float edge inputs are this much larger than random ones: enough to saturate activations, not to overflow sums of
products."""
CLEAR = 0.1
"""How far random floats stay from the one bound that they have."""
EDGES = ("zeros", "ones", "negative", "large")
"""Cases."""
FURTHER = ("one sign", "offset", "wide range", "small numbers")
"""Cases that are drawn like the random one, from another distribution."""
FEW = 3
"""The most by which an integer of the case `small numbers` exceeds the least."""
OFFSET = 30.0
"""Of floats of the case `offset`, whose spread is 1: what subtracts a mean loses five bits."""
DECADES = 6.0
"""Between the least and the greatest magnitude of the case `wide range`."""


def sample_inputs(graph: Graph, seed: int, shapes: OpenShapes | None = None) -> dict[int, np.ndarray]:
    """Random inputs by value id, in declared dtype and shape: floats normal, booleans even, integers in their range.

    Those of which `shapes` has examples are one of these.
    """
    random = np.random.default_rng(seed)
    ranges = _ranges(graph)
    drawn = {value: _random(graph.type(value), ranges[value], random) for value in graph.inputs}
    return drawn | _examples(graph, shapes, seed)


def ends_of_integers(graph: Graph) -> list[tuple[float, float]]:
    """The least and the greatest number that is drawn for each input, in order; for floats infinities."""
    ranges = _ranges(graph)
    typed = ((graph.type(value).dtype, ranges[value]) for value in graph.inputs)
    return [(-math.inf, math.inf) if dtype.is_float else _ends(dtype, allowed) for dtype, allowed in typed]


def edge_inputs(
    graph: Graph, seed: int, shapes: OpenShapes | None = None
) -> Iterator[tuple[str, dict[int, np.ndarray]]]:
    """Named edge cases, one at a time: every input zero, one, negative, large.

    Those with a range stay in it (at its two ends); of those with examples each case has another one.
    """
    ranges = _ranges(graph)
    for place, name in enumerate(EDGES):
        random = np.random.default_rng(seed + 1)
        edge = {value: _edge(graph.type(value), ranges[value], name, random) for value in graph.inputs}
        yield name, edge | _examples(graph, shapes, seed + 1 + place)


def further_inputs(
    graph: Graph, seed: int, shapes: OpenShapes | None = None
) -> Iterator[tuple[str, dict[int, np.ndarray]]]:
    """Named draws that are unlike the random one, one at a time, in the ranges of the inputs.

    Floats all of one sign, far from zero beside their spread, over many decades, and integers at the lower end of their
    range: sums that do not cancel, differences that do, and counts and indices of few.
    """
    ranges = _ranges(graph)
    has_floats = any(graph.type(value).dtype.is_float for value in graph.inputs)
    has_integers = any(not graph.type(value).dtype.is_float for value in graph.inputs)
    for place, name in enumerate(FURTHER):
        if not (has_integers if name == "small numbers" else has_floats):
            continue
        random = np.random.default_rng((seed, 1 + place))
        drawn = {value: _further(graph.type(value), ranges[value], name, random) for value in graph.inputs}
        yield name, drawn | _examples(graph, shapes, seed + len(EDGES) + 1 + place)


def _further(type: TensorType, allowed: Interval, name: str, random: np.random.Generator) -> np.ndarray:
    """An input in such a case."""
    if not type.dtype.is_float:
        low, high = _ends(type.dtype, allowed)
        if type.dtype is DType.BOOL and type.elements == 1 and name != "small numbers":
            low = high  # what decides whether a part of the model runs at all: it does
        if name == "small numbers":
            high = min(high, max(low, 0) + FEW)
        return random.integers(math.ceil(low), math.floor(high), type.dims, endpoint=True).astype(type.dtype.numpy)
    if name == "small numbers":
        return _random(type, allowed, random)
    if not allowed.is_finite:
        magnitude = np.abs(random.standard_normal(type.dims)) + CLEAR
        sign = -1.0 if allowed.high <= 0 else 1.0
        match name:
            case "one sign":
                made = sign * magnitude
            case "offset":
                made = sign * (OFFSET + random.standard_normal(type.dims))
            case _:
                made = _decades(type, random) * (
                    sign if allowed.low >= 0 or sign < 0 else random.choice([-1, 1], type.dims)
                )
        return _within(np.asarray(made), type, allowed)
    low, high = allowed.low, allowed.high
    part = random.uniform(0.0, 1.0, type.dims)
    match name:
        case "one sign":
            least = 0.0 if low < 0 < high else low
            made = least + part * (high - least)
        case "offset":
            made = low + (high - low) * (0.9 + 0.1 * part)
        case _:
            made = low + (high - low) * np.minimum(_decades(type, random), 1.0)
    return _within(np.asarray(made), type, allowed)


def _decades(type: TensorType, random: np.random.Generator) -> np.ndarray:
    """Magnitudes up to 10 whose logarithms are uniform."""
    return np.asarray(10.0 ** random.uniform(1.0 - DECADES, 1.0, type.dims))


def _examples(graph: Graph, shapes: OpenShapes | None, place: int) -> dict[int, np.ndarray]:
    """Of the inputs for which there are examples those at one place, which go together."""
    found = {}
    for number, given in shapes.examples if shapes else ():
        value = graph.inputs[number]
        kind = graph.type(value)
        found[value] = np.array(given[place % len(given)], kind.dtype.numpy).reshape(kind.dims)
    return found


def _edge(type: TensorType, allowed: Interval, name: str, random: np.random.Generator) -> np.ndarray:
    """An input in an edge case; as much is drawn for each name."""
    base = _random(type, allowed, random)
    if type.dtype.is_float and not allowed.is_finite:
        wide = base.astype(np.float64)
        match name:
            case "zeros":
                made = np.zeros_like(wide)
            case "ones":
                made = np.ones_like(wide)
            case "negative":
                made = np.asarray(np.abs(wide) if allowed.low >= 0 else -np.abs(wide))
            case _:
                made = np.asarray(wide * LARGE)
    else:
        low, high = _ends(type.dtype, allowed)
        number = min(max({"zeros": 0, "ones": 1, "negative": low, "large": high}[name], low), high)
        made = np.full(type.dims, number, np.float64 if type.dtype.is_float else np.int64)
    return _within(made, type, allowed)


def _ranges(graph: Graph) -> Mapping[int, Interval]:
    found = derive(graph).ranges
    return {value: found[value].interval if value in found else EVERYTHING for value in graph.inputs}


def _random(type: TensorType, allowed: Interval, random: np.random.Generator) -> np.ndarray:
    if type.dtype.is_float and not allowed.is_finite:
        drawn = random.standard_normal(type.dims)
        if allowed.low > -math.inf:
            drawn = allowed.low + np.abs(drawn) + CLEAR
        elif allowed.high < math.inf:
            drawn = allowed.high - np.abs(drawn) - CLEAR
        return _stored(np.asarray(drawn), type.dtype)
    if type.dtype.is_float and math.ceil(allowed.low) >= math.floor(allowed.high):
        return _within(random.uniform(allowed.low, allowed.high, type.dims), type, allowed)
    low, high = _ends(type.dtype, allowed)
    return random.integers(math.ceil(low), math.floor(high), type.dims, endpoint=True).astype(type.dtype.numpy)


def _stored(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats as elements; no small one becomes NaN, and e8m0 has no sign."""
    if not dtype.is_small:
        return array.astype(dtype.numpy)
    return arithmetic.cast(np.abs(array) if dtype is DType.F8E8M0 else array, dtype, saturate=True)


def _ends(dtype: DType, allowed: Interval) -> tuple[float, float]:
    """The least and the greatest number drawn.

    Small integers are quantised data and use their whole range; others count, index or mask, are not negative unless
    they have to be, and stay small where nothing bounds them.
    """
    if dtype is DType.BOOL:
        allowed = allowed.meet(TRUTH)
        return allowed.low, allowed.high
    if dtype.is_float:
        return allowed.low, allowed.high
    least, greatest = arithmetic.bounds(dtype)
    limits = Interval(least, min(greatest, (1 << 63) - 1))
    if allowed.is_finite:
        met = allowed.meet(limits)
        return math.ceil(met.low), math.floor(met.high)
    usual = limits if dtype is DType.I8 or dtype.is_small else Interval(0, BYTE).meet(limits)
    met = allowed.meet(usual)
    if not met.is_empty:
        return math.ceil(met.low), math.floor(met.high)
    if allowed.low > -math.inf:
        return math.ceil(allowed.low), min(math.ceil(allowed.low) + BYTE, int(limits.high))
    return max(math.floor(allowed.high) - BYTE, int(limits.low)), math.floor(allowed.high)


def _within(array: np.ndarray, type: TensorType, allowed: Interval) -> np.ndarray:
    """In a type; no float past a bound, to which rounding may have brought it."""
    dtype = type.dtype.numpy
    if type.dtype.is_small and type.dtype.is_float:
        return _stored(np.clip(array, allowed.low, allowed.high), type.dtype)
    if not type.dtype.is_float:
        return array.astype(dtype)
    clipped = np.clip(array, allowed.low, allowed.high).astype(dtype)
    wide = clipped.astype(np.float64)
    inwards = np.where(wide > allowed.high, -np.inf, np.inf).astype(dtype)
    is_past = (wide > allowed.high) | (wide < allowed.low)
    moved: np.ndarray = np.where(is_past, np.nextafter(clipped, inwards), clipped)
    return moved
