"""Binding: every dimension of every graph input gets a number.

From the options, by name, or 1 for a batch left open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.contract import CompileOptions, InputSpec
from compiler.errors import OptionsError, Refusal, UnboundDimension, UnsupportedModel
from compiler.frontend.limits import Limits
from compiler.frontend.model import Input, quoted
from compiler.frontend.tensors import check_size
from compiler.ir.tensor import DType, TensorType

Key = str | tuple[str, int]
"""A symbolic dimension: its name, or for one without a name the input and the axis."""
Value = float | int | bool | tuple[Any, ...]
"""What options fix an input to: a number for every element, or nested tuples of numbers."""


@dataclass(frozen=True)
class Bound:
    """Static types of all inputs in order, the values of those that options fix, and what the user should know."""

    types: Mapping[str, TensorType]
    values: Mapping[str, np.ndarray]
    notices: tuple[str, ...]


def bind(inputs: Sequence[Input], constants: Sequence[str], options: CompileOptions, limits: Limits) -> Bound:
    """Binds `inputs`; `constants` are names of initializers, which options must not bind.

    Raises OptionsError for a binding that is unknown or contradictory, UnboundDimension naming every input, axis and
    dimension that is left open together with the option that binds it, UnsupportedModel for inputs that are not
    tensors.
    """
    _check_kinds(inputs)
    _check_names(inputs, constants, options)
    shaped = [_with_rank(entry, options.inputs.get(entry.name, InputSpec())) for entry in inputs]
    known = _known(shaped, options)
    notices = _open_batches(shaped, known)
    _require_all(shaped, known)
    types: dict[str, TensorType] = {}
    values: dict[str, np.ndarray] = {}
    for entry in shaped:
        assert entry.dtype is not None
        assert entry.shape is not None
        shape = tuple(dim if isinstance(dim, int) else known[_key(entry, axis)] for axis, dim in enumerate(entry.shape))
        check_size(shape, entry.dtype, f"input {quoted(entry.name)}", limits)
        types[entry.name] = TensorType(entry.dtype, shape)
        value = options.inputs.get(entry.name, InputSpec()).value
        if value is not None:
            values[entry.name] = _constant(entry.name, value, types[entry.name], limits)
            notices.append(f"input {quoted(entry.name)} is fixed to {value}")
    return Bound(types, values, tuple(notices))


def _check_kinds(inputs: Sequence[Input]) -> None:
    refusals = tuple(
        Refusal(
            f"input {quoted(entry.name)} is {entry.what}",
            "compile a model whose inputs are tensors from bool to double",
        )
        for entry in inputs
        if entry.dtype is None
    )
    if refusals:
        raise UnsupportedModel("the model has inputs of a kind that cannot be compiled", refusals=refusals)


def _check_names(inputs: Sequence[Input], constants: Sequence[str], options: CompileOptions) -> None:
    names = [entry.name for entry in inputs]
    for name in options.inputs:
        if name in constants:
            raise OptionsError(f"inputs[{quoted(name)}] names an initializer, which is constant", fix="leave it out")
        if name not in names:
            raise OptionsError(
                f"inputs[{quoted(name)}] names no input of the model",
                fix=f"its inputs are {', '.join(map(quoted, names[:20]))}",
            )
    symbols = {dim for entry in inputs for dim in entry.shape or () if isinstance(dim, str)}
    for name in options.binding:
        if name not in symbols:
            known = ", ".join(map(quoted, sorted(symbols)[:20])) or "none"
            raise OptionsError(
                f"dims[{quoted(name)}] names no symbolic dimension of an input", fix=f"those are: {known}"
            )


def _with_rank(entry: Input, spec: InputSpec) -> Input:
    """The input with a shape of known rank: the file's, or that of the options where the file gives none."""
    if entry.shape is not None:
        return entry
    if spec.shape is None and spec.value is None:
        raise UnboundDimension(
            f"input {quoted(entry.name)} has no shape in the model",
            fix=_option({"inputs": {entry.name: [1, 3, 224, 224]}}),
        )
    return Input(entry.name, entry.dtype, (None,) * len(spec.shape or ()))


def _key(entry: Input, axis: int) -> Key:
    assert entry.shape is not None
    dim = entry.shape[axis]
    return dim if isinstance(dim, str) else (entry.name, axis)


