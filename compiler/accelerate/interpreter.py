"""Runs the parts of an accelerator's artifact here, in turn. It travels in the artifact and needs numpy.

The command stream of an accelerator runs on that accelerator alone; what runs here is the file that it was compiled
from: int8 TFLite by LiteRT, or TOSA by `tosa.py` of the artifact, in numpy. Parts of the CPU are programs, in artifacts
of their own, which run as they are. Times on the accelerator are estimates of its compiler, and `bench` gives nothing
that was measured here.

Where the artifact is a pipeline (`stream` in its manifest) several inferences may be in flight: a thread for the CPU
and one that stands in for the accelerator, which both work at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np


class ArtifactError(Exception):
    """What is wrong with an artifact or an input, and how to mend it."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(f"{message}; {fix}" if fix else message)
        self.message, self.fix = message, fix


class TensorSpec(NamedTuple):
    """An input or output as the model has it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The type of its elements."""
        return np.dtype(self.dtype)

    @property
    def axes(self) -> tuple[None, ...]:
        """Every size is the one in `shape`."""
        return (None,) * len(self.shape)


class Binding(NamedTuple):
    """The only shapes that it runs."""

    number: int
    dims: Mapping[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


PartRun = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
"""What a part makes of what it reads, both in the order of its row in the manifest."""


class Model:
    """The model in an artifact; floats in and out, bytes between."""

    errors = (ArtifactError,)

    def __init__(self, path: str | Path, lanes: int | None = None, **options: Any) -> None:
        """Raises ArtifactError where LiteRT is needed and missing, or no program of a CPU part is for this machine."""
        self._where, self._lanes = Path(path), lanes
        self.manifest: Mapping[str, Any] = json.loads(_read(self._where, "manifest.json"))
        self._placement = json.loads(_read(self._where, "placement.json"))
        self.inputs, self.outputs = (self._specs(kind) for kind in ("inputs", "outputs"))
        self.bindings = (Binding(1, {}, self.inputs, self.outputs),)
        self._programs: list[Any] = []
        self._runs: list[PartRun] | None = None
        self._pipeline: Pipeline | None = None
        try:
            self._runs = [self._opened(part) for part in self.manifest["parts"]]
        except BaseException:
            self.close()
            raise

    def _opened(self, part: Mapping[str, Any]) -> PartRun:
        if "model" in part and part["model"].endswith(".tosa"):
            return _by_tosa(self._where, _read(self._where, part["model"]))
        if "model" in part:
            return _by_litert(_read(self._where, part["model"]), self._lanes or 1)
        for name, machine in part["programs"].items():
            if machine == platform.machine():
                self._programs.append(program(_read(self._where, name), self._lanes))
                return part_run(self._programs[-1])
        known = ", ".join(sorted({*part["programs"].values()}))
        raise ArtifactError(
            f"a part of the CPU's is for {known}, and this machine is {platform.machine()}",
            fix="compile the model on a machine of this kind",
        )

    def _specs(self, kind: str) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(one["name"], one["dtype"], tuple(one["shape"])) for one in self.manifest[kind])

    def at(self, number: int) -> Model:
        """The model at its one binding."""
        if number != 1:
            raise ArtifactError(f"there is no binding {number}", fix="there is one, 1")
        return self

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name, in float32. Raises ArtifactError for inputs that do not fit."""
        arrays = self._checked(inputs)
        passed = entered(self.manifest["inputs"], arrays)
        for part, run in zip(self.manifest["parts"], self._runs or (), strict=True):
            step(part["inputs"], part["outputs"], run, passed)
        found = taken(self.manifest["outputs"], passed)
        for name, array in (out or {}).items():
            array[...] = found[name]
            found[name] = array
        return found

    def _checked(self, inputs: Mapping[str, Any], left_out: Collection[str] = ()) -> dict[str, np.ndarray]:
        if self._runs is None:
            raise ArtifactError("the model is closed", fix="load it again")
        wanted = [spec for spec in self.inputs if spec.name not in left_out]
        if unknown := sorted({*inputs} ^ {spec.name for spec in wanted}):
            raise ArtifactError(f"inputs differ by {unknown}", fix=f"give {', '.join(spec.name for spec in wanted)}")
        arrays = {}
        for spec in wanted:
            given = np.asarray(inputs[spec.name])
            kinds = "fiu" if spec.dtype == "float32" else spec.numpy.kind
            if given.shape != spec.shape or given.dtype.kind not in kinds:
                raise ArtifactError(
                    f"input {spec.name!r} is {given.dtype} {given.shape}", fix=f"give {spec.dtype} {spec.shape}"
                )
            if not np.isfinite(given).all():
                raise ArtifactError(f"input {spec.name!r} has NaN or infinity", fix="give finite numbers")
            arrays[spec.name] = given
        return arrays

    def run_flat(self, inputs: Sequence[Any], out: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """As `run`, in the order of `inputs` and `outputs`."""
        given = {spec.name: one for spec, one in zip(self.inputs, inputs, strict=True)}
        into = {spec.name: one for spec, one in zip(self.outputs, out or (), strict=False) if one is not None}
        found = self.run(given, into)
        return [found[spec.name] for spec in self.outputs]

    def random_inputs(self, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Values over the whole range of each input's bytes, or that a part of the CPU's takes; one seed, one draw."""
        random = np.random.default_rng(seed)
        found = {}
        for spec, port in zip(self.inputs, self.manifest["inputs"], strict=True):
            if "scale" in port:
                q = random.integers(-128, 128, spec.shape)
                found[spec.name] = (port["scale"] * (q - port["zero_point"])).astype(np.float32)
            else:
                drawn = [one.random_inputs(seed) for one in self._programs]
                found[spec.name] = next(each[spec.name] for each in drawn if spec.name in each)
        return found

    def profile(self, inputs: Mapping[str, Any] | None = None, repeats: int = 10) -> list[dict[str, Any]]:
        """The rows of placement.json: what is estimated, since nothing is measured here."""
        return list(self._placement["operators"])

    @property
    def clock_hz(self) -> float:
        """Of the accelerator, for the cycles of `profile`."""
        return float(self._placement["totals"]["clock_hz"])

    def bench(self, seconds: float = 2.0, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What is estimated of a run on the accelerator; nothing is measured."""
        total = self._placement["totals"]["seconds"]
        found = {"estimated": True, "by": self._placement["estimated_by"], "median": total, "min": total, "runs": 0}
        if "stream" in self.manifest:
            found["period"] = self.manifest["stream"]["period_s"]
        return found

    def stream(self, frames: Iterable[Mapping[str, Any]], depth: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Outputs of each of many inputs, in order; of a pipeline with several in flight, else one after the other.

        A pipeline takes the next inputs while fewer than `depth` are in flight, None for as many as its parts hold, and
        copies them. What is wrong with one is raised where its result would be, and the next `next` goes on.
        """
        if depth is not None and depth < 1:
            raise ValueError(f"depth is {depth}; give 1 or more, or None for as many as the parts can hold")
        if "stream" not in self.manifest:
            return (self.run(frame) for frame in frames)
        return Stream(self, frames, depth or int(self.manifest["stream"]["frames"]))

    def submit(self, inputs: Mapping[str, Any]) -> Frame:
        """Begins an inference, and waits only while as many are in flight as may be.

        A state that the model carries may be left out: it is what the frame before makes, zeros in the first one.
        Raises ArtifactError as `run` does, and where the artifact is no pipeline.
        """
        pipeline, ports = self._opened_pipeline(), {port["name"]: port for port in self.manifest["inputs"]}
        outputs = {port["name"]: port for port in self.manifest["outputs"]}
        states = [
            (outputs[one["output"]], ports[one["input"]])
            for one in self.manifest["stream"]["carried"]
            if one["input"] not in inputs
        ]
        left_out = {port["name"] for _, port in states}
        copied = {name: np.array(array) for name, array in self._checked(inputs, left_out).items()}
        held = entered([port for name, port in ports.items() if name not in left_out], copied)
        return pipeline.submit(held, self.manifest["outputs"], states)

    def occupancy(self) -> tuple[int, list[float]]:
        """How many frames have ended, and each part's seconds of processor time in its thread here.

        Of a part of the accelerator's they are the interpreter's.
        """
        return self._opened_pipeline().work()

    def _opened_pipeline(self) -> Pipeline:
        if self._runs is None:
            raise ArtifactError("the model is closed", fix="load it again")
        if "stream" not in self.manifest:
            raise ArtifactError(
                "the parts of this artifact take turns", fix='compile it with {"objective": "throughput"}'
            )
        if self._pipeline is None:
            self._pipeline = Pipeline(self.manifest["stream"], self.manifest["parts"], self._runs)
        return self._pipeline

    def close(self) -> None:
        """Frees what runs the parts. Frames in flight are given up."""
        if self._pipeline is not None:
            self._pipeline.close()
        self._pipeline = self._runs = None
        for one in self._programs:
            one.close()
        self._programs = []

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Frame:
    """One inference in flight: what it holds by the names of the manifest, and why it failed, if it did.

    `states` are the rows of the outputs of the frame `before`, None for zeros, that are inputs of this one.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        number: int,
        held: dict[str, np.ndarray],
        outputs: Sequence[Mapping[str, Any]],
        states: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = (),
        before: Frame | None = None,
    ) -> None:
        self.number, self.held, self.outputs = number, held, outputs
        self.states, self.before = states, before
        self.wanted = {port.get("held", port["name"]) for port in outputs}
        self.failed: Exception | None = None
        self.has_ended = False
        self._pipeline = pipeline

    def result(self) -> dict[str, np.ndarray]:
        """Waits for its outputs, by name. Raises what it failed with, each time that it is asked."""
        self._pipeline.wait(self)
        if self.failed is not None:
            raise self.failed
        return taken(self.outputs, self.held)

    def take(self, name: str) -> np.ndarray:
        """An input; a state as the frame before has made it. Raises ArtifactError where that failed before."""
        for made, port in self.states if name not in self.held else ():
            if name not in (port["name"], port.get("held")):
                continue
            if self.before is None:
                state = np.zeros(port["shape"], port["dtype"])
            elif made["held"] in self.before.held:
                state = taken([made], self.before.held)[made["name"]]
            else:
                lost = f"the state {port['name']!r:.100} is lost, since the inference before failed"
                raise ArtifactError(lost, fix="give it with the inputs")
            self.held.update(entered([port], {port["name"]: state}))
        return self.held[name]


class Stream:
    """Results of frames in the order in which these were given, with several in flight: an iterator."""

    def __init__(self, model: Model, frames: Iterable[Mapping[str, Any]], depth: int) -> None:
        self._model, self._frames, self._depth = model, iter(frames), depth
        self._waiting: deque[Frame | ArtifactError] = deque()
        self._is_over = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        while not self._is_over and len(self._waiting) < self._depth:
            try:
                inputs = next(self._frames)
            except StopIteration:
                self._is_over = True
                break
            try:
                self._waiting.append(self._model.submit(inputs))
            except ArtifactError as refused:
                self._waiting.append(refused)
        if not self._waiting:
            raise StopIteration
        first = self._waiting.popleft()
        if isinstance(first, ArtifactError):
            raise first
        return first.result()


class Pipeline:
    """Parts at work for several frames: a thread for each device, which does one part for one frame at a time.

    `described` is the manifest's `stream`, `parts` its rows of parts, and `runs` what runs each. A part may begin a
    frame when what its `after` lists has ended; of those that may a device takes the one whose frame and place add up
    to least. An edge has so many slots, of which a frame has its own; a frame keeps what the caller gives and is given.
    """

    def __init__(
        self, described: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], runs: Sequence[PartRun]
    ) -> None:
        self._stages, self._parts, self._runs = described["parts"], parts, runs
        self._most, self._process = int(described["frames"]), os.getpid()
        self._slots: dict[str, list[tuple[int, np.ndarray] | None]] = {
            one["name"]: [None] * one["slots"] for one in described["edges"]
        }
        self._flight: dict[int, Frame] = {}
        self._last: Frame | None = None
        self._begun = 0
        self._ended = [0] * len(parts)
        self._work = [0.0] * len(parts)
        self._is_closed = False
        self._change = threading.Condition()
        self._threads = [
            threading.Thread(target=self._device, args=(device,), name=f"tilewright-device-{device}", daemon=True)
            for device in sorted({one["device"] for one in self._stages})
        ]
        for one in self._threads:
            one.start()

    def submit(
        self,
        held: dict[str, np.ndarray],
        outputs: Sequence[Mapping[str, Any]],
        states: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = (),
    ) -> Frame:
        """Begins a frame of what it holds of the model's inputs; waits while as many are in flight as may be.

        `states` are the rows of outputs of the frame before, and of the inputs that they are in this one.
        """
        if os.getpid() != self._process:
            raise ArtifactError("a pipeline does not survive a fork", fix="load the model in the process that uses it")
        with self._change:
            self._change.wait_for(lambda: self._is_closed or len(self._flight) < self._most)
            self._demand_open()
            frame = Frame(self, self._begun, held, outputs, states, self._last if states else None)
            self._flight[self._begun] = self._last = frame
            self._begun += 1
            self._change.notify_all()
        return frame

    def wait(self, frame: Frame) -> None:
        """Until a frame has ended. Raises ArtifactError where it never will."""
        with self._change:
            self._change.wait_for(lambda: self._is_closed or frame.has_ended)
            if not frame.has_ended:
                self._demand_open()

    def work(self) -> tuple[int, list[float]]:
        """How many frames have ended, and each part's seconds of processor time in its thread."""
        with self._change:
            return min(self._ended), [*self._work]

    def close(self) -> None:
        """Ends the threads, each when it has done its part."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()
        for one in self._threads:
            one.join()

    def _demand_open(self) -> None:
        if self._is_closed:
            raise ArtifactError("the model is closed", fix="load it again")

    def _device(self, device: int) -> None:
        own = [at for at, one in enumerate(self._stages) if one["device"] == device]
        while True:
            with self._change:
                while not self._is_closed and self._next(own) is None:
                    self._change.wait()
                at = self._next(own)
                if self._is_closed or at is None:
                    return
                frame = self._flight[self._ended[at]]
            begin = time.thread_time()
            self._run(at, frame)
            seconds = time.thread_time() - begin
            with self._change:
                self._ended[at] += 1
                self._work[at] += seconds
                if min(self._ended) > frame.number:
                    frame.has_ended, frame.before = True, None
                    del self._flight[frame.number]
                self._change.notify_all()

    def _next(self, own: Sequence[int]) -> int | None:
        """Which of a device's parts begins next, None while none may."""
        ready = [
            (self._ended[at] + at, at)
            for at in own
            if self._ended[at] < self._begun
            and all(self._ended[one["part"]] > self._ended[at] - one["frames"] for one in self._stages[at]["after"])
        ]
        return min(ready)[1] if ready else None

    def _run(self, at: int, frame: Frame) -> None:
        """A part for a frame, unless that has failed; what fails is the frame's, and no other one's."""
        if frame.failed is not None:
            return
        part = self._parts[at]
        try:
            made = self._runs[at]([self._read(name, frame) for name in part["inputs"]])
            for name, array in zip(part["outputs"], made, strict=True):
                if name in self._slots:
                    slots = self._slots[name]
                    slots[frame.number % len(slots)] = frame.number, array
                if name in frame.wanted:
                    frame.held[name] = array
        except Exception as reason:
            frame.failed = reason

    def _read(self, name: str, frame: Frame) -> np.ndarray:
        if name not in self._slots:
            return frame.take(name)
        slots = self._slots[name]
        found = slots[frame.number % len(slots)]
        if found is None or found[0] != frame.number:
            raise ArtifactError(f"the slot of {name!r:.100} is not frame {frame.number}'s", fix="report this artifact")
        return found[1]


def entered(inputs: Sequence[Mapping[str, Any]], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What parts read of the model's inputs, by the names of the manifest, whose rows `inputs` are."""
    held = {}
    for port in inputs:
        held[port["name"]] = np.ascontiguousarray(given[port["name"]], port["dtype"])
        if "scale" in port:
            held[port["held"]] = to_bytes(given[port["name"]], port).reshape(port["stored"])
    return held


def step(inputs: Sequence[str], outputs: Sequence[str], run: PartRun, held: dict[str, np.ndarray]) -> None:
    """Runs a part on what it reads of `held`, and puts what it makes there."""
    held.update(zip(outputs, run([held[name] for name in inputs]), strict=True))


def taken(outputs: Sequence[Mapping[str, Any]], held: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's outputs of what parts have made."""
    return {
        port["name"]: to_floats(held[port["held"]], port) if "scale" in port else held[port["held"]] for port in outputs
    }


def _by_litert(content: bytes, lanes: int) -> PartRun:
    try:
        litert = import_module("ai_edge_litert.interpreter")
    except ImportError as reason:
        raise ArtifactError(
            f"an artifact for an accelerator is run here by LiteRT, which cannot be imported ({reason})",
            fix="pip install 'ai-edge-litert>=2.1'",
        ) from reason
    runs = litert.Interpreter(
        model_content=content,
        num_threads=lanes,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
    )
    runs.allocate_tensors()
    turn = threading.Lock()

    def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        with turn:
            for held, array in zip(runs.get_input_details(), arrays, strict=True):
                runs.set_tensor(held["index"], array)
            runs.invoke()
            return [runs.get_tensor(held["index"]) for held in runs.get_output_details()]

    return run


def _by_tosa(where: Path, content: bytes) -> PartRun:
    tosa: Any = _module("tosa", _read(where, "tosa.py"))
    try:
        graph = tosa.read(content)
    except tosa.TosaError as reason:
        raise ArtifactError(f"a TOSA part cannot be loaded: {reason}", fix="compile the model again") from reason

    def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        try:
            return list(graph.run(arrays))
        except tosa.TosaError as reason:
            raise ArtifactError(f"a TOSA part has no defined result: {reason}") from reason

    return run


def _module(name: str, source: bytes) -> ModuleType:
    """A module that travels in an artifact, loaded once for all artifacts with the same."""
    name = f"tilewright_part_{name}_{hashlib.sha256(source).hexdigest()[:12]}"
    if name not in sys.modules:
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(source, name, "exec"), module.__dict__)
    return sys.modules[name]


def program(content: bytes, lanes: int | None = None) -> Any:
    """The model in the artifact of a part of the CPU's, by the loader in it. Raises ArtifactError where it is not."""
    with tempfile.TemporaryDirectory(prefix="tilewright-part-") as folder:
        path = Path(folder) / "part.tw"
        path.write_bytes(content)
        loader: Any = _module("loader", _read(path, "loader.py"))
        try:
            return loader.Model(path, lanes)
        except loader.ArtifactError as reason:
            raise ArtifactError(f"a part of the CPU's cannot be loaded: {reason}") from reason


def part_run(model: Any) -> PartRun:
    """Runs the program of a part."""

    def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        try:
            return list(model.run_flat(arrays))
        except model.errors as reason:
            raise ArtifactError(f"a part of the CPU's failed: {reason}") from reason

    return run


def to_bytes(real: np.ndarray, port: Mapping[str, Any]) -> np.ndarray:
    """An input in the model's order of axes as the file takes it; `port` is the manifest's row."""
    q = np.rint(real.astype(np.float64) / np.float64(np.float32(port["scale"]))) + port["zero_point"]
    stored = np.clip(q, -128, 127).astype(np.int8)
    return np.ascontiguousarray(stored.transpose(0, 2, 3, 1) if port["channels_last"] else stored)


def to_floats(q: np.ndarray, port: Mapping[str, Any]) -> np.ndarray:
    """An output of the file in the model's order of axes, in float32."""
    if port["channels_last"]:
        q = q.transpose(0, 3, 1, 2)
    real = (np.float32(port["scale"]) * (q.astype(np.int32) - port["zero_point"])).astype(np.float32)
    return np.ascontiguousarray(real.reshape(port["shape"]))


def _read(where: Path, name: str) -> bytes:
    if where.is_dir():
        return (where / name).read_bytes()
    with zipfile.ZipFile(where) as archive:
        return archive.read(name)
