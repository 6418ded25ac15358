"""The process that does one job: `python -m worker.attempt.child SPEC FRAMES`, both descriptors.

It reads its orders (one frame) from SPEC, closes the walls around itself, compiles a model or runs artifacts, and
writes events and at the end one report or one problem to FRAMES. The compiler is imported inside the walls: they hold
only for threads that start after them.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.attempt.helper_requests import Mailbox, More
from worker.kind import READING, Kind
from worker.limits import BEHIND_OTHERS, Limits
from worker.processes import frames

if TYPE_CHECKING:
    from compiler.contract import Event

NOT_MEASURED = (
    "built by a worker that does not measure: tiles were chosen by the cost model and by earlier measurements"
)

GARBAGE = 20_000
"""New objects until the youngest are looked through: a compilation makes few cycles, and many objects that stay."""

FIRST = "first"
"""Beside the output: an artifact that was made before measuring, once it was told of."""


@dataclass(frozen=True)
class Spec:
    """The orders of one job. Paths are absolute.

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
    kernels  of `tuning`: the terms and the first tasks of another worker's search (`compiler.tuning.helpers`)
    """

    kind: Kind
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
            kernels=plain["kernels"],
        )

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
    if spec.kind in READING:
        os.nice(BEHIND_OTHERS)
    from worker.sandbox import enter

    keep = [frames_descriptor]
    standing = enter.enter(spec.limits, spec.scratch, readable=spec.readable, keep=keep, gpu=spec.gpu)
    gc.set_threshold(GARBAGE)
    outbox = _Outbox(frames_descriptor)
    outbox.send({"kind": "sandbox", "standing": list(standing)})
    outbox.send(_outcome(spec, outbox, [wall for wall in spec.walls if wall not in standing]))
    # Leave at once: exit handlers of native libraries may crash after the work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _outcome(spec: Spec, outbox: _Outbox, missing: Sequence[str]) -> dict[str, Any]:
    """The last frame: the report, or the problem. Nothing is read where walls are missing."""
    from worker import problems

    if missing:
        return {"kind": "problem", "problem": problems.walls_missing(missing).to_json()}
    work = {
        "compile": _compile,
        "benchmark": _benchmark,
        "inference": _infer,
        "quantization": _quantize,
        "compression": _compress,
        "tuning": _tune,
        "minimisation": _minimise,
    }[spec.kind]
    try:
        return {"kind": "report", "report": work(spec, outbox)}
    except Exception as error:
        traceback.print_exc()
        return {"kind": "problem", "problem": problems.from_exception(error, spec.limits).to_json()}


def _compile(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.contract import CompileOptions, CompileReport, Event, kinds
    from compiler.pipeline import compile_model
    from compiler.request import Host, Request

    options = CompileOptions.from_json(spec.options)
    (_, model), *data = spec.inputs
    finish = str(spec.finish)

    def first(made: Path, come: CompileReport) -> None:
        os.replace(made, spec.output.with_name(FIRST))
        outbox.send({"kind": "first", "report": come.to_json()})

    host = Host(
        spec.records,
        outbox.event,
        stop_requested=lambda: os.path.exists(finish),
        measure=spec.measures,
        memory_bytes=spec.limits.memory_bytes,
        helpers=Mailbox(outbox.send, spec.answers) if spec.answers else None,
        first=first,
    )
    request = Request(model, spec.output, options, dict(data), dict(spec.samples))
    report = compile_model(request, host).to_json()
    if not spec.measures and not kinds.of(options.compiled_for).whole:
        report["notices"] = [*report["notices"], NOT_MEASURED]
        outbox.event(Event("notice", "agree", 1.0, NOT_MEASURED))
    return report


def _tune(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.contract import CompileOptions
    from compiler.steps.another import tune_kernels

    finish, answers = str(spec.finish), spec.answers
    assert answers is not None

    def stop() -> bool:
        return os.path.exists(finish)

    post = More(outbox.send, answers)
    measured = tune_kernels(
        spec.kernels["tasks"],
        spec.kernels["terms"],
        CompileOptions.from_json(spec.options),
        spec.records,
        outbox.event,
        stop,
        lambda seconds, measured: post.next(seconds, measured, stop),
    )
    return {"measured": measured}


def _quantize(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.contract import QuantizeOptions
    from compiler.quantize import quantize

    (_, model), *data = spec.inputs
    options = QuantizeOptions.from_json(spec.options)
    return quantize(model, spec.output, options, dict(spec.samples), outbox.event, dict(data)).to_json()


def _compress(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.compress import compress
    from compiler.contract import CompressOptions, Event

    (_, model), *data = spec.inputs
    finish = str(spec.finish)
    report = compress(
        model,
        spec.output,
        CompressOptions.from_json(spec.options),
        dict(spec.samples),
        outbox.event,
        dict(data),
        records=spec.records,
        stop_requested=lambda: os.path.exists(finish),
        measure=spec.measures,
    ).to_json()
    if not spec.measures:
        report["notices"] = [*report["notices"], NOT_MEASURED]
        outbox.event(Event("notice", "write", 1.0, NOT_MEASURED))
    return report


def _minimise(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.contract import CompileOptions
    from compiler.minimise import minimise

    (_, model), *data = spec.inputs
    finish = str(spec.finish)
    return minimise(
        model,
        spec.output,
        CompileOptions.from_json(spec.options["compile"]),
        spec.options["seconds"],
        dict(data),
        dict(spec.samples),
        outbox.event,
        scratch=spec.scratch,
        stop_requested=lambda: os.path.exists(finish),
    ).to_json()


def _benchmark(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.contract import BenchmarkOptions
    from compiler.runner import benchmark

    return benchmark(spec.inputs, BenchmarkOptions.from_json(spec.options), outbox.event, dict(spec.samples))


def _infer(spec: Spec, outbox: _Outbox) -> dict[str, Any]:
    from compiler.contract import Event
    from compiler.runner import infer

    outbox.event(Event("phase", "run", 0.0))
    (_, artifact), (_, arrays) = spec.inputs
    return infer(artifact, arrays, spec.output, spec.options.get("threads"))


class _Outbox:
    """Frames to the worker, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            frames.write(self._descriptor, message)

    def event(self, event: Event) -> None:
        self.send({"kind": "event", "event": event.to_json()})


def _read_spec(descriptor: int) -> Spec:
    with os.fdopen(descriptor, "rb") as file:
        whole = file.read()
    (plain,) = frames.Decoder(max_frame_bytes=len(whole)).feed(whole)
    return Spec.from_json(plain)


if __name__ == "__main__":
    main(sys.argv[1:])
