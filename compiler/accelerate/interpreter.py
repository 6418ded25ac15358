"""Runs the int8 model of an accelerator's artifact here, by LiteRT. It travels in the artifact and needs numpy.

The command stream of an accelerator runs on that accelerator alone; what runs here is the TFLite file that it was
compiled from. Times on the accelerator are estimates of its compiler, and `bench` gives nothing else.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
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


class Model:
    """The model in an artifact; floats in and out, bytes between."""

    errors = (ArtifactError,)

    def __init__(self, path: str | Path, lanes: int | None = None, **options: Any) -> None:
        """Raises ArtifactError where LiteRT is not installed."""
        try:
            litert = import_module("ai_edge_litert.interpreter")
        except ImportError as reason:
            raise ArtifactError(
                f"an artifact for an accelerator is run here by LiteRT, which cannot be imported ({reason})",
                fix="pip install 'ai-edge-litert>=2.1'",
            ) from reason
        self.manifest: Mapping[str, Any] = json.loads(_read(Path(path), "manifest.json"))
        self._placement = json.loads(_read(Path(path), "placement.json"))
        self.inputs, self.outputs = (self._specs(kind) for kind in ("inputs", "outputs"))
        self.bindings = (Binding(1, {}, self.inputs, self.outputs),)
        self._runs: Any = litert.Interpreter(
            model_content=_read(Path(path), "model.tflite"),
            num_threads=lanes or 1,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        )
        self._runs.allocate_tensors()

    def _specs(self, kind: str) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(one["name"], one["dtype"], tuple(one["shape"])) for one in self.manifest[kind])

    def at(self, number: int) -> Model:
        """The model at its one binding."""
        if number != 1:
            raise ArtifactError(f"there is no binding {number}", fix="there is one, 1")
        return self

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name, in float32. Raises ArtifactError for inputs that do not fit."""
        if self._runs is None:
            raise ArtifactError("the model is closed", fix="load it again")
        if unknown := sorted({*inputs} ^ {spec.name for spec in self.inputs}):
            raise ArtifactError(
                f"inputs differ by {unknown}", fix=f"give {', '.join(spec.name for spec in self.inputs)}"
            )
        for spec, port, held in zip(self.inputs, self.manifest["inputs"], self._runs.get_input_details(), strict=True):
            given = np.asarray(inputs[spec.name])
            if given.shape != spec.shape or given.dtype.kind not in "fiu":
                raise ArtifactError(
                    f"input {spec.name!r} is {given.dtype} {given.shape}", fix=f"give float32 {spec.shape}"
                )
            if not np.isfinite(given).all():
                raise ArtifactError(f"input {spec.name!r} has NaN or infinity", fix="give finite numbers")
            self._runs.set_tensor(held["index"], to_bytes(given, port).reshape(held["shape"]))
        self._runs.invoke()
        found = {}
        for spec, port, held in zip(
            self.outputs, self.manifest["outputs"], self._runs.get_output_details(), strict=True
        ):
            found[spec.name] = to_floats(self._runs.get_tensor(held["index"]), port)
        for name, array in (out or {}).items():
            array[...] = found[name]
            found[name] = array
        return found

    def run_flat(self, inputs: Sequence[Any], out: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """As `run`, in the order of `inputs` and `outputs`."""
        given = {spec.name: one for spec, one in zip(self.inputs, inputs, strict=True)}
        into = {spec.name: one for spec, one in zip(self.outputs, out or (), strict=False) if one is not None}
        found = self.run(given, into)
        return [found[spec.name] for spec in self.outputs]

    def random_inputs(self, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Values over the whole range of each input's bytes; the same for the same seed."""
        random = np.random.default_rng(seed)
        found = {}
        for spec, port in zip(self.inputs, self.manifest["inputs"], strict=True):
            q = random.integers(-128, 128, spec.shape)
            found[spec.name] = (port["scale"] * (q - port["zero_point"])).astype(np.float32)
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
        return {"estimated": True, "by": self._placement["estimated_by"], "median": total, "min": total, "runs": 0}

    def stream(self, frames: Any, depth: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """One after the other."""
        return (self.run(frame) for frame in frames)

    def close(self) -> None:
        """Frees the interpreter."""
        self._runs = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


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
