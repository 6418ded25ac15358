"""Constants of a platform's formula from measured times of whole models on one device, by least squares.

A device's time is a sum of parts, each proportional to a constant: seconds of a call and of an operator, and the
reciprocals of rates. Each residual is taken relative to its measured time, so that a small network counts as much as a
large one, and no constant is negative: of all subsets of parts the one is taken whose unconstrained solution is
non-negative and has the least residual (with few parts that is exact; Lawson and Hanson 1974, chapter 23).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.errors import OptionsError
from compiler.ir.graph import Graph
from compiler.legalise.placement import SEEN
from compiler.platforms.costs import PRODUCTS, elements_of, ends_product, is_depthwise
from compiler.rewrite.gain import operations

RATES = ("macs", "depthwise", "elements", "streamed")
"""Parts whose constants are per second; that of `operator` is seconds."""


@dataclass(frozen=True)
class Measured:
    """What a network asks of a device by part (see `parts_of`), and the seconds that it was measured to take.

    known  of these, what is accounted for by constants that are not fitted
    """

    name: str
    parts: Mapping[str, float]
    seconds: float
    known: float = 0.0


@dataclass(frozen=True)
class Fit:
    """Constants by part as a platform's file has them; infinite rates and zero seconds cost nothing.

    errors    predicted over measured, less one, by network
    left_out  the same, predicted from constants that were fitted to all others
    """

    constants: Mapping[str, float]
    errors: Mapping[str, float]
    left_out: Mapping[str, float]


def parts_of(graph: Graph, memory: float = math.inf) -> dict[str, float]:
    """Operators, multiply-accumulates, elements of other operators, and bytes of weights beyond `memory`.

    Multiply-accumulates of depthwise convolutions are `depthwise`. A weight is a byte, as in int8.
    """
    parts = dict.fromkeys(("operator", "macs", "depthwise", "elements"), 0.0)
    for node in graph.nodes:
        if node.op in SEEN or ends_product(graph, node):
            continue
        parts["operator"] += 1
        if node.op in PRODUCTS:
            parts["depthwise" if is_depthwise(graph, node) else "macs"] += operations(node, graph.type) / 2
        else:
            parts["elements"] += elements_of(graph, node)
    weights = sum(graph.type(id).elements for id in graph.constants)
    return {**parts, "streamed": max(weights - memory, 0.0)}


def fit(rows: Sequence[Measured], parts: Sequence[str]) -> Fit:
    """The constants of `parts` that predict the rows best, and how well those of the other rows predict each.

    Raises OptionsError where there are no more rows than parts.
    """
    if len(rows) <= len(parts):
        raise OptionsError(
            f"{len(rows)} times cannot tell {len(parts)} constants apart and test them",
            fix="give times of more networks, or fit fewer constants",
        )
    found = _solved(rows, parts)
    others = {one.name: _solved([row for row in rows if row is not one], parts) for one in rows}
    return Fit(
        {part: _constant(part, value) for part, value in zip(parts, found, strict=True)},
        {one.name: _predicted(one, parts, found) / one.seconds - 1 for one in rows},
        {one.name: _predicted(one, parts, others[one.name]) / one.seconds - 1 for one in rows},
    )


def _solved(rows: Sequence[Measured], parts: Sequence[str]) -> np.ndarray:
    """Seconds of one unit of each part, none negative."""
    matrix = np.array([[row.parts[part] / row.seconds for part in parts] for row in rows])
    wanted = np.array([1 - row.known / row.seconds for row in rows])
    best, least = np.zeros(len(parts)), float(np.sum(wanted**2))
    for size in range(1, len(parts) + 1):
        for some in itertools.combinations(range(len(parts)), size):
            columns = matrix[:, some]
            scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
            found = np.linalg.lstsq(columns / scale, wanted, rcond=None)[0] / scale
            residual = float(np.sum((columns @ found - wanted) ** 2))
            if (found >= 0).all() and residual < least:
                best, least = np.zeros(len(parts)), residual
                best[list(some)] = found
    return best


def _predicted(row: Measured, parts: Sequence[str], seconds: np.ndarray) -> float:
    return row.known + float(sum(row.parts[part] * value for part, value in zip(parts, seconds, strict=True)))


def _constant(part: str, seconds: float) -> float:
    return seconds if part not in RATES else 1 / seconds if seconds else math.inf
