"""What a compilation is given: what was asked for, and what the process provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, CompileReport
from compiler.frontend.portion import Portion
from compiler.frontend.reading.read import ModelFile
from compiler.knowledge.replay import Log
from compiler.trace import Observer, StopRequest, ignore, never_stops
from compiler.tuning.helpers import Helpers

First = Callable[[Path, CompileReport], None]
"""Is given the artifact that was made before measuring, as a file that is its own, and what came of it."""


@dataclass(frozen=True)
class Request:
    """A model to be compiled, under options, into an artifact.

    model     the ONNX file
    artifact  where the artifact appears, whole and only once it agreed with the reference
    data      where all external data lies, by its path in the model; None: beside the model
    samples   .npz archives of inputs, by what the caller calls them: the artifact is judged on each, and timed on the
              first; of several bindings, the one whose shapes a sample has
    portion   what of the model is compiled, as a model of its own; None: all of it
    logs      one for each binding: an earlier compilation on one device is replayed, nothing is measured, and each step
              knows what it knew then
    """

    model: Path
    artifact: Path
    options: CompileOptions
    data: Mapping[str, Path] | None = None
    samples: Mapping[str, Path] = field(default_factory=dict)
    logs: Sequence[Log] = ()
    portion: Portion | None = None
    files: dict[Path, ModelFile] = field(default_factory=dict, repr=False, compare=False)
    """Models that were asked for: of this request, and of those that were made of it."""

    @property
    def file(self) -> ModelFile:
        """The model with its data, read once."""
        return self.files.setdefault(self.model, ModelFile(self.model, self.data))

    def beside(self, ending: str) -> Path:
        """A hidden file beside the artifact, for as long as the compilation lasts."""
        return self.artifact.with_name(f".{self.artifact.name}.{ending}")


@dataclass(frozen=True)
class Host:
    """What the process that compiles provides.

    records         earlier measurements; new ones leave as events
    observe         is told of phases, notices and measurements
    dump            a folder for a text file of each step
    stop_requested  once it answers True, measuring stops within a fraction of a second and the best found so far is
                    emitted; what proves the artifact is never left out
    measure         without it earlier records and the cost model decide
    memory_bytes    what this process may use; None: as much as the machine has
    helpers         may measure some of the kernels of a model that is bound in one way
    first           where measuring takes long, and the model has one binding on one device, it is given an artifact
                    that the cost model and earlier records choose, made before and proved like any other
    """

    records: Sequence[Mapping[str, Any]] = ()
    observe: Observer = ignore
    dump: Path | None = None
    stop_requested: StopRequest = never_stops
    measure: bool = True
    memory_bytes: int | None = None
    helpers: Helpers | None = None
    first: First | None = None


ALONE = Host()
"""A process that measures, and provides nothing else."""
