"""Samples: inputs that the caller gives beside the model, to judge and to time it on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from compiler.contract.samples import MOST_SAMPLES
from compiler.errors import InputsError, Refusal
from compiler.ir.border import PLAIN, RANDOM_STATE, Border
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenDimension, OpenShapes
from compiler.ir.tensor import DType
from compiler.measure.npz import STRING, Spec, read_fitting, read_inputs
from compiler.prove.sizes import sizes_of

Made = TypeVar("Made")


@dataclass(frozen=True)
class Sample:
    """One: what the caller calls it, the SHA-256 of its file, and arrays by value id, in declared dtype and shape.

    `sizes` are those of open dimensions, by name; the ids are then those of the model at these sizes.
    """

    name: str
    digest: str
    arrays: Mapping[int, np.ndarray]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Spec:
    """An input as archives of arrays know it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    numpy: np.dtype
    axes: tuple[OpenDimension | None, ...]


def read_samples(files: Mapping[str, Path], graph: Graph, border: Border = PLAIN) -> tuple[Sample, ...]:
    """The samples in .npz archives, by what the caller calls them, whose arrays have the names of the graph's inputs.

    `border` says which of these are strings, and whether one of them no caller gives.

    Raises InputsError with every input that does not fit, of all samples.
    """
    return tuple(_of_each(files, lambda name, path: _read(name, path, graph, border)))


def read_sized(
    files: Mapping[str, Path],
    graph: Graph,
    shapes: OpenShapes,
    at: Callable[[Mapping[str, int]], Graph],
    border: Border = PLAIN,
) -> tuple[Sample, ...]:
    """As `read_samples`, for a graph that leaves dimensions open; `at` loads the model at exact sizes of these."""

    def read(name: str, path: Path) -> Sample:
        own = shapes if not border.random else replace(shapes, inputs=shapes.inputs[:-1])
        sizes = sizes_of(own, read_inputs(path, specs_of(graph, shapes, border)))
        return replace(_read(name, path, at(sizes), border), sizes=sizes)

    return tuple(_of_each(files, read))


def share_out(files: Mapping[str, Path], bindings: Sequence[Sequence[Spec]]) -> list[dict[str, Path]]:
    """Of each binding the samples that have its inputs' shapes; of several such bindings the first has them.

    Raises InputsError with every sample that has those of none, and what it was found to have.
    """
    fitting = _of_each(files, lambda name, path: (name, read_fitting(path, bindings)[0]))
    return [{name: files[name] for name, its in fitting if its == at} for at in range(len(bindings))]


def specs_of(graph: Graph, shapes: OpenShapes | None = None, border: Border = PLAIN) -> list[Spec]:
    """The model's inputs as archives of arrays know them; `shapes` says which of their axes are open."""
    if shapes is None:
        axes: list[tuple[OpenDimension | None, ...]] = [(None,) * len(graph.type(value).dims) for value in graph.inputs]
    else:
        axes = [tuple(None if number is None else shapes.dimensions[number] for number in its) for its in shapes.inputs]
    specs = [_spec(graph, value, its, border) for value, its in zip(graph.inputs, axes, strict=False)]
    return [spec for spec in specs if not (border.random and spec.name == RANDOM_STATE)]


def _of_each(files: Mapping[str, Path], make: Callable[[str, Path], Made]) -> list[Made]:
    """What is made of each sample's name and path. Raises InputsError with all that is wrong with any."""
    if len(files) > MOST_SAMPLES:
        raise InputsError(f"{len(files)} samples are given, and at most {MOST_SAMPLES} are accepted", fix="give fewer")
    made, problems = [], []
    for name, path in files.items():
        try:
            made.append(make(name, path))
        except InputsError as error:
            problems.append((name, error))
    if problems:
        raise InputsError(
            f"{', '.join(f'sample {name!r:.200}' for name, _ in problems)} cannot be used: {problems[0][1].message}",
            fix=problems[0][1].fix,
            refusals=tuple(
                replace(refusal, reason=f"sample {name!r:.200}: {refusal.reason}")
                for name, error in problems
                for refusal in error.refusals or (Refusal(error.message, error.fix),)
            ),
        )
    return made


def _read(name: str, path: Path, graph: Graph, border: Border) -> Sample:
    specs = specs_of(graph, border=border)
    arrays = dict(zip((spec.name for spec in specs), read_inputs(path, specs), strict=True))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    given = {RANDOM_STATE: np.zeros(2, np.int64), **border.coded(arrays)}
    return Sample(
        name, digest, {value: _typed(graph, value, given[graph.values[value].name]) for value in graph.inputs}
    )


def _spec(graph: Graph, value: int, axes: tuple[OpenDimension | None, ...], border: Border) -> _Spec:
    dtype, name = graph.type(value).dtype, graph.values[value].name
    if name in border.inputs:
        return _Spec(name, STRING, graph.type(value).dims, np.dtype(object), axes)
    carried = np.dtype(np.uint16) if dtype is DType.BF16 else np.dtype(np.uint8) if dtype.is_small else dtype.numpy
    return _Spec(name, dtype.numpy.name, graph.type(value).dims, carried, axes)


def _typed(graph: Graph, value: int, array: np.ndarray) -> np.ndarray:
    """bfloat16 and small types travel as their bits."""
    dtype = graph.type(value).dtype
    return array.view(dtype.numpy) if dtype is DType.BF16 or dtype.is_small else array
