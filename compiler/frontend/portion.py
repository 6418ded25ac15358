"""A portion of a model: what makes some of its tensors of others, as a model of its own.

Calls are kept as the file has them, so that sizes which they take from tensors are those of the portion's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend.reading.model import Input, Model, quoted
from compiler.ir.tensor import TensorType


@dataclass(frozen=True)
class Portion:
    """What of a model is wanted: `outputs` by name, of `inputs`, tensors of it by name.

    Without inputs it has all that the model has.
    """

    outputs: tuple[str, ...]
    inputs: Mapping[str, TensorType] | None = None


def named_tensors(model: Model) -> frozenset[str]:
    """What a portion may begin or end with: tensors that are inputs of the model, or that a call of its body gives."""
    given = (name for call in model.body.calls for name in call.outputs if name)
    return frozenset(given) | {one.name for one in model.body.inputs if one.dtype is not None}


def with_portion(model: Model, options: CompileOptions, portion: Portion) -> tuple[Model, CompileOptions]:
    """The portion as a model, and what of the options is about it.

    Raises UnsupportedModel where it needs an input of the model that is none of its own.
    """
    body, inputs = model.body, portion.inputs
    needed, calls = set(portion.outputs) - {*(inputs or ())}, []
    for call in reversed(body.calls):
        if needed & {*call.outputs} - {*(inputs or ())}:
            calls.append(call)
            needed.update(call.reads)
    calls.reverse()
    if inputs is None:
        own = body.inputs
    else:
        own = tuple(Input(name, type.dtype, type.dims) for name, type in inputs.items())
        foreign = [one.name for one in body.inputs if one.name in needed and one.name not in inputs]
        if foreign:
            reader = next(call for call in calls if foreign[0] in call.reads)
            raise UnsupportedModel(
                f"node {quoted(reader.source)} needs input {quoted(foreign[0])} itself, beside what is made of it",
                fix="leave chunks out, or export the model with a number in its place",
            )
    given = {name for call in calls for name in call.outputs}
    constants = {name: one for name, one in body.constants.items() if name not in (inputs or ())}
    sources = {call.source for call in calls}
    options = replace(options, bounds={name: most for name, most in options.bounds.items() if name in sources})
    part = replace(
        body,
        inputs=own,
        outputs=portion.outputs,
        calls=tuple(calls),
        constants=constants,
        declared={name: shape for name, shape in body.declared.items() if name in given and inputs is None},
    )
    return replace(model, body=part), options
