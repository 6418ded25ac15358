"""What readers demand of the numbers that they read: positions, lengths, the domain of a function, a mask."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from compiler.ir.graph import Graph, Node
from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait
from compiler.prove.interval import TRUTH, Interval, of_array

LOGICAL = having(Trait.LOGICAL)
"""Operators that make an integer input a mask."""
RECURRENT = having(Trait.RECURRENT)
LENGTHS = 4
"""Position of the sequences' lengths among the inputs of a recurrent layer."""
NOT_BELOW_ZERO = ("Log", "Sqrt")
MASKING = 1e3
"""What 1 - mask is multiplied by, at least, so that a Softmax leaves an element out."""


class Weight(IntEnum):
    """How much a demand counts, the most first.

    MUST    otherwise the model itself has no meaning, and its reference ends
    DOMAIN  otherwise results are no numbers
    HINT    otherwise the model shows little of what it does; for inputs of which nothing else is demanded
    """

    MUST = 0
    DOMAIN = 1
    HINT = 2


@dataclass(frozen=True)
class Demand:
    """What a node demands of a value that it reads, and why, as the end of "it is ...".

    `also` is what it understands besides, such as positions that are counted from the end: used where `wanted` cannot
    be had.
    """

    value: int
    wanted: Interval
    node: Node
    why: str
    weight: Weight = Weight.MUST
    also: Interval | None = None

    def __str__(self) -> str:
        return f"{self.node.op} {self.node.source!r} reads it as {self.why}"


def demands(graph: Graph) -> Iterator[Demand]:
    """All of a graph, in its order."""
    for node in graph.nodes:
        yield from _positions(graph, node)
        yield from _lengths(graph, node)
        yield from _domains(graph, node)
        yield from _masks(graph, node)
        yield from _spans(graph, node)


def _positions(graph: Graph, node: Node) -> Iterator[Demand]:
    places = OPERATORS[node.op].indices if node.op in OPERATORS else ()
    for place in places:
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is None or not graph.type(value).elements or (extent := _indexed_extent(graph, node)) is None:
            continue
        wanted, why = Interval(0, extent - 1), f"a position among {extent}"
        if node.op == "OneHot":
            yield Demand(value, wanted, node, why, Weight.HINT)
        elif node.op == "TensorScatter":
            is_circular = node.attrs.get("mode", "linear") == "circular"
            yield Demand(value, wanted, node, why, Weight.HINT if is_circular else Weight.MUST)
        else:
            yield Demand(value, wanted, node, why, also=Interval(-extent, extent - 1))


def _indexed_extent(graph: Graph, node: Node) -> int | None:
    """How many positions an index may take: along `axis`, or the least of the dimensions for the ND forms.

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


def _lengths(graph: Graph, node: Node) -> Iterator[Demand]:
    """Of sequences: no more steps than there are."""
    if node.op in RECURRENT and len(node.inputs) > LENGTHS:
        place, time = LENGTHS, 1 if node.attrs.get("layout", 0) else 0
    elif node.op == "ReverseSequence":
        place, time = 1, _int(node.attrs, "time_axis")
    else:
        return
    data, value = node.inputs[0], node.inputs[place]
    if data is not None and value is not None:
        steps = graph.type(data).dims[time]
        yield Demand(value, Interval(0, steps), node, f"the length of a sequence of at most {steps}")


def _domains(graph: Graph, node: Node) -> Iterator[Demand]:
    first = node.inputs[0] if node.inputs else None
    if node.op in NOT_BELOW_ZERO and first is not None:
        yield Demand(first, Interval(0, math.inf), node, "a number that is not below zero", Weight.DOMAIN)
    if node.op not in ("Div", "Mod", "BitShift"):
        return
    value = node.inputs[1]
    assert value is not None
    dtype = graph.type(value).dtype
    if dtype.is_integer:
        limit, why = (math.inf, "a divisor") if node.op != "BitShift" else (8 * dtype.bytes - 1, "a count of bits")
        yield Demand(value, Interval(0 if node.op == "BitShift" else 1, limit), node, why, Weight.DOMAIN)


def _masks(graph: Graph, node: Node) -> Iterator[Demand]:
    """Integers that are asked yes or no, or compared with constants, so that both answers are given."""
    for place, value in enumerate(node.inputs):
        if value is None or value in graph.constants:
            continue
        dtype = graph.type(value).dtype
        is_answer = node.op == "Cast" and graph.type(node.outputs[0]).dtype.value == "bool"
        is_inverted = node.op == "Sub" and place == 1 and _is_all_one(_constant(graph, node, 0))
        if dtype.is_integer and (is_answer or is_inverted):
            yield Demand(value, TRUTH, node, "a mask", Weight.HINT)
        elif dtype.is_integer and node.op in LOGICAL and not (node.op == "Where" and place):
            yield Demand(value, _compared(graph, node, place), node, "what a comparison decides by", Weight.HINT)
        elif dtype.is_float and is_inverted and _is_masking(graph, node):
            yield Demand(value, TRUTH, node, "a mask", Weight.HINT)


def _compared(graph: Graph, node: Node, place: int) -> Interval:
    """Numbers for which a comparison with a constant gives both answers: up to one beyond it."""
    other = _constant(graph, node, 1 - place) if len(node.inputs) == 2 else None
    if other is None or not other.size:
        return TRUTH
    against = of_array(other)
    if not against.is_finite:
        return TRUTH
    low, high = math.floor(against.low), math.ceil(against.high)
    return Interval(min(low, 0), max(high, 1)) if low == high else Interval(low, high + 1)


def _is_masking(graph: Graph, node: Node) -> bool:
    """Whether 1 - mask becomes 0 or a number far below all others."""
    for reader in graph.readers[node.outputs[0]]:
        factors = [graph.constants[value] for value in reader.used if value in graph.constants]
        if reader.op == "Mul" and any(factor.size and float(np.min(factor)) <= -MASKING for factor in factors):
            return True
    return False


def _spans(graph: Graph, node: Node) -> Iterator[Demand]:
    """Integers of which a Clip or a Mod leaves only some as they are."""
    value = node.inputs[0] if node.inputs else None
    if value is None or node.op not in ("Clip", "Mod") or not graph.type(value).dtype.is_integer:
        return
    bounds = [_constant(graph, node, place) for place in (1, 2)]
    if node.op == "Clip" and all(bound is not None and bound.size for bound in bounds):
        low, high = (of_array(bound) for bound in bounds if bound is not None)
        wanted = Interval(low.low, high.high)
    elif node.op == "Mod" and bounds[0] is not None and bounds[0].size:
        wanted = Interval(0, of_array(bounds[0]).high - 1)
    else:
        return
    if wanted.low < wanted.high:
        yield Demand(value, wanted, node, f"a number of {wanted}", Weight.HINT)


def _is_all_one(array: np.ndarray | None) -> bool:
    return array is not None and bool(np.all(array == 1))


def _constant(graph: Graph, node: Node, position: int) -> np.ndarray | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    return None if value is None else graph.constants.get(value)


def _int(attrs: Mapping[str, object], name: str, default: int = 0) -> int:
    value = attrs.get(name, default)
    assert isinstance(value, int)
    return value
