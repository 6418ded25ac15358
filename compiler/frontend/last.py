"""Outputs of which only the last position is wanted: the next token follows from the last token's logits alone.

The model is given a slice behind such an output before anything is inferred, so that rules move it up to what makes the
operand (`slice_past_sums`) and the other positions are never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compiler.errors import OptionsError
from compiler.frontend.reading.model import Call, Model, quoted

POSITIONS = -2
"""The axis of an output [.., positions, elements]."""
SLICE_BY_INPUTS = 10
"""The opset from which on Slice takes its numbers as inputs, not as attributes."""


def with_last(model: Model, names: Sequence[str]) -> Model:
    """A model whose outputs of these names have their last position alone: [.., 1, elements] of [.., S, elements].

    Raises OptionsError for a name that is no output, for one without a declared rank of 2 or more, and for one that a
    subgraph reads.
    """
    for name in names:
        model = _with_last(model, name)
    return model


def _with_last(model: Model, name: str) -> Model:
    body = model.body
    if name not in body.outputs:
        known = ", ".join(quoted(one) for one in body.outputs[:5])
        raise OptionsError(f"last_only names {quoted(name)}, which is no output", fix=f"name one of {known}")
    shape = body.declared.get(name)
    if shape is None or len(shape) < -POSITIONS:
        said = "declares no shape for it" if shape is None else f"declares it with {len(shape)} axes"
        raise OptionsError(
            f"last_only names output {quoted(name)}, and the model {said}: [.., positions, elements] is needed",
            fix="leave it out, or export the model with the output's shape",
        )
    if any(name in inner.captured for call in body.calls for inner in call.bodies):
        raise OptionsError(
            f"last_only names output {quoted(name)}, which a subgraph reads", fix="put an Identity before the output"
        )
    whole = f"{name}, of all positions"
    calls = [
        replace(
            call,
            inputs=tuple(whole if one == name else one for one in call.inputs),
            outputs=tuple(whole if one == name else one for one in call.outputs),
        )
        for call in body.calls
    ]
    axis = len(shape) + POSITIONS
    numbers = {"starts": -1, "ends": np.iinfo(np.int64).max, "axes": axis}
    source = f"last_only {name}"
    if model.opsets.get("", 0) < SLICE_BY_INPUTS:
        last = Call("Slice", (whole,), (name,), {what: (number,) for what, number in numbers.items()}, source=source)
        constants = dict(body.constants)
    else:
        given = {f"{whole}, {what}": np.array([number], np.int64) for what, number in numbers.items()}
        last = Call("Slice", (whole, *given), (name,), source=source)
        constants = {**body.constants, **given}
    if name in constants or any(one.name == name for one in body.inputs):
        raise OptionsError(f"last_only names output {quoted(name)}, which nothing computes", fix="leave it out")
    declared = {**body.declared, name: (*shape[:axis], 1, *shape[axis + 1 :])}
    return replace(model, body=replace(body, calls=(*calls, last), constants=constants, declared=declared))
