"""Inputs to judge a program on: random ones in plausible ranges, and edge cases.

An integer that ends up as an index must stay in range, or the model itself has no meaning. How an input is used is
found by following its readers through operators that keep its values (Cast, Reshape, Concat and the like).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait

KEEPS_VALUES = having(Trait.VIEW) | {"Tile", "Cast", "Clip", "Floor", "Max", "Min", "Round"}
"""Operators whose results hold values of their first inputs; Clip, Min and Max only narrow them."""
ASKS_YES_OR_NO = having(Trait.LOGICAL)
"""Operators that make an integer input a mask."""
NEEDS_POSITIVE = frozenset(("Log", "Sqrt"))
BYTE = 255
LARGE = 100.0
"""Float edge inputs are this much larger than random ones: enough to saturate activations, not to overflow sums of
products."""


@dataclass(frozen=True)
class _Use:
    """What the readers of an input expect: an integer of 0 .. `high`, or a positive number."""

    high: int | None = None
    mask: bool = False
    positive: bool = False


def sample_inputs(graph: Graph, seed: int) -> dict[int, np.ndarray]:
    """Random inputs by value id, in declared dtype and shape: floats normal, booleans even, integers in their range."""
    random = np.random.default_rng(seed)
    return {value: _random(graph, value, random) for value in graph.inputs}


EDGES = ("zeros", "ones", "negative", "large")


def edge_inputs(graph: Graph, seed: int) -> Iterator[tuple[str, dict[int, np.ndarray]]]:
    """Named edge cases, one at a time: every input zero, one, negative, large; indices at the ends of their range."""
    for name in EDGES:
        random = np.random.default_rng(seed + 1)
        yield name, {value: _edge(graph, value, name, random) for value in graph.inputs}


def _edge(graph: Graph, value: int, name: str, random: np.random.Generator) -> np.ndarray:
    """An input in an edge case; as much is drawn for each name."""
    base = _random(graph, value, random)
    use, dtype = _use(graph, value), graph.type(value).dtype
    one = base.dtype.type(1)
    if dtype.is_float and use.high is None:
        match name:
            case "zeros":
                return np.zeros_like(base)
            case "ones":
                return np.full_like(base, one)
            case "negative":
                return np.asarray(np.abs(base) if use.positive else -np.abs(base))
            case _:
                return np.asarray(base.astype(np.float64) * LARGE).astype(base.dtype)
    top = base.dtype.type(_highest(dtype, use))
    number = {"zeros": base.dtype.type(0), "ones": min(one, top), "negative": _lowest(dtype, use), "large": top}[name]
    return np.full_like(base, number)


def _random(graph: Graph, value: int, random: np.random.Generator) -> np.ndarray:
    type = graph.type(value)
    use = _use(graph, value)
    if type.dtype is DType.BOOL:
        return random.integers(0, 2, type.dims).astype(np.bool_)
    if type.dtype.is_float and use.high is None:
        drawn = random.standard_normal(type.dims)
        return (np.abs(drawn) + 0.1 if use.positive else drawn).astype(type.dtype.numpy)
    low, high = _lowest(type.dtype, use), _highest(type.dtype, use)
    return random.integers(low, high, type.dims, endpoint=True).astype(type.dtype.numpy)


def _lowest(dtype: DType, use: _Use) -> int:
    """Small integers are quantised data and use their whole range; others count, index or mask and are not negative."""
    return int(np.iinfo(np.int8).min) if dtype is DType.I8 and use.high is None else 0


def _highest(dtype: DType, use: _Use) -> int:
    if dtype is DType.BOOL or (use.mask and use.high is None):
        return 1
    limit = int(np.iinfo(dtype.numpy).max) if dtype.is_integer else BYTE
    return min(BYTE if use.high is None else use.high, limit)


def _use(graph: Graph, value: int) -> _Use:
    """All that the readers of a value, direct and behind operators that keep it, expect of it."""
    found: list[_Use] = []
    followed, seen = [value], {value}
    while followed:
        current = followed.pop()
        for node in graph.readers[current]:
            found += _uses_by(graph, node, current)
            if node.op in KEEPS_VALUES:
                followed += [result for result in node.outputs if result not in seen]
                seen.update(node.outputs)
    highs = [use.high for use in found if use.high is not None]
    return _Use(min(highs) if highs else None, any(use.mask for use in found), any(use.positive for use in found))


def _uses_by(graph: Graph, node: Node, value: int) -> Iterator[_Use]:
    reads = [position for position, used in enumerate(node.inputs) if used == value]
    indices = OPERATORS[node.op].indices if node.op in OPERATORS else ()
    if any(position in reads for position in indices) and (extent := _indexed_extent(graph, node)) is not None:
        yield _Use(high=max(extent - 1, 0))
    if node.op in ASKS_YES_OR_NO or (node.op == "Cast" and graph.type(node.outputs[0]).dtype is DType.BOOL):
        yield _Use(mask=True)
    if node.op == "Sub" and 1 in reads:
        minuend = _constant(graph, node, 0)
        yield _Use(mask=minuend is not None and bool(np.all(minuend == 1)))
    if node.op in NEEDS_POSITIVE:
        yield _Use(positive=True)


def _indexed_extent(graph: Graph, node: Node) -> int | None:
    """How many positions an index may take: along `axis`, or the least of the leading dimensions for the ND forms.

    None where that is not known.
    """
    if node.op == "OneHot":
        return _depth(graph, node)
    data, index = node.inputs[0], node.inputs[1]
    assert data is not None
    assert index is not None
    dims = graph.type(data).dims
    if node.op == "TensorScatter":  # the whole update lies inside, from its index on
        axis = _int(node.attrs, "axis", -2)
        return dims[axis] - graph.type(index).dims[axis] + 1
    if node.op in ("GatherND", "ScatterND"):
        batch = _int(node.attrs, "batch_dims")
        width = graph.type(index).dims[-1]
        return min(dims[batch : batch + width], default=1)
    return dims[_int(node.attrs, "axis")] if dims else 1


def _depth(graph: Graph, node: Node) -> int | None:
    """OneHot's depth, where it is an attribute by now or a constant."""
    given = node.attrs.get("depth")
    if given is None and (constant := _constant(graph, node, 1)) is not None:
        given = constant.reshape(-1)[0].item()
    if isinstance(given, tuple):
        given = given[0]
    return int(given) if isinstance(given, int | float) and math.isfinite(given) else None


def _constant(graph: Graph, node: Node, position: int) -> np.ndarray | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    return None if value is None else graph.constants.get(value)


def _int(attrs: Mapping[str, object], name: str, default: int = 0) -> int:
    value = attrs.get(name, default)
    assert isinstance(value, int)
    return value
