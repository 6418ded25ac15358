"""Inputs that are sequences and optionals: tensors, as many as options say.

The elements of a sequence are inputs `name.0` and so on; options give their count as the shape of the sequence, or
name each element. An optional is there where options name it, and its tensor or sequence has its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.contract import CompileOptions, InputSpec
from compiler.frontend.reading.model import Call, Input, Model

MOST = 1024
"""Elements of a sequence."""


def unwrapped(model: Model, options: CompileOptions) -> tuple[Model, CompileOptions]:
    """The model with tensors for its sequences and optionals, and options that name these.

    A sequence of which nothing says how many elements it has is left as it is, which `bind` refuses.
    """
    found: list[Input] = []
    calls: list[Call] = []
    given: dict[str, InputSpec] = dict(options.inputs)
    sequences: dict[str, int] = {}
    absent: list[str] = []
    for entry in model.body.inputs:
        holds = entry.holds
        if holds is None or holds.dtype is None:
            found.append(entry)
            continue
        named = _elements(entry.name, given)
        if entry.is_optional and entry.name not in given and not named:
            absent.append(entry.name)
            calls.append(_made(entry.name, "Optional"))
        elif not entry.is_sequence:
            found.append(holds)
        elif (count := _count(entry.name, given, named)) is None:
            found.append(entry)
        else:
            given.pop(entry.name, None)
            names = [f"{entry.name}.{at}" for at in range(count)]
            found += [replace(holds, name=name, shape=_own(holds)) for name in names]
            calls.append(_made(entry.name, "SequenceConstruct" if names else "SequenceEmpty", *names))
            sequences[entry.name] = count
    if not sequences and not absent and found == [*model.body.inputs]:
        return model, options
    body = replace(model.body, inputs=tuple(found), calls=(*calls, *model.body.calls))
    outside = replace(model.outside, sequences=sequences, absent=tuple(absent))
    return replace(model, body=body, outside=outside), replace(options, inputs=given)


def _made(name: str, op: str, *inputs: str) -> Call:
    return Call(op, inputs, (name,), source=f"input {name}")


def _own(holds: Input) -> tuple[int | str | None, ...] | None:
    """The shape of an element, of which the open axes are its own: elements of a sequence differ in them."""
    return None if holds.shape is None else tuple(dim if isinstance(dim, int) else None for dim in holds.shape)


def _elements(name: str, given: Mapping[str, InputSpec]) -> set[int]:
    """The positions of the elements that options name."""
    ends = (one.removeprefix(f"{name}.") for one in given if one.startswith(f"{name}."))
    return {int(end) for end in ends if end.isdecimal()}


def _count(name: str, given: Mapping[str, InputSpec], named: set[int]) -> int | None:
    """How many elements a sequence has; None if that is unknown, or more than MOST."""
    shape = given[name].shape if name in given else None
    count = shape[0] if shape is not None and len(shape) == 1 else None
    if count is None and name not in given and named:
        count = max(named) + 1
    return count if count is not None and count <= MOST and len(named) <= MOST else None
