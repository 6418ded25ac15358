"""What a machine that computes right gives for inputs, told by the reference alone: for programs that nothing runs."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.prove.agree import (
    MOST_GRANTED,
    NOISE_ALLOWANCE,
    Evaluate,
    Known,
    Noise,
    constant_outputs,
    named,
    rounding_errors,
)
from compiler.prove.choices import is_torn
from compiler.prove.sizes import cut, own_outputs

EVALUATIONS = 6
"""Of the reference, that it takes at most; three more where something rounds to 8 bits or boxes are chosen."""


def foretold(
    graph: Graph, shapes: OpenShapes | None, evaluate: Evaluate, known: Known, accepted: float, noise: Noise
) -> tuple[tuple[str, ...], float]:
    """Names of the outputs that known inputs show of any right program, and the error relative to their largest values.

    A float is left out where its error, NOISE_ALLOWANCE times that of evaluations that round as the precision does, is
    more than could be granted; whole numbers where one of them differs there. All are, where rounding decides a choice
    of boxes.
    """
    outputs, constant = own_outputs(graph, shapes), constant_outputs(graph)
    if is_torn(graph, evaluate, known.inputs, accepted, noise.mantissa):
        return (), accepted
    want = cut(graph, shapes, known.found)
    draws = rounding_errors(graph, shapes, evaluate, known.inputs, noise, want, outputs)
    granted = max(accepted, MOST_GRANTED)
    decided, tolerance = [], accepted
    for value, array, errors in zip(outputs, want, zip(*draws, strict=True), strict=True):
        allowed = NOISE_ALLOWANCE * max(errors)
        is_shown = value.id in constant or bool(np.isfinite(array).any())
        if is_shown and allowed <= (granted if value.type.dtype.is_float else 0):
            decided.append(named(value))
            tolerance = max(tolerance, allowed)
    return tuple(decided), tolerance
