"""Runs a Tilewright artifact. One file; needs Python 3.10 or newer and numpy.

    python loader.py [--bench] [--profile] [--json] [MODEL.tw]

    from loader import Model
    with Model("model.tw") as model:
        outputs = model.run({"x": array})

MODEL.tw may also be the folder that the archive was extracted to; left out, it is where this file lies. `python MODEL.tw` does the same
as `python loader.py MODEL.tw`. Every file is checked against the SHA-256 in manifest.json before it is used.
"""

from __future__ import annotations

import _ctypes
import argparse
import ctypes
import hashlib
import json
import os
import platform
import statistics
import struct
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1
ABI_VERSION = 1
ALIGNMENT = 64
"""Of the outputs allocated here: a cache line, so that no vector store touches two."""

Array = NDArray[Any]

_TYPES = {
    "bool": (6, 8),
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "float32": (2, 32),
    "float64": (2, 64),
}
"""DLPack's code and bits of each element type."""

_MACHINES = {62: "x86_64", 183: "aarch64"}
"""ELF's numbers of the architectures."""


class ArtifactError(Exception):
    """The artifact cannot be loaded: missing, damaged, of another version. `fix` says what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}. Fix: {fix}")
        self.message = message
        self.fix = fix


class WrongMachine(ArtifactError):
    """The artifact is sound, and this machine cannot run it."""


class InputError(ValueError):
    """An input or a preallocated output does not fit the model."""


class RunError(RuntimeError):
    """The model refused to run, or cannot any more."""


class TensorSpec(NamedTuple):
    """An input or output. A `bfloat16` tensor is given and returned as its bits, in uint16; ml_dtypes' own is accepted."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of the arrays that carry it."""
        return np.dtype(np.uint16 if self.dtype == "bfloat16" else self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class _Tensor(ctypes.Structure):
    """`tw_tensor` of model.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class _Config(ctypes.Structure):
    """`tw_config` of model.h."""

    _fields_ = (
        ("weights_path", ctypes.c_char_p),
        ("weights_offset", ctypes.c_int64),
        ("lanes", ctypes.c_int32),
        ("spin_us", ctypes.c_int32),
    )


class _Files:
    """The members of an artifact, in its archive or in a folder; each is checked as it is read."""

    def __init__(self, path: Path, verify: bool) -> None:
        self.path = path
        self.verify = verify
        self.archive: zipfile.ZipFile | None = None
        if not path.exists():
            raise ArtifactError(f"{path} does not exist", "give a .tw file, or the folder it was extracted to")
        if path.is_file():
            try:
                self.archive = zipfile.ZipFile(path)
            except (OSError, zipfile.BadZipFile) as reason:
                raise ArtifactError(f"{path} is not a whole .tw archive: {reason}", "download it again") from reason
        try:
            self.manifest = self._manifest()
        except BaseException:
            self.close()
            raise

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads(self._bytes("manifest.json"))
            version = manifest["format_version"]
        except (ValueError, KeyError, TypeError) as reason:
            raise ArtifactError(f"manifest.json of {self.path} is damaged: {reason!r}", "download it again") from reason
        if version != FORMAT_VERSION:
            raise ArtifactError(
                f"{self.path} has format version {version}, this loader reads {FORMAT_VERSION}",
                "use the loader.py inside that artifact",
            )
        return dict(manifest)

    def read(self, name: str) -> bytes:
        """A member's bytes. Raises ArtifactError unless they are those that the manifest promises."""
        content = self._bytes(name)
        if self.verify:
            self._compare(name, len(content), hashlib.sha256(content))
        return content

    def locate(self, name: str) -> tuple[Path, int]:
        """The file that holds a member's bytes as they are, and where in it they begin. Checked like `read`."""
        path, offset, size = self._place(name)
        if self.verify:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                file.seek(offset)
                left = size
                while left and (piece := file.read(min(left, 1 << 20))):
                    digest.update(piece)
                    left -= len(piece)
            self._compare(name, size - left, digest)
        return path, offset

    def close(self) -> None:
        if self.archive:
            self.archive.close()

    def _place(self, name: str) -> tuple[Path, int, int]:
        if not self.archive:
            path = self.path / name
            if not path.is_file():
                raise self._missing(name)
            return path, 0, path.stat().st_size
        try:
            member = self.archive.getinfo(name)
        except KeyError:
            raise self._missing(name) from None
        with open(self.path, "rb") as file:
            file.seek(member.header_offset)
            header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\3\4" or member.compress_type != zipfile.ZIP_STORED:
            raise ArtifactError(f"{name} in {self.path} cannot be mapped", "download it again, and do not repack it")
        name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
        return self.path, member.header_offset + 30 + name_bytes + extra_bytes, member.file_size

    def _bytes(self, name: str) -> bytes:
        try:
            return self.archive.read(name) if self.archive else (self.path / name).read_bytes()
        except (KeyError, FileNotFoundError):
            raise self._missing(name) from None
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as reason:
            raise ArtifactError(f"{name} in {self.path} cannot be read: {reason}", "download it again") from reason

    def _compare(self, name: str, size: int, digest: Any) -> None:
        promised = self.manifest.get("files", {}).get(name)
        if promised is None:
            raise ArtifactError(f"{name} is not in the manifest of {self.path}", "download it again")
        if (size, digest.hexdigest()) != (promised["bytes"], promised["sha256"]):
            raise ArtifactError(
                f"{name} in {self.path} is damaged: {size} bytes with SHA-256 {digest.hexdigest()}, "
                f"not {promised['bytes']} with {promised['sha256']}",
                "download it again",
            )

    def _missing(self, name: str) -> ArtifactError:
        return ArtifactError(
            f"{self.path} holds no {name}", "give a .tw file made by Tilewright, or a folder with all of it"
        )


class _Library:
    """model.so, opened. Each has a file of its own, so that none is mistaken for one opened before under the same name."""

    def __init__(self, code: bytes) -> None:
        _check_architecture(code)
        self._fd = -1
        try:
            self.calls = self._from_memory(code)
        except (OSError, AttributeError):
            self.calls = self._from_file(code)
        try:
            self._declare()
        except AttributeError as reason:
            self.close()
            raise ArtifactError(f"model.so is not a Tilewright model: {reason}", "download it again") from None
        except BaseException:
            self.close()
            raise

    def _from_memory(self, code: bytes) -> ctypes.CDLL:
        """By a file in memory, kept open: the dynamic linker tells libraries apart by names, and this one holds the number."""
        self._fd = os.memfd_create("model.so", os.MFD_CLOEXEC)
        try:
            with open(self._fd, "wb", closefd=False) as file:
                file.write(code)
            return ctypes.CDLL(f"/proc/self/fd/{self._fd}")
        except OSError:
            os.close(self._fd)
            self._fd = -1
            raise

    def _from_file(self, code: bytes) -> ctypes.CDLL:
        handle, path = tempfile.mkstemp(suffix=".so", prefix="tilewright-")
        try:
            with open(handle, "wb") as file:
                file.write(code)
            return ctypes.CDLL(path)
        except OSError as reason:
            raise WrongMachine(
                f"model.so cannot be loaded: {reason}", "compile the model on or for this system"
            ) from reason
        finally:
            os.unlink(path)

    def _declare(self) -> None:
        c = self.calls
        if c.tw_abi_version() != ABI_VERSION:
            raise ArtifactError(
                f"model.so has ABI version {c.tw_abi_version()}, this loader knows {ABI_VERSION}",
                "use the loader.py inside that artifact",
            )
        tensors = ctypes.POINTER(_Tensor)
        c.tw_describe.restype = ctypes.c_char_p
        c.tw_last_error.restype = ctypes.c_char_p
        c.tw_create.argtypes = (ctypes.POINTER(_Config), ctypes.POINTER(ctypes.c_void_p))
        c.tw_run.argtypes = (ctypes.c_void_p, tensors, tensors)
        c.tw_profile.argtypes = (ctypes.c_void_p, tensors, tensors, ctypes.POINTER(ctypes.c_double))
        c.tw_destroy.argtypes = (ctypes.c_void_p,)
        c.tw_destroy.restype = None

    def last_error(self) -> str:
        return bytes(self.calls.tw_last_error() or b"no reason given").decode(errors="replace")

    def close(self) -> None:
        _ctypes.dlclose(self.calls._handle)
        if self._fd >= 0:
            os.close(self._fd)


def _check_architecture(code: bytes) -> None:
    here = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if code[:4] != b"\x7fELF" or len(code) < 20:
        return
    if sys.platform != "linux":
        raise WrongMachine(f"model.so is for Linux, this is {sys.platform}", "run it on Linux, or in a container")
    built = _MACHINES.get(struct.unpack_from("<H", code, 18)[0], "another architecture")
    if built != here:
        raise WrongMachine(f"model.so is for {built}, this machine is {here}", f"compile the model for cpu on {here}")


class Model:
    """A loaded artifact.

    path      a .tw file or a folder with its members; None: where this file lies
    lanes     threads; None: as many as the plan was made for. With fewer than that one thread does everything, so `.lanes` is 1
    verify    whether the library and the weights are compared with their SHA-256 first
    spin_us   how long an idle lane spins before it sleeps; None: the library's default

    Weights are mapped from the file and shared by all processes that use it. A Model may be used from any thread, one run at a
    time: `run` waits for the other to end. For runs side by side make several Models. It does not survive a fork.
    Raises ArtifactError, or WrongMachine when this machine cannot run it.
    """

    errors = (ArtifactError, InputError, RunError)
    """What is raised here, for those who have the Model and not this module."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        lanes: int | None = None,
        *,
        verify: bool = True,
        spin_us: int | None = None,
    ) -> None:
        self._instance = ctypes.c_void_p()
        self._library: _Library | None = None
        if lanes is not None and lanes < 1:
            raise ValueError(f"lanes is {lanes}. Fix: give 1 or more, or None for what the plan was made for")
        begin = time.perf_counter()
        self.path = Path(path) if path is not None else Path(__file__).resolve().parent
        self._files = _Files(self.path, verify)
        try:
            self.manifest = self._files.manifest
            self.inputs = _specs(self.manifest["inputs"])
            self.outputs = _specs(self.manifest["outputs"])
            planned = self.manifest["lanes"]
            self.lanes = planned if lanes is None or lanes >= planned else 1
            self._library = _Library(self._files.read("model.so"))
            self._create(lanes or 0, -1 if spin_us is None else spin_us)
        except BaseException:
            self.close()
            raise
        self._in, self._in_shapes = _tensors(self.inputs)
        self._out, self._out_shapes = _tensors(self.outputs)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.load_seconds = time.perf_counter() - begin

    def _create(self, lanes: int, spin_us: int) -> None:
        path, offset = self._files.locate("weights.bin")
        config = _Config(os.fsencode(path), offset, lanes, spin_us)
        library = self._opened()
        if library.calls.tw_create(ctypes.byref(config), ctypes.byref(self._instance)):
            self._instance = ctypes.c_void_p()
            raise WrongMachine(f"the model cannot start: {library.last_error()}", "see the reason above")

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Outputs by name, for inputs by name: numpy arrays, anything with `__dlpack__` in host memory, or nested lists.

        `out` may give arrays for some or all outputs, which are filled and returned. Strided arrays are fine, row-major ones are used in
        place. Raises InputError when something does not fit, RunError when the model is closed or fails.
        """
        _check_names("input", inputs, self.inputs)
        given = out or {}
        _check_names("output", given, self.outputs)
        for spec in self.inputs:
            if spec.name not in inputs:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        arrays = [_as_array(spec, inputs[spec.name]) for spec in self.inputs]
        results = self._results([given.get(spec.name) for spec in self.outputs], arrays)
        self._call(arrays, results)
        return {spec.name: _returned(spec, given, result) for spec, result in zip(self.outputs, results, strict=True)}

    def run_flat(self, inputs: Sequence[Any], out: Sequence[Array | None] | None = None) -> list[Array]:
        """As `run`, with inputs and outputs in the order of `.inputs` and `.outputs`."""
        arrays, results = self._flat(inputs, out)
        self._call(arrays, results)
        return results

    def bind(self, inputs: Sequence[Any], out: Sequence[Array]) -> Callable[[], float]:
        """A run that is checked once, for loops in which checking would count: each call runs the model and returns its seconds.

        `inputs` and `out` are in the order of `.inputs` and `.outputs`; arrays of the right type are used in place, so what is written to
        an input between two calls is seen by the second. Raises as `run` does.
        """
        arrays, results = self._flat(inputs, out)
        return lambda: self._timed(arrays, results)

    def random_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Standard normal floats; integers and booleans of 0 and 1, which are valid indices into most things."""
        random = np.random.default_rng(seed)
        made: dict[str, Array] = {}
        for spec in self.inputs:
            if spec.dtype == "bfloat16":
                made[spec.name] = (random.standard_normal(spec.shape, np.float32).view(np.uint32) >> 16).astype(
                    np.uint16
                )
            elif spec.numpy.kind == "f":
                made[spec.name] = np.asarray(random.standard_normal(spec.shape)).astype(spec.numpy)
            else:
                made[spec.name] = np.asarray(random.integers(0, 2, spec.shape)).astype(spec.numpy)
        return made

    def profile(self, inputs: Mapping[str, Any] | None = None, repeats: int = 10) -> list[dict[str, Any]]:
        """For each kernel call: what it is, and its median seconds over `repeats` runs, one lane at a time."""
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        calls = json.loads(self._files.read("plan.json"))["calls"]
        seconds = (ctypes.c_double * max(len(calls), 1))()
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._call(arrays, results, seconds)
            rows.append(list(seconds)[: len(calls)])
        medians = [statistics.median(times) for times in zip(*rows[1:], strict=True)]
        whole = sum(medians) or 1.0
        kept = ("family", "tile", "predicted_s", "predicted_from")
        return [
            {"call": at, **{key: call[key] for key in kept}, "seconds": spent, "share": spent / whole}
            for at, (call, spent) in enumerate(zip(calls, medians, strict=True))
        ]

    def bench(self, seconds: float = 2.0, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Latency of one run, in seconds: every sample and its percentiles, the first run and the loading apart.

        A fifth of `seconds` warms up first. At least ten samples are taken, however long they last.
        """
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        first = self._timed(arrays, results)
        end = time.perf_counter() + seconds / 5
        while time.perf_counter() < end:
            self._call(arrays, results)
        samples: list[float] = []
        end = time.perf_counter() + seconds * 4 / 5
        while len(samples) < 10 or time.perf_counter() < end:
            samples.append(self._timed(arrays, results))
        p10, median, p90, p99 = (float(value) for value in np.percentile(samples, (10, 50, 90, 99)))
        return {
            "median": median,
            "min": min(samples),
            "mean": statistics.fmean(samples),
            "p10": p10,
            "p90": p90,
            "p99": p99,
            "runs": len(samples),
            "first_run": first,
            "load": self.load_seconds,
            "lanes": self.lanes,
            "samples": samples,
        }

    def close(self) -> None:
        """Frees the instance and its threads; a second call does nothing."""
        if self._library and self._instance:
            if os.getpid() == getattr(self, "_process", os.getpid()):
                self._library.calls.tw_destroy(self._instance)
            self._instance = ctypes.c_void_p()
        if self._library:
            self._library.close()
            self._library = None
        if hasattr(self, "_files"):
            self._files.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def _opened(self) -> _Library:
        if self._library is None:
            raise RunError("the model is closed. Fix: load it again")
        return self._library

    def _arrays(self, inputs: Mapping[str, Any] | None) -> list[Array]:
        given = self.random_inputs() if inputs is None else inputs
        _check_names("input", given, self.inputs)
        return [_as_array(spec, given[spec.name]) for spec in self.inputs]

    def _flat(self, inputs: Sequence[Any], out: Sequence[Array | None] | None) -> tuple[list[Array], list[Array]]:
        """Inputs and outputs that are in order, found fit."""
        for kind, given, specs in (("inputs", inputs, self.inputs), ("outputs", out, self.outputs)):
            if given is not None and len(given) != len(specs):
                raise InputError(
                    f"{len(given)} {kind} for {len(specs)}. Fix: give {', '.join(map(str, specs)) or 'none'}"
                )
        arrays = [_as_array(spec, value) for spec, value in zip(self.inputs, inputs, strict=True)]
        return arrays, self._results(list(out) if out is not None else [None] * len(self.outputs), arrays)

    def _results(self, given: Sequence[Array | None], arrays: Sequence[Array]) -> list[Array]:
        """The arrays that a run fills: those given, once they are found fit, and new ones."""
        return [
            _aligned(spec) if array is None else _checked_output(spec, array, arrays)
            for spec, array in zip(self.outputs, given, strict=True)
        ]

    def _timed(self, arrays: Sequence[Array], results: Sequence[Array]) -> float:
        begin = time.perf_counter()
        self._call(arrays, results)
        return time.perf_counter() - begin

    def _call(self, arrays: Sequence[Array], results: Sequence[Array], seconds: Any = None) -> None:
        with self._lock:
            library = self._opened()
            if os.getpid() != self._process:
                raise RunError("the model was loaded before this process was forked. Fix: load it in this process")
            kept = [_point(tensor, array) for tensor, array in zip(self._in, arrays, strict=False)]
            kept += [_point(tensor, array) for tensor, array in zip(self._out, results, strict=False)]
            if seconds is None:
                failed = library.calls.tw_run(self._instance, self._in, self._out)
            else:
                failed = library.calls.tw_profile(self._instance, self._in, self._out, seconds)
            if failed:
                raise RunError(library.last_error())


def _specs(described: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(port["name"], port["dtype"], tuple(port["shape"])) for port in described)


def _tensors(specs: Sequence[TensorSpec]) -> tuple[Any, list[Any]]:
    """C tensors that lack only their data, and the shapes they point to."""
    tensors = (_Tensor * max(len(specs), 1))()
    shapes = []
    for tensor, spec in zip(tensors, specs, strict=False):
        shape = (ctypes.c_int64 * max(len(spec.shape), 1))(*spec.shape)
        code, bits = _TYPES[spec.dtype]
        tensor.device_type, tensor.code, tensor.bits, tensor.ndim = 1, code, bits, len(spec.shape)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        shapes.append(shape)
    return tensors, shapes


def _point(tensor: _Tensor, array: Array) -> Any:
    """Aims a C tensor at an array; what is returned must live as long as that is used."""
    tensor.data = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        tensor.strides = None
        return None
    strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    return strides


def _check_names(kind: str, given: Mapping[str, Any], specs: Sequence[TensorSpec]) -> None:
    known = [spec.name for spec in specs]
    for name in given:
        if name not in known:
            raise InputError(f"unknown {kind} {name!r}. Fix: the model's are {', '.join(map(repr, known)) or 'none'}")


def _as_array(spec: TensorSpec, value: Any) -> Array:
    """An input as an array that fits its spec. Raises InputError naming the input and the fix."""
    if not isinstance(value, (np.ndarray, np.generic)):
        value = _converted(spec, value)
    array = np.asarray(value)
    if spec.dtype == "bfloat16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if array.dtype != spec.numpy:
        raise InputError(f"input {spec.name!r} is {array.dtype}, not {spec.dtype}. Fix: .astype({spec.numpy.name!r})")
    if array.shape != spec.shape:
        raise InputError(
            f"input {spec.name!r} has shape {array.shape}. Fix: give {spec.shape}, or compile for that shape"
        )
    strided = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if strided else np.ascontiguousarray(array)


def _converted(spec: TensorSpec, value: Any) -> Array:
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value, dtype=spec.numpy)
    except Exception as reason:  # DLPack's producers raise what they like
        raise InputError(
            f"input {spec.name!r} cannot be read as {spec}: {reason}. Fix: give a numpy array, or a detached tensor in host memory"
        ) from reason