def _known(inputs: Sequence[Input], options: CompileOptions) -> dict[Key, int]:
    """Symbolic dimensions that the options give."""
    known: dict[Key, int] = {}
    known.update(options.binding.items())
    for entry in inputs:
        assert entry.shape is not None
        spec = options.inputs.get(entry.name, InputSpec())
        if spec.shape is not None and len(spec.shape) != len(entry.shape):
            raise OptionsError(
                f"inputs[{quoted(entry.name)}] has {len(spec.shape)} dimensions, "
                f"the model's input has {len(entry.shape)}",
                fix=f"give {len(entry.shape)} numbers for {_shape_text(entry)}",
            )
        for axis, dim in enumerate(entry.shape):
            given = spec.shape[axis] if spec.shape is not None else None
            if given is None and spec.value is not None and not isinstance(dim, int):
                given = 1
            if given is None:
                continue
            expected = dim if isinstance(dim, int) else known.setdefault(_key(entry, axis), given)
            if expected != given:
                raise OptionsError(
                    f"axis {axis} of input {quoted(entry.name)} is bound to {given}, but it is {expected} "
                    + ("in the model" if isinstance(dim, int) else f"elsewhere as dimension {quoted(str(dim))}"),
                    fix=f"the model's shape is {_shape_text(entry)}: use one value throughout",
                )
    return known


def _open_batches(inputs: Sequence[Input], known: dict[Key, int]) -> list[str]:
    """Binds first dimensions that are still open to 1; a first dimension is a batch where others follow it."""
    notices: list[str] = []
    for entry in inputs:
        assert entry.shape is not None
        if len(entry.shape) >= 2 and not isinstance(entry.shape[0], int) and (key := _key(entry, 0)) not in known:
            known[key] = 1
            named = f" ({quoted(key)})" if isinstance(key, str) else ""
            notices.append(
                f"the batch dimension{named} of input {quoted(entry.name)} was not bound and is set to 1; "
                f"to compile for another, give {_binding(entry, 0)}"
            )
    return notices


def _require_all(inputs: Sequence[Input], known: Mapping[Key, int]) -> None:
    refusals: list[Refusal] = []
    dims: dict[str, int] = {}
    shapes: dict[str, list[int]] = {}
    for entry in inputs:
        assert entry.shape is not None
        for axis, dim in enumerate(entry.shape):
            if isinstance(dim, int) or _key(entry, axis) in known:
                continue
            if isinstance(dim, str):
                dims[dim] = 224
                named = f"dimension {quoted(dim)}"
            else:
                shapes[entry.name] = [
                    d if isinstance(d, int) else known.get(_key(entry, a), 224) for a, d in enumerate(entry.shape)
                ]
                named = "a dimension without a name"
            refusals.append(
                Refusal(
                    f"input {quoted(entry.name)}, axis {axis}: {named} has no value", f"give {_binding(entry, axis)}"
                )
            )
    if refusals:
        example = {**({"inputs": shapes} if shapes else {}), **({"dims": dims} if dims else {})}
        raise UnboundDimension(
            "the model has dimensions without a value",
            fix=_option(example),
            refusals=tuple(refusals),
            details={"options": example},
        )


def _binding(entry: Input, axis: int) -> str:
    assert entry.shape is not None
    dim = entry.shape[axis]
    if isinstance(dim, str):
        return json.dumps({"dims": {dim: 8 if axis == 0 else 224}})
    shape = [d if isinstance(d, int) else (8 if a == 0 else 224) for a, d in enumerate(entry.shape)]
    return json.dumps({"inputs": {entry.name: shape}})


def _option(example: Mapping[str, object]) -> str:
    return f"bind them in the options, for example {json.dumps(example)}"


def _shape_text(entry: Input) -> str:
    assert entry.shape is not None
    return "[" + ", ".join(str(dim) if isinstance(dim, int) else quoted(dim or "?") for dim in entry.shape) + "]"


def _constant(name: str, value: Value, kind: TensorType, limits: Limits) -> np.ndarray:
    """The value that options fix. Raises OptionsError for one that is none of the input's type and shape."""
    if kind.elements > limits.parameter_elements:
        raise OptionsError(
            f"inputs[{quoted(name)}] has a value but {kind.elements} elements",
            fix=f"fix inputs of at most {limits.parameter_elements} elements",
        )
    if isinstance(value, tuple) and np.shape(value) != kind.dims:
        raise OptionsError(
            f"inputs[{quoted(name)}] has a value of shape {list(np.shape(value))}, but its shape is {list(kind.dims)}",
            fix="give as many numbers as the input has elements, or one for all of them",
        )
    if (wrong := next((number for number in _flat(value) if not _fits(number, kind.dtype)), None)) is not None:
        raise OptionsError(
            f"inputs[{quoted(name)}] has value {wrong}, which is no {kind.dtype}", fix="give a value of that type"
        )
    array = np.broadcast_to(np.array(value, dtype=kind.dtype.numpy), kind.dims).copy()
    array.flags.writeable = False
    return array


def _flat(value: Value) -> Iterator[float | int | bool]:
    if isinstance(value, tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _fits(value: float | int | bool, dtype: DType) -> bool:
    """Whether a number is one of an element type."""
    if dtype is DType.BOOL:
        return value in (0, 1)
    if dtype.is_float:
        return isinstance(value, float) or abs(value) < 2**1000
    info = np.iinfo(dtype.numpy)
    return (isinstance(value, int) or value.is_integer()) and bool(info.min <= value <= info.max)
