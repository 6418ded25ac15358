"""Binding: every dimension of every graph input gets a number.

From the options, by name, or 1 for a batch left open.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from compiler.contract import CompileOptions, InputSpec
from compiler.errors import OptionsError, Refusal, UnboundDimension, UnsupportedModel
from compiler.frontend.open.extent import Number, Size
from compiler.frontend.open.growth import Growing
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Input, key_of, quoted
from compiler.frontend.reading.tensors import check_size
from compiler.ir.arithmetic import bounds
from compiler.ir.tensor import DType, TensorType

Value = float | int | bool | tuple[Any, ...]
"""What options fix an input to: a number for every element, or nested tuples of numbers."""


@dataclass(frozen=True)
class Bound:
    """Static types of all inputs in order, the values of those that options fix, and what the user should know.

    Axes that ranges leave open have their greatest size in `types`; `open` says which size each axis of an input has,
    and `dimensions` lists these sizes. `bounds` are those of sizes that data say, by name of a node.
    """

    types: Mapping[str, TensorType]
    values: Mapping[str, np.ndarray]
    notices: tuple[str, ...]
    open: Mapping[str, tuple[Size | None, ...]] = field(default_factory=dict)
    dimensions: tuple[Size, ...] = ()
    texts: frozenset[str] = frozenset()
    """Names of the inputs that are strings; their types are those of the strings' numbers."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    wide: Mapping[str, int] | None = field(default_factory=dict)
    growing: Growing | None = None
    """Caches that are states, whose room is in `types`."""
    lengths: Mapping[str, tuple[Number | None, ...]] = field(default_factory=dict)
    """By name of an input, which of its axes have the size of these before or after a run."""


