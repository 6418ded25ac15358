"""Samples: inputs that the caller gives beside the model, to judge and to time it on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from compiler.contract.samples import MOST_SAMPLES
from compiler.errors import InputsError
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.measure.npz import read_inputs


@dataclass(frozen=True)
class Sample:
    """One: what the caller calls it, the SHA-256 of its file, and arrays by value id, in declared dtype and shape."""

    name: str
    digest: str
    arrays: Mapping[int, np.ndarray]


@dataclass(frozen=True)
class _Spec:
    """An input as archives of arrays know it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    numpy: np.dtype


def read_samples(files: Mapping[str, Path], graph: Graph) -> tuple[Sample, ...]:
    """The samples in .npz archives, by what the caller calls them, whose arrays have the names of the graph's inputs.

    Raises InputsError with every input that does not fit, of all samples.
    """
    if len(files) > MOST_SAMPLES:
        raise InputsError(f"there are {len(files)} samples, at most {MOST_SAMPLES} are taken", fix="give fewer")
    samples, problems = [], []
    for name, path in files.items():
        try:
            samples.append(_read(name, path, graph))
        except InputsError as error:
            problems.append((name, error))
    if problems:
        raise InputsError(
            f"{', '.join(f'sample {name!r:.200}' for name, _ in problems)} cannot be used: {problems[0][1].message}",
            fix=problems[0][1].fix,
            refusals=tuple(
                replace(refusal, reason=f"sample {name!r:.200}: {refusal.reason}")
                for name, error in problems
                for refusal in error.refusals
            ),
        )
    return tuple(samples)


def _read(name: str, path: Path, graph: Graph) -> Sample:
    arrays = read_inputs(path, [_spec(graph, value) for value in graph.inputs])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    typed = {value: _typed(graph, value, array) for value, array in zip(graph.inputs, arrays, strict=True)}
    return Sample(name, digest, typed)


def _spec(graph: Graph, value: int) -> _Spec:
    dtype = graph.type(value).dtype
    carried = np.dtype(np.uint16) if dtype is DType.BF16 else dtype.numpy
    return _Spec(graph.values[value].name, dtype.numpy.name, graph.type(value).dims, carried)


def _typed(graph: Graph, value: int, array: np.ndarray) -> np.ndarray:
    """bfloat16 travels as its bits."""
    dtype = graph.type(value).dtype
    return array.view(dtype.numpy) if dtype is DType.BF16 else array