def _checked_output(spec: TensorSpec, array: Array, inputs: Sequence[Array]) -> Array:
    """A preallocated output, as the array to fill. Raises InputError naming the output and the fix."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"output {spec.name!r} is a {type(array).__name__}. Fix: give a numpy array of {spec}")
    if spec.dtype == "bfloat16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if array.dtype != spec.numpy or array.shape != spec.shape:
        raise InputError(f"output {spec.name!r} is {array.dtype}{list(array.shape)}. Fix: give {spec}")
    if not array.flags.writeable or not array.flags.aligned or any(stride % array.itemsize for stride in array.strides):
        raise InputError(f"output {spec.name!r} is read-only or misaligned. Fix: give an array of numpy.empty")
    if any(np.may_share_memory(array, one) for one in inputs):
        raise InputError(f"output {spec.name!r} shares memory with an input. Fix: give an array of its own")
    return array


def _returned(spec: TensorSpec, given: Mapping[str, Array], result: Array) -> Array:
    """The caller's own array where one was given."""
    array = given.get(spec.name)
    return result if array is None else array


def _aligned(spec: TensorSpec) -> Array:
    size = int(np.prod(spec.shape, dtype=np.int64)) * spec.numpy.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[begin : begin + size].view(spec.numpy).reshape(spec.shape)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: runs the model once on random inputs, or measures it. Exit status 1 when it cannot be run."""
    parser = argparse.ArgumentParser(description="Runs a Tilewright artifact on random inputs.")
    parser.add_argument("model", nargs="?", help="a .tw file or an extracted folder (default: where this file lies)")
    parser.add_argument("--bench", action="store_true", help="measure the latency")
    parser.add_argument("--profile", action="store_true", help="measure each kernel")
    parser.add_argument("--json", action="store_true", help="print JSON, with every sample")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long --bench runs (default 2)")
    parser.add_argument("--lanes", type=int, help="threads (default: what the plan was made for)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    options = parser.parse_args(arguments)
    try:
        with Model(options.model, options.lanes) as model:
            done = _asked_for(model, options)
    except (ArtifactError, InputError, RunError, ValueError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    print(json.dumps(done) if options.json else "\n".join(_lines(done)))
    return 0


def _asked_for(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    inputs = model.random_inputs(options.seed)
    outputs = model.run(inputs)
    done: dict[str, Any] = {
        "model": str(model.path),
        "inputs": {spec.name: str(spec) for spec in model.inputs},
        "outputs": {name: _summary(array) for name, array in outputs.items()},
    }
    if options.bench:
        done["bench"] = model.bench(options.seconds, inputs)
    if options.profile:
        done["profile"] = model.profile(inputs)
    return done


def _summary(array: Array) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
    }
    if array.size and array.dtype.kind == "f" and np.isfinite(array).all():
        shown.update(min=float(array.min()), max=float(array.max()))
    return shown


def _lines(done: Mapping[str, Any]) -> list[str]:
    lines = [str(done["model"])]
    lines += [f"  input  {name!r}: {spec}" for name, spec in done["inputs"].items()]
    for name, about in done["outputs"].items():
        span = f"  {about['min']:.6g} .. {about['max']:.6g}" if "min" in about else ""
        lines.append(f"  output {name!r}: {about['dtype']}{about['shape']}{span}")
    if "bench" in done:
        b = {key: f"{value * 1e3:.3f} ms" for key, value in done["bench"].items() if isinstance(value, float)}
        lines.append(
            f"  latency {b['median']} median, {b['min']} least, {b['p10']} p10, {b['p90']} p90, {b['p99']} p99"
        )
        lines.append(
            f"  {done['bench']['runs']} runs on {done['bench']['lanes']} lanes; first run {b['first_run']}, load {b['load']}"
        )
    for row in sorted(done.get("profile", ()), key=lambda row: -row["seconds"]):
        lines.append(
            f"  {row['seconds'] * 1e6:10.1f} us {row['share']:6.1%}  {row['call']:4d} {row['family']}  {row['tile']}"
        )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
