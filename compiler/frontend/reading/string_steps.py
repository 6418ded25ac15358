"""Operators that make strings, where inputs and constants say them: steps of the loader before the program runs.

A program knows strings as numbers (`strings`), and none of it makes one. What StringConcat, StringSplit,
StringNormalizer and RegexFullMatch give becomes inputs of the program, of sizes that may be open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.frontend.reading.model import Call, Input, Model
from compiler.frontend.reading.strings import is_text
from compiler.ir.border import Step, Words
from compiler.ir.tensor import DType

Shape = tuple[int | str | None, ...]
CASES = ("NONE", "LOWER", "UPPER")
BEYOND_RE2 = re.compile(r"\(\?[=!<(#]|\(\?P[=>]|\\[1-9zZpPCQE]|[*+?}]\+")
"""What RE2 and Python's `re` do not both take, or not with one meaning: lookaround, references to groups, classes of
Unicode, possessive quantifiers."""


def with_steps(model: Model) -> Model:
    """The model without the calls that are steps, whose results are inputs."""
    known = {one.name: one for one in model.body.inputs if one.is_text}
    constants = model.body.constants.items()
    words = {name: array for name, array in constants if isinstance(array, np.ndarray) and is_text(array)}
    rest: list[Call] = []
    steps: list[Step] = []
    made: dict[str, Input] = {}
    for call in model.body.calls:
        if call.op == "Constant" and not call.domain and (array := _text_of(call)) is not None:
            words[call.outputs[0]] = array
        step = _step(call, known, words)
        if step is None:
            rest.append(call)
            continue
        steps.append(step[0])
        known |= {one.name: one for one in step[1] if one.is_text}
        made |= {one.name: one for one in step[1]}
    if not steps:
        return model
    read = {name for call in rest for name in call.reads} | {*model.body.outputs}
    inputs = tuple(
        one for one in (*model.body.inputs, *made.values()) if one.name in read or one.name not in (*made, *_of(steps))
    )
    body = replace(model.body, inputs=inputs, calls=tuple(rest))
    return replace(model, body=body, outside=replace(model.outside, steps=tuple(steps)))


def _of(steps: list[Step]) -> set[str]:
    return {name for step in steps for name in step.inputs if isinstance(name, str)}


def _text_of(call: Call) -> np.ndarray | None:
    """The strings of a Constant."""
    value = call.attrs.get("value")
    return value if isinstance(value, np.ndarray) and is_text(value) else None


def _step(
    call: Call, known: Mapping[str, Input], words: Mapping[str, np.ndarray]
) -> tuple[Step, tuple[Input, ...]] | None:
    """A call as a step and what it gives; None for one that is none, or reads what the program computes."""
    shapes: list[Shape | None] = []
    inputs: list[str | Words] = []
    if call.domain or call.op not in STEPS or not call.inputs:
        return None
    for name in call.inputs:
        if name in known:
            inputs.append(name)
            shapes.append(known[name].shape)
        elif name in words:
            inputs.append(Words(tuple(words[name].ravel().tolist()), words[name].shape))
            shapes.append(words[name].shape)
        else:
            return None
    if all(isinstance(one, Words) for one in inputs):
        return None
    attrs = {
        name: value
        for name, value in call.attrs.items()
        if isinstance(value, int | str) or (isinstance(value, tuple) and all(isinstance(one, str) for one in value))
    }
    if len(attrs) != len(call.attrs) or (kinds := STEPS[call.op](shapes, attrs)) is None:
        return None
    outputs = (*call.outputs, *("" for _ in kinds[len(call.outputs) :]))
    results = tuple(
        Input(name, dtype or DType.I64, shape, is_text=dtype is None)
        for name, (dtype, shape) in zip(outputs, kinds, strict=False)
        if name
    )
    return Step(call.op, tuple(inputs), outputs[: len(kinds)], attrs), results  # type: ignore[arg-type]


Kinds = tuple[tuple[DType | None, Shape | None], ...]
"""Of each result its type, None: strings, and its shape."""
Shapes = list[Shape | None]


def _concat(shapes: Shapes, attrs: Mapping[str, object]) -> Kinds | None:
    """StringConcat: elements side by side, broadcast."""
    if len(shapes) != 2 or attrs:
        return None
    one, other = shapes
    return ((None, None if one is None or other is None else _broadcast(one, other)),)


def _broadcast(one: Shape, other: Shape) -> Shape:
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    return tuple(a if b == 1 or a == b else b if a == 1 or isinstance(b, int) else a for a, b in pairs)


def _split(shapes: Shapes, attrs: Mapping[str, object]) -> Kinds | None:
    """StringSplit: the parts along a new axis, as many as the most of any, of no string none; and how many each has."""
    if not attrs.keys() <= {"delimiter", "maxsplit"}:
        return None
    (shape,) = shapes
    return ((None, None if shape is None else (*shape, 0 if 0 in shape else None)), (DType.I64, shape))


def _normalized(shapes: Shapes, attrs: Mapping[str, object]) -> Kinds | None:
    """StringNormalizer: elements in another case, of which those that are left empty are dropped."""
    known = {"case_change_action", "is_case_sensitive", "locale", "stopwords"}
    if not attrs.keys() <= known or attrs.get("case_change_action", "NONE") not in CASES:
        return None
    (shape,) = shapes
    if shape is None or len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        return None
    return ((None, (*shape[:-1], None)),)


def _matches(shapes: Shapes, attrs: Mapping[str, object]) -> Kinds | None:
    """RegexFullMatch: whether each element is matched from its beginning to its end."""
    pattern = attrs.get("pattern")
    if not isinstance(pattern, str) or BEYOND_RE2.search(pattern):
        return None
    try:
        re.compile(pattern, re.ASCII)
    except (re.error, RecursionError, OverflowError):
        return None
    return ((DType.BOOL, shapes[0]),)


STEPS = {
    "RegexFullMatch": _matches,
    "StringConcat": _concat,
    "StringNormalizer": _normalized,
    "StringSplit": _split,
}
"""What each gives for the shapes of what it reads and its attributes; None for a form that is no step."""
