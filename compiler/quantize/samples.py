"""Values of the inputs to calibrate on: given as .npz archives, or drawn as the agreement check draws them.

An archive holds one sample, in the shapes of the model's inputs, or several: with an axis more before the others, or
with several times as many indices along a first axis whose size the model states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from compiler.contract import CompileOptions, CompressOptions, InputSpec, LegaliseOptions, QuantizeOptions
from compiler.errors import InputsError, Refusal, UnsupportedModel
from compiler.frontend import Loaded, load
from compiler.frontend.reading.model import Input, Model
from compiler.ir.border import RANDOM_STATE
from compiler.ir.tensor import DType
from compiler.measure.npz import read_fitting
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs

LARGEST_SIZE = 1 << 20
"""Of a dimension that the model leaves open."""
MOST_SAMPLES = 4096
"""Of one archive."""
HELD_OUT, MOST_HELD_OUT = 4, 8
"""One of so many samples is held out, and so many at most; of fewer samples than the first none is."""

Sampling = QuantizeOptions | CompressOptions | LegaliseOptions
"""Options of a job that works on samples."""
Sample = Mapping[str, np.ndarray]
"""An array for each input, by its name."""


@dataclass(frozen=True)
class _Axis:
    name: str
    low: int = 1
    high: int = LARGEST_SIZE
    step: int = 1


@dataclass(frozen=True)
class _Spec:
    name: str
    dtype: str
    shape: tuple[int, ...]
    numpy: np.dtype
    axes: tuple[_Axis | None, ...]


def shaped(options: Sampling, sample: Sample | None = None) -> CompileOptions:
    """Options under which the front end loads the model for a sample; None: as the options bind it."""
    fixed = {name: spec for name, spec in options.inputs.items() if spec.value is not None}
    if sample is None:
        return CompileOptions(inputs=options.inputs, dims=options.dims)
    shapes = {name: InputSpec(shape=tuple(array.shape)) for name, array in sample.items() if name not in fixed}
    return CompileOptions(inputs={**shapes, **fixed})


def derived(model: Path, options: Sampling, data: Mapping[str, Path] | None = None) -> list[Sample]:
    """Samples drawn in the ranges that the inputs' readers demand. Raises what `load` raises."""
    loaded = load(model, shaped(options), OPERATORS, data=data)
    _demand_numbers(loaded)
    return [
        {
            loaded.graph.values[id].name: array
            for id, array in sample_inputs(loaded.graph, options.seed + number).items()
            if loaded.graph.values[id].name != RANDOM_STATE
        }
        for number in range(options.derived_samples)
    ]


def given(model: Model, files: Mapping[str, Path], options: Sampling) -> list[Sample]:
    """Those of the archives, by what the caller calls them.

    Raises InputsError with every input that does not fit, and for values that are not finite.
    """
    inputs = [one for one in model.body.inputs if options.inputs.get(one.name, InputSpec()).value is None]
    found = [sample for name, path in files.items() for sample in _of_archive(name, path, inputs)]
    if not found:
        raise InputsError("the archives hold no sample", fix="give at least one")
    return found


def divided(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Samples to calibrate on, and others among them to judge the result by; none of the second of few."""
    each = max(HELD_OUT, len(samples) // MOST_HELD_OUT)
    out = range(each - 1, len(samples), each)[:MOST_HELD_OUT]
    return [one for at, one in enumerate(samples) if at not in out], [samples[at] for at in out]


def bound(loaded: Loaded, sample: Sample) -> dict[int, np.ndarray]:
    """A sample by the graph's ids."""
    _demand_numbers(loaded)
    names = {id: loaded.graph.values[id].name for id in loaded.graph.inputs}
    return {id: np.zeros(2, np.int64) if name == RANDOM_STATE else sample[name] for id, name in names.items()}


def _demand_numbers(loaded: Loaded) -> None:
    if loaded.border.inputs:
        name = min(loaded.border.inputs)
        raise UnsupportedModel(
            f"input {name!r:.100} is text, on which nothing is calibrated", fix="quantise the part behind it"
        )


def _of_archive(name: str, path: Path, inputs: Sequence[Input]) -> list[Sample]:
    forms = [form for form in (_alone(inputs), _repeated(inputs), _stacked(inputs)) if form]
    try:
        at, arrays = read_fitting(path, forms)
    except InputsError as error:
        said = tuple(replace(one, reason=f"sample {name!r:.200}: {one.reason}") for one in error.refusals)
        raise InputsError(f"sample {name!r:.200} cannot be used: {error.message}", error.fix, said) from None
    whole = dict(zip((one.name for one in inputs), arrays, strict=True))
    _demand_finite(name, whole)
    form = forms[at]
    if form == _alone(inputs):
        return [whole]
    first = form[0]
    step = first.axes[0].step if first.axes[0] else 1
    stacked = form == _stacked(inputs)
    count = arrays[0].shape[0] // (1 if stacked else step)
    if stacked:
        return [{key: array[number] for key, array in whole.items()} for number in range(count)]
    return [
        {key: array[number * step : (number + 1) * step] for key, array in whole.items()} for number in range(count)
    ]


def _demand_finite(name: str, arrays: Sample) -> None:
    wrong = [key for key, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if wrong:
        raise InputsError(
            f"sample {name!r:.200} holds numbers that are not finite",
            fix="leave out such samples: a range that has no end cannot be divided into steps",
            refusals=tuple(
                Refusal(f"input {key!r:.100} holds NaN or infinity", "send finite numbers") for key in wrong
            ),
        )


def _alone(inputs: Sequence[Input]) -> list[_Spec]:
    return [_spec(one) for one in inputs]


def _stacked(inputs: Sequence[Input]) -> list[_Spec]:
    """With an axis more, before the others."""
    return [
        replace(spec, shape=(1, *spec.shape), axes=(_Axis("samples", high=MOST_SAMPLES), *spec.axes))
        for spec in map(_spec, inputs)
    ]


def _repeated(inputs: Sequence[Input]) -> list[_Spec]:
    """Several samples along the first axis; none where that has no one size for all inputs."""
    specs = [_spec(one) for one in inputs]
    sizes = {spec.shape[0] if spec.shape and spec.axes[0] is None else 0 for spec in specs}
    if len(sizes) != 1 or 0 in sizes:
        return []
    (size,) = sizes
    axis = _Axis("samples", size, size * MOST_SAMPLES, size)
    return [replace(spec, axes=(axis, *spec.axes[1:])) for spec in specs]


def _spec(one: Input) -> _Spec:
    if one.dtype is None or one.shape is None or one.is_text or _is_carried(one.dtype):
        raise UnsupportedModel(
            f"input {one.name!r:.100} is {one.what} that no archive says plainly",
            fix="export it with its rank, in a type of numpy's",
        )
    axes = tuple(None if isinstance(dim, int) else _Axis(dim or f"{one.name}.{at}") for at, dim in enumerate(one.shape))
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in one.shape)
    return _Spec(one.name, one.dtype.numpy.name, shape, np.dtype(one.dtype.numpy), axes)


def _is_carried(dtype: DType) -> bool:
    """Whether elements travel as their bits, in a type of another name."""
    return dtype.is_small or dtype is DType.BF16
