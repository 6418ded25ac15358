"""How one engine is driven: what a driver gives and takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tilewright.errors import ClientError

Arrays = Mapping[str, NDArray[Any]]


class EngineFailed(ClientError):
    """An engine could not load or run the model; the message holds the last lines it printed."""

    code = "engine_failed"


@dataclass(frozen=True)
class Task:
    """What an engine is to run: a file that it reads, the inputs by name, how many threads, a precision.

    `int8`: the file is a QDQ model.
    """

    file: Path
    inputs: Arrays
    threads: int
    precision: str = "fp32"


@dataclass(frozen=True)
class Opened:
    """A model that is ready.

    `run` runs it once on the task's inputs and gives the outputs that `outputs` names, in order.
    """

    run: Callable[[], Sequence[Any]]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Layer:
    """One step of an engine's own plan.

    kind   what the engine calls such a step
    names  nodes or values of the model that the step says it carries out; often not all of them, sometimes none
    """

    kind: str
    names: tuple[str, ...]
    seconds: float


def as_it_is(model: Path, folder: Path, threads: int) -> Path:
    """The file of an engine that reads ONNX."""
    return model


@dataclass(frozen=True)
class Driver:
    """One engine.

    module    what Python imports of it, to see whether it is there
    packages  that pip installs it from; their versions go beside its figures
    open      loads a file for a task
    prepare   the file that `open` reads, made from a model into a folder for a number of threads, or found there
    layers    runs the task for some seconds and gives each layer's median seconds; None if unknown to the engine
    """

    name: str
    module: str
    packages: tuple[str, ...]
    open: Callable[[Task], Opened]
    prepare: Callable[[Path, Path, int], Path] = as_it_is
    layers: Callable[[Task, float], list[Layer]] | None = None
