"""Choices that rounding may decide: the order of boxes whose scores nearly tie, an overlap that is nearly the limit.

Two right programs may then choose otherwise, and what follows from a choice may differ by any amount: errors of such a
case are no measure of a fault. Whether a case is one is asked of the model alone: numpy evaluates it with fewer bits
than the job's precision has, and chooses once more among boxes and scores that are moved by as much as is accepted of
any value. If some choice changes, rounding decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from compiler.ir.graph import Graph, Node
from compiler.ops import OPERATORS
from compiler.ops.boxes import SELECT

FLOAT32_BITS = 24
"""Of a mantissa, the leading one counted."""
FEWER = (2, 4)
"""Bits less: each rounding is up to 16 times as large, as sums in another order and faster algorithms make it."""
MOVED = 2
"""Inputs of a choice that are moved: boxes and scores."""


def is_torn(
    graph: Graph,
    evaluate: Callable[..., dict[int, np.ndarray]],
    inputs: Mapping[int, np.ndarray],
    accepted: float,
    mantissa: int,
) -> bool:
    """Whether rounding decides a choice of boxes for these inputs.

    `accepted` is the error relative to the largest value that a right program may have; `mantissa` bits are the job's,
    0 float32's.
    """
    choices = [node for node in graph.nodes if node.op == SELECT]
    if not choices:
        return False
    made = [id for node in choices for id in node.outputs]
    bits = mantissa or FLOAT32_BITS
    wanted = evaluate(inputs, keep=[*made, *(id for node in choices for id in node.used)])
    return any(_is_moved(node, wanted, accepted) for node in choices) or any(
        not np.array_equal(found[id], wanted[id]) for found in _rougher(evaluate, inputs, bits, made) for id in made
    )


def _rougher(
    evaluate: Callable[..., dict[int, np.ndarray]], inputs: Mapping[int, np.ndarray], bits: int, made: list[int]
) -> Iterator[dict[int, np.ndarray]]:
    for fewer in FEWER:
        yield evaluate(inputs, wide=False, mantissa=max(bits - fewer, 1), keep=made)


def _is_moved(node: Node, values: Mapping[int, np.ndarray], part: float) -> bool:
    """Whether another choice is made where boxes and scores differ by a part of the largest of each.

    They are moved there and back: of two that are equal one way or the other puts the later one first.
    """
    arrays = [None if id is None else values[id] for id in node.inputs]
    for way in (part, -part):
        chance = np.random.default_rng(0)
        with np.errstate(all="ignore"):
            moved = [_moved(array, way, chance) if place < MOVED else array for place, array in enumerate(arrays)]
            found = OPERATORS[node.op].reference(node, tuple(moved))
        if any(not np.array_equal(one, values[id]) for one, id in zip(found, node.outputs, strict=True)):
            return True
    return False


def _moved(array: np.ndarray | None, part: float, chance: np.random.Generator) -> np.ndarray:
    assert array is not None
    largest = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
    return np.asarray(array + part * largest * chance.uniform(-1, 1, array.shape))
