"""Sizes of a decoder that nobody binds, where a job carries its caches: steps of one token and of PIECES, and room.

Caches are the inputs and outputs that `carry` names, or those with `past` or `present` in their names. Dimensions of
theirs are as long as a text, and so is one that is written as a sum with them. What is left open of inputs of integers
is the tokens of a step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from compiler.contract import CompileOptions, InputSpec, kinds
from compiler.contract.options import CARRY_AUTO
from compiler.frontend.binding.correct import named_by_shapes
from compiler.frontend.open.growth import USUAL_ROOM, growing
from compiler.frontend.reading.model import Input, Model, key_of, quoted

PIECES = (16, 64)
"""Tokens of a prompt that are read at once: one of fewer than 64 would be read one by one."""
LEAST_RANK = 2
"""Of a cache it is greater: [batch, tokens] is a mask."""
GROUPED, COSINES = "GroupQueryAttention", 7
"""The operator that has a table of positions, and which of its inputs that is [positions, ...]."""


def sizes_of_texts(model: Model, options: CompileOptions) -> tuple[tuple[Mapping[str, int], ...], str] | None:
    """Bindings of what options leave open, and what the user should know of it; None where this is no such decoder.

    Neither is one whose other dimensions are open too, but for first ones, which are batches.
    """
    if not options.carry or options.devices or options.kind != kinds.CPU.name:
        return None
    dims = options.dims if isinstance(options.dims, tuple) else (options.dims,)
    given = [{name: size for name, size in one.items() if isinstance(size, int)} for one in dims]
    if list(map(len, given)) != list(map(len, dims)):  # a range
        return None
    inputs = [one for one in model.body.inputs if options.inputs.get(one.name, InputSpec()).value is None]
    known = {**given[0], **named_by_shapes(inputs, options.inputs)}
    names = {*options.named_states, *options.named_states.values()}
    room = {
        dim
        for name, shape in (*((one.name, one.shape or ()) for one in inputs), *model.body.declared.items())
        if name in names or (options.carry == CARRY_AUTO and _is_cache(name) and len(shape) > LEAST_RANK)
        for dim in shape[1:]
        if isinstance(dim, str)
    }
    words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in room))
    every = {key_of(one, axis) for one in inputs for axis in _open(one)}
    room = {name for name in every if name in room or (room and words.search(name))}
    steps = {
        key_of(one, axis) for one in inputs if one.dtype is not None and one.dtype.is_integer for axis in _open(one)
    } - room
    if not room or len(steps) != 1 or every - room - steps - known.keys():
        return None
    (step,) = steps
    most = next((known[name] for name in sorted(room) if name in known), None) or _context(model)
    bound = {} if growing(model, options) else dict.fromkeys(sorted(room - known.keys()), most)
    sizes = [] if step in known or len(given) > 1 else sorted({1, *(min(piece, most) for piece in PIECES)})
    if not bound and not sizes:
        return None
    each = tuple({**bound, **one, **({step: size} if sizes else {})} for one in given for size in sizes or (0,))
    said = [f"{quoted(step)} to {', '.join(map(str, sizes))}, a program of each"] if sizes else []
    said += [f"{', '.join(map(quoted, bound))} to {most}, the tokens that a text may have"] if bound else []
    return each, f"dimensions of a decoder that the options leave open were bound: {'; '.join(said)}"


def _is_cache(name: str) -> bool:
    return bool(re.search("past|present", name))


def _open(entry: Input) -> list[int]:
    """The axes that are no number, without the first of several."""
    shape = entry.shape or ()
    return [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) and (axis or len(shape) == 1)]


def _context(model: Model) -> int:
    """Tokens for which the model has positions, where a table says so, USUAL_ROOM at most."""
    tables = (
        model.body.constants.get(call.inputs[COSINES])
        for call in model.body.calls
        if call.op == GROUPED and len(call.inputs) > COSINES
    )
    return min((USUAL_ROOM, *(len(one) for one in tables if isinstance(one, np.ndarray))))
