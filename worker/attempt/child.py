"""The process that does one job: `python -m worker.attempt.child SPEC FRAMES`, both descriptors.

It reads its orders (one frame) from SPEC, closes the walls around itself, compiles a model or runs artifacts, and
writes events and at the end one report or one problem to FRAMES. What does the job, a module of `worker.work`, is
imported inside the walls, and the compiler with it: they hold only for threads that start after them.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.contract import job_kinds
from worker.limits import BEHIND_OTHERS, Limits
from worker.processes import frames

if TYPE_CHECKING:
    from compiler.contract import Event

GARBAGE = 20_000
"""New objects until the youngest are looked through: a compilation makes few cycles, and many objects that stay."""


@dataclass(frozen=True)
class Spec:
    """The orders of one job. Paths are absolute.

    kind     the name of its kind in `compiler.contract.job_kinds`
    inputs   by name, in order: of a compilation, quantization or compression the ONNX file, then its external data by
             their paths in the model; of a benchmark the artifacts by their ids; of an inference the artifact, then
             the arrays
    output   where the artifact, the model or the arrays (.npz) are to be written; nothing is for a benchmark
    finish   once this file exists, measuring ends and the best found so far is made
    options  as the kind's options say in `to_json`
    records  earlier measurements of this hardware
    measures whether this worker holds a device of the job's kind; without it nothing is measured
    gpu      whether that device is a GPU, which the job may then use; CUDA starts in the job, never before
    samples  of a compilation, quantization, compression or benchmark: .npz archives of inputs, by what the caller
             calls them
    walls    those of the sandbox without which nothing is done
    answers  the folder of answers to what is asked of the worker (`worker.attempt.helper_requests`); None: nothing may
             be asked
    kept     where the worker keeps what jobs have in common; None: this one has nothing in common with others
    kernels  of `tuning`: the terms and the first tasks of another worker's search (`compiler.tuning.helpers`)
    """

    kind: str
    inputs: tuple[tuple[str, Path], ...]
    output: Path
    scratch: Path
    finish: Path
    options: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    limits: Limits
    measures: bool = True
    gpu: bool = False
    samples: tuple[tuple[str, Path], ...] = ()
    walls: tuple[str, ...] = ()
    answers: Path | None = None
    kept: Path | None = None
    kernels: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, the frame that SPEC carries; paths become strings."""
        return {
            "kind": "spec",
            "job": self.kind,
            "inputs": [[name, str(path)] for name, path in self.inputs],
            "output": str(self.output),
            "scratch": str(self.scratch),
            "finish": str(self.finish),
            "options": dict(self.options),
            "records": [dict(record) for record in self.records],
            "limits": self.limits.to_json(),
            "measures": self.measures,
            "gpu": self.gpu,
            "samples": [[name, str(path)] for name, path in self.samples],
            "walls": list(self.walls),
            "answers": str(self.answers) if self.answers else None,
            "kept": str(self.kept) if self.kept else None,
            "kernels": dict(self.kernels),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Spec:
        """The spec of which `plain` is the `to_json`. Raises `KeyError` when a field is missing."""
        return cls(
            kind=plain["job"],
            inputs=tuple((name, Path(path)) for name, path in plain["inputs"]),
            output=Path(plain["output"]),
            scratch=Path(plain["scratch"]),
            finish=Path(plain["finish"]),
            options=plain["options"],
            records=tuple(plain["records"]),
            limits=Limits.from_json(plain["limits"]),
            measures=plain["measures"],
            gpu=plain["gpu"],
            samples=tuple((name, Path(path)) for name, path in plain["samples"]),
            walls=tuple(plain["walls"]),
            answers=Path(plain["answers"]) if plain["answers"] else None,
            kept=Path(plain["kept"]) if plain["kept"] else None,
            kernels=plain["kernels"],
        )

    def stop_requested(self) -> bool:
        """Whether the job shall end early, with the best that it has."""
        return os.path.exists(self.finish)

    @property
    def first(self) -> Path:
        """Beside the output: an artifact that was made before measuring, once it was told of."""
        return self.output.with_name("first")

    @property
    def readable(self) -> list[Path]:
        """The inputs and samples, where they are links as well, and the folder that holds them."""
        files = (*self.inputs, *self.samples)
        answers = [self.answers] if self.answers else []
        return answers + list(dict.fromkeys(path for _, given in files for path in (given, given.parent)))


def main(arguments: list[str]) -> None:
    """Do what the spec says; the exit status is 0 whenever a report or a problem was written."""
    spec_descriptor, frames_descriptor = map(int, arguments)
    faulthandler.enable()
    os.set_inheritable(frames_descriptor, False)
    spec = _read_spec(spec_descriptor)
    os.chdir(spec.scratch)
    if job_kinds.of(spec.kind).reads:
        os.nice(BEHIND_OTHERS)
    from worker.sandbox import enter

    library = _c_library(spec)
    readable, keep = [*spec.readable, *library], [frames_descriptor]
    standing = enter.enter(spec.limits, spec.scratch, readable=readable, keep=keep, gpu=spec.gpu)
    gc.set_threshold(GARBAGE)
    outbox = Outbox(frames_descriptor)
    outbox.send({"kind": "sandbox", "standing": list(standing)})
    outbox.send(_outcome(spec, outbox, [wall for wall in spec.walls if wall not in standing], library))
    # Leave at once: exit handlers of native libraries may crash after the work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _c_library(spec: Spec) -> list[Path]:
    """What the compiler for browsers built for an earlier job: at most one folder. Other jobs import nothing for it."""
    if spec.kept is None:
        return []
    from worker.devices import c_library

    return c_library.kept(spec.options, spec.kept)


def _outcome(spec: Spec, outbox: Outbox, missing: Sequence[str], library: Sequence[Path]) -> dict[str, Any]:
    """The last frame: the report, or the problem. Nothing is read where walls are missing."""
    from worker import problems

    if missing:
        return {"kind": "problem", "problem": problems.walls_missing(missing).to_json()}
    try:
        for folder in library:
            from worker.devices import c_library

            c_library.copy(folder, spec.scratch)
        work = importlib.import_module(job_kinds.of(spec.kind).work).work
        return {"kind": "report", "report": work(spec, outbox)}
    except Exception as error:
        traceback.print_exc()
        return {"kind": "problem", "problem": problems.from_exception(error, spec.limits).to_json()}


class Outbox:
    """Frames to the worker, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one frame."""
        with self._lock:
            frames.write(self._descriptor, message)

    def event(self, event: Event) -> None:
        """Write an event."""
        self.send({"kind": "event", "event": event.to_json()})


def _read_spec(descriptor: int) -> Spec:
    with os.fdopen(descriptor, "rb") as file:
        whole = file.read()
    (plain,) = frames.Decoder(max_frame_bytes=len(whole)).feed(whole)
    return Spec.from_json(plain)


if __name__ == "__main__":
    main(sys.argv[1:])