@dataclass(frozen=True)
class Merged:
    """What an earlier walk over the model found that sizes in ranges must be.

    equal  of dimensions that must have the size of another one: which that is
    steps  of what a size must be a multiple
    ends   the least and the greatest that a size may be
    wide   what bounds of sizes that data say are at least where none is given, by node; None: nothing more than usual
    growing  caches that are states, and how many rows a run appends to them
    """

    equal: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    wide: Mapping[str, int] | None = field(default_factory=dict)
    growing: Growing | None = None

    def with_equal(self, kept: str, gone: str) -> Merged:
        """With one dimension more that has the size of another."""
        equal = {name: kept if leader == gone else leader for name, leader in self.equal.items()} | {gone: kept}
        step = math.lcm(self.steps.get(kept, 1), self.steps.get(gone, 1))
        (low, high), (other_low, other_high) = (self.ends.get(name, (0, sys.maxsize)) for name in (kept, gone))
        ends = {**self.ends, kept: (max(low, other_low), min(high, other_high))}
        return replace(self, equal=equal, steps={**self.steps, kept: step}, ends=ends)

    def with_step(self, name: str, step: int) -> Merged:
        """With a step more."""
        return replace(self, steps={**self.steps, name: math.lcm(step, self.steps.get(name, 1))})

    def with_ends(self, name: str, low: int, high: int) -> Merged:
        """With a narrower range."""
        return replace(self, ends={**self.ends, name: (low, high)})

    def with_bound(self, source: str, most: int) -> Merged:
        """With a bound more of what data say at a node."""
        return replace(self, wide={**(self.wide or {}), source: most})

    def with_rows(self, rows: int) -> Merged:
        """With what a run appends to caches. Raises OptionsError where they differ in it."""
        return replace(self, growing=self.growing and self.growing.with_rows(rows))

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know of it."""
        return (
            *(f"dimension {quoted(gone)} must have the size of {quoted(kept)}" for gone, kept in self.equal.items()),
            *(
                f"dimension {quoted(name)} must be a multiple of {step}"
                for name, step in self.steps.items()
                if step > 1
            ),
            *(
                f"dimension {quoted(name)} must lie between {low} and {high}"
                for name, (low, high) in self.ends.items()
                if (low, high) != (0, sys.maxsize)
            ),
        )


def bind(
    inputs: Sequence[Input],
    constants: Sequence[str],
    options: CompileOptions,
    limits: Limits,
    merged: Merged = Merged(),
) -> Bound:
    """Binds `inputs`; `constants` are names of initializers, which options must not bind.

    `merged` says what the walk over the model found of the sizes.

    Raises OptionsError for a binding that is unknown or contradictory, UnboundDimension naming every input, axis and
    dimension that is left open together with the option that binds it, UnsupportedModel for inputs that are not
    tensors.
    """
    _check_kinds(inputs)
    _check_names(inputs, constants, options)
    shaped = [_with_rank(entry, options.inputs.get(entry.name, InputSpec())) for entry in inputs]
    shaped, said = separated(shaped, options)
    known = _known(shaped, options)
    notices = [*said, *_open_batches(shaped, known)]
    growing = merged.growing and merged.growing.bound(known)
    if growing:
        known.update(dict.fromkeys(growing.names | growing.after, growing.room))
    _require_all(shaped, known)
    sizes = _sizes(options, merged)
    known.update({name: size.high * size.step for name, size in sizes.items()})
    types: dict[str, TensorType] = {}
    values: dict[str, np.ndarray] = {}
    for entry in shaped:
        assert entry.dtype is not None
        assert entry.shape is not None
        shape = tuple(
            dim if isinstance(dim, int) else known[key_of(entry, axis)] for axis, dim in enumerate(entry.shape)
        )
        check_size(shape, entry.dtype, f"input {quoted(entry.name)}", limits)
        types[entry.name] = TensorType(entry.dtype, shape)
        value = options.inputs.get(entry.name, InputSpec()).value
        if value is not None and entry.is_text:
            raise OptionsError(f"inputs[{quoted(entry.name)}] has a value, and is of strings", fix="leave it out")
        if value is not None:
            values[entry.name] = _constant(entry.name, value, types[entry.name], limits)
            notices.append(f"input {quoted(entry.name)} is fixed to {value}")
    for one in shaped:
        if one.name in values and any(key_of(one, axis) in sizes for axis in range(len(one.shape or ()))):
            raise OptionsError(
                f"inputs[{quoted(one.name)}] has a value, and a dimension in a range",
                fix="bind the dimension to a number",
            )
    used = {key_of(one, axis) for one in shaped for axis in range(len(one.shape or ()))}
    dimensions = tuple(dict.fromkeys(size for name, size in sizes.items() if name in used))
    axes = {one.name: tuple(sizes.get(key_of(one, axis)) for axis in range(len(one.shape or ()))) for one in shaped}
    opened = {name: one for name, one in axes.items() if any(one)}
    texts = frozenset(one.name for one in inputs if one.is_text)
    bound = Bound(types, values, (*notices, *merged.notices), opened, dimensions, texts, options.bounds, merged.wide)
    own = {one.name: growing.axes_of(one) for one in shaped} if growing else {}
    return replace(bound, growing=growing, lengths={name: axes for name, axes in own.items() if any(axes)})


def _sizes(options: CompileOptions, merged: Merged) -> dict[str, Size]:
    """By name of a dimension in a range: its size, of those that must be equal one whose range holds for all."""
    leaders: dict[str, list[str]] = {}
    for name in options.open_sizes:
        leaders.setdefault(merged.equal.get(name, name), []).append(name)
    found: dict[str, Size] = {}
    for leader, names in leaders.items():
        low = max(options.open_sizes[name].low for name in names)
        high = min(options.open_sizes[name].high for name in names)
        step = merged.steps.get(leader, 1)
        least, most = merged.ends.get(leader, (low, high))
        low, high = max(low, least), min(high, most)
        size = Size(leader, -(-low // step), high // step, step)
        if size.low > size.high:
            listed = ", ".join(map(quoted, names))
            raise OptionsError(
                f"dims {listed} must be one size, and a multiple of {step}, in this model: their ranges share none",
                fix="give them ranges that do",
            )
        found |= dict.fromkeys(names, size)
    return found


def _check_kinds(inputs: Sequence[Input]) -> None:
    refusals = tuple(
        Refusal(
            f"input {quoted(entry.name)} is {entry.what}",
            f"say how many elements it has, and their shapes: {_option({'inputs': {entry.name: [2]}})}"
            if entry.is_sequence and entry.holds and entry.holds.dtype is not None
            else "compile a model whose inputs are tensors from bool to double, or strings",
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
    symbols = {
        key_of(entry, axis)
        for entry in inputs
        for axis, dim in enumerate(entry.shape or ())
        if not isinstance(dim, int)
    }
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
    return replace(entry, shape=(None,) * len(spec.shape or ()))


def separated(inputs: Sequence[Input], options: CompileOptions) -> tuple[list[Input], tuple[str, ...]]:
    """Inputs of which whole shapes that options give win over names, where several sizes have one name; and notices.

    Exporters call an image's sides and those of a state alike, which begins with one element.
    """
    given: dict[str, dict[int, str]] = {}
    for name, number in options.binding.items():
        given[name] = {} if name in options.open_sizes else {number: "dims"}
    for entry in inputs:
        for axis, dim, size in _given(entry, options):
            if isinstance(dim, str):
                given.setdefault(dim, {}).setdefault(size, f"axis {axis} of {quoted(entry.name)}")
    several = {name for name, sizes in given.items() if len(sizes) > 1 or (sizes and name in options.open_sizes)}
    found = []
    for entry in inputs:
        sizes = {axis: size for axis, dim, size in _given(entry, options) if dim in several}
        shape = None if entry.shape is None else tuple(sizes.get(at, dim) for at, dim in enumerate(entry.shape))
        found.append(replace(entry, shape=shape) if sizes else entry)
    notices = tuple(
        f"dimension {quoted(name)} is no one size, as inputs have the shapes that the options give: "
        + ", ".join(f"{size} ({where})" for size, where in given[name].items())
        for name in given
        if name in several
    )
    return found, notices


def _given(entry: Input, options: CompileOptions) -> list[tuple[int, int | str | None, int]]:
    """Of an input whose whole shape options give: each axis, what the model says of it, and its size."""
    shape = options.inputs.get(entry.name, InputSpec()).shape
    if shape is None or entry.shape is None or len(shape) != len(entry.shape):
        return []
    return [(axis, dim, size) for axis, (dim, size) in enumerate(zip(entry.shape, shape, strict=True))]


def _known(inputs: Sequence[Input], options: CompileOptions) -> dict[str, int]:
    """Symbolic dimensions that the options give."""
    known: dict[str, int] = {}
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
            expected = dim if isinstance(dim, int) else known.setdefault(key_of(entry, axis), given)
            if expected != given:
                raise OptionsError(
                    f"axis {axis} of input {quoted(entry.name)} is bound to {given}, but it is {expected} "
                    + ("in the model" if isinstance(dim, int) else f"elsewhere as dimension {quoted(str(dim))}"),
                    fix=f"the model's shape is {_shape_text(entry)}: use one value throughout",
                )
    return known


def _open_batches(inputs: Sequence[Input], known: dict[str, int]) -> list[str]:
    """Binds first dimensions that are still open to 1; a first dimension is a batch where others follow it."""
    notices: list[str] = []
    for entry in inputs:
        assert entry.shape is not None
        if len(entry.shape) >= 2 and not isinstance(entry.shape[0], int) and (key := key_of(entry, 0)) not in known:
            known[key] = 1
            named = f" ({quoted(key)})" if isinstance(entry.shape[0], str) else ""
            notices.append(
                f"the batch dimension{named} of input {quoted(entry.name)} was not bound and is set to 1; "
                f"to compile for another, give {_binding(entry, 0)}"
            )
    return notices


def _require_all(inputs: Sequence[Input], known: Mapping[str, int]) -> None:
    refusals: list[Refusal] = []
    dims: dict[str, int] = {}
    shapes: dict[str, list[int]] = {}
    for entry in inputs:
        assert entry.shape is not None
        for axis, dim in enumerate(entry.shape):
            if isinstance(dim, int) or key_of(entry, axis) in known:
                continue
            if isinstance(dim, str):
                dims[dim] = 224
                named = f"dimension {quoted(dim)}"
            else:
                shapes[entry.name] = [
                    d if isinstance(d, int) else known.get(key_of(entry, a), 224) for a, d in enumerate(entry.shape)
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
    low, high = bounds(dtype)
    if dtype.is_small and dtype.is_float:
        return low <= value <= high
    if dtype.is_float:
        return isinstance(value, float) or abs(value) < 2**1000
    return (isinstance(value, int) or value.is_integer()) and bool(low <= value <= high)
