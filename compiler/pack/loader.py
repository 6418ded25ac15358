"""Runs a Tilewright artifact. One file; needs Python 3.10 or newer and numpy.

    python loader.py [--bench] [--profile] [--json] [MODEL.tw]

    from loader import Model
    with Model("model.tw") as model:
        outputs = model.run({"x": array})

MODEL.tw may also be the folder that the archive was extracted to; without it, it is where this file lies.
`python MODEL.tw` does the same as `python loader.py MODEL.tw`. Every file is checked against the SHA-256 in
manifest.json before it is used.
"""

from __future__ import annotations

import _ctypes
import argparse
import bisect
import ctypes
import functools
import hashlib
import html
import io
import itertools
import json
import math
import os
import platform
import statistics
import struct
import sys
import tempfile
import threading
import time
import weakref
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1
ABI_VERSION = 3
OLDER_ABI_VERSIONS = (1, 2)
"""Of which this one is an extension. Such a library does not look at what was added at the end of `tw_config`, and has
one plan."""
PLACE = "let TMPDIR name a folder with free space that can be written and permits execution"
"""What mends that the library can be loaded neither from memory nor from a temporary file."""
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
    "string": (0, 64),
}
"""DLPack's code and bits of each element type but the small ones, which are carried as uint8; strings as numbers."""

QUICK_BYTES = 1 << 16
"""Of inputs and outputs together, up to which `run` copies them (about 2 us)."""
QUICK_CAPACITY = 1 << 20
"""The same for open axes at their largest sizes: these are copied in any case. And for runs from a state: finding where
its tensors lie would cost more."""
QUICK_PLACES = 8
"""Of a state, where its tensors may lie in turn, for which a binding keeps what `run` needs."""
_SMALL = {
    "float8_e4m3fn": (0x00, 0x40, 0x80),
    "float8_e4m3fnuz": (0x00, 0x48, 0x80),
    "float8_e5m2": (0x00, 0x40, 0x80),
    "float8_e5m2fnuz": (0x00, 0x44, 0x80),
    "float8_e8m0fnu": (0x77, 0x87, 0x00),
    "float6_e2m3fn": (0x00, 0x20, 0x20),
    "float6_e3m2fn": (0x00, 0x20, 0x20),
    "float4_e2m1fn": (0x0, 0x8, 0x8),
    "int4": (0x0, 0x10, 0x0),
    "uint4": (0x0, 0x10, 0x0),
    "int2": (0x0, 0x4, 0x0),
    "uint2": (0x0, 0x4, 0x0),
}
"""Of each type of 8 bits and less, by ml_dtypes' name: the codes that random inputs have, from the first to before the
second (integers, floats below 2 or up to the greatest), and the bit of the sign, which is drawn apart."""

_CPU, _CUDA, _CUDA_MANAGED = 1, 2, 13
"""DLPack's device types that are distinguished here."""

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


class NoSuchBinding(ArtifactError):
    """The artifact holds fewer bindings."""


class InputError(ValueError):
    """An input or a preallocated output does not fit the model."""


class RunError(RuntimeError):
    """The model refused to run, or cannot any more."""


class TensorSpec(NamedTuple):
    """An input or output.

    A `bfloat16` tensor is given and returned as its bits, in uint16, and one of a type of 8 bits and less (float8_...,
    float6_..., float4_e2m1fn, int4, uint4, int2, uint2) as its codes in uint8, one to a byte, in the lowest bits.
    ml_dtypes' own arrays, which are that, are accepted. A `string` tensor is an array of str, and in the program the
    number of each string.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of the arrays that carry it."""
        return np.dtype(self.carrier)

    @property
    def carrier(self) -> str:
        """The name of that dtype, and of tensors elsewhere."""
        others = {"bfloat16": "uint16", "string": "int64"}
        return "uint8" if self.dtype in _SMALL else others.get(self.dtype, self.dtype)

    @property
    def axes(self) -> tuple[Size | None, ...]:
        """Of each axis the sizes that it may have; None where that is the one in `shape`."""
        return (None,) * len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Size(NamedTuple):
    """Of an axis that is open: `low` <= size <= `high`, a multiple of `step`, most usually `opt`.

    Axes of one `name` have one size.
    """

    name: str
    low: int
    opt: int
    high: int
    step: int = 1

    def has(self, size: int) -> bool:
        """Whether it may be this one."""
        return self.low <= size <= self.high and not size % self.step

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (f" by {self.step}" if self.step > 1 else "")


class OpenSpec(TensorSpec):
    """An input or output of which some `axes` have a size that each run chooses; `shape` has the largest.

    An output's sizes have no name: the run says them.
    """

    _axes: tuple[Size | None, ...]

    def __new__(cls, name: str, dtype: str, shape: tuple[int, ...], axes: tuple[Size | None, ...]) -> OpenSpec:
        """A spec of which each of `axes` is a named size or None for one that is fixed."""
        made = super().__new__(cls, name, dtype, shape)
        made._axes = axes
        return made

    @property
    def axes(self) -> tuple[Size | None, ...]:
        """The named size of each axis, None for one that is fixed."""
        return self._axes

    def __str__(self) -> str:
        shown = [
            str(dim) if axis is None else f"{axis.name}={axis}" if axis.name else str(axis)
            for dim, axis in zip(self.shape, self.axes, strict=True)
        ]
        return f"{self.dtype}[{', '.join(shown)}]"

    def at(self, sizes: Mapping[str, int]) -> TensorSpec:
        """An input at sizes of its dimensions, by name; at their opt where none is given."""
        shape = (
            dim if axis is None else sizes.get(axis.name, axis.opt)
            for dim, axis in zip(self.shape, self.axes, strict=True)
        )
        return TensorSpec(self.name, self.dtype, tuple(shape))

    def misfit(self, shape: tuple[int, ...]) -> str:
        """Why an input cannot have this shape; empty where it can."""
        if len(shape) != len(self.shape):
            return f"input {self.name!r} has shape {shape}. Fix: give {self}"
        for at, (size, most, axis) in enumerate(zip(shape, self.shape, self.axes, strict=True)):
            if axis is None and size != most:
                return f"input {self.name!r} has {size} along axis {at}. Fix: give {most}, or compile for that shape"
            if axis is not None and not axis.has(size):
                multiple = f", a multiple of {axis.step}" if axis.step > 1 else ""
                return (
                    f"input {self.name!r} has {size} along axis {at}, and its dimension {axis.name!r} has {axis}. "
                    f"Fix: give {axis.low} to {axis.high}{multiple}, or compile for a range that holds {size}"
                )
        return ""


class Limit(NamedTuple):
    """A number that a run finds in its data, in the program's output `output`: `low` <= number <= `high`.

    Otherwise what the run gives means nothing. `says` is what must hold; of two sizes that must be equal, `sizes` are
    the outputs that hold them.
    """

    says: str
    low: int
    high: int
    output: int
    sizes: tuple[int, ...] = ()


class Binding(NamedTuple):
    """Shapes that a model runs: `number` counts from 1, `dims` are the values of its symbolic dimensions.

    Sizes of outputs may also follow from data. One that leaves dimensions open has their ranges in `dims`, as they were
    asked for, `open` for each of these, and inputs and outputs that are an OpenSpec where they have such an axis. Its
    program takes for each of `open` a scalar (int64) behind the inputs, and gives a scalar for each different number in
    `sizes` behind the outputs; `sizes` has, for each axis of each output, the number of the program's output that holds
    its size, None where it has but one. It also gives a scalar for each of `limits`. `words` are the strings that the
    model holds, each at its number. A model that draws numbers (`random`) takes a state behind the inputs: int64 [2], a
    key and the number of the run.
    """

    number: int
    dims: dict[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    open: tuple[Size, ...] = ()
    sizes: tuple[tuple[int | None, ...], ...] = ()
    words: tuple[str, ...] = ()
    random: bool = False
    limits: tuple[Limit, ...] = ()

    def __str__(self) -> str:
        ranges = {one.name: one for one in self.open}
        shown = [f"{name}={ranges.get(name, value)}" for name, value in self.dims.items()]
        return ", ".join(shown) or "the model's own shapes"

    @property
    def size(self) -> tuple[int, int]:
        """Of several bindings that have the shapes of inputs the one for which this is least is the fastest.

        How many elements its program reads, and how many dimensions are open.
        """
        return sum(math.prod(spec.shape) for spec in self.inputs), len(self.open)

    @property
    def program_inputs(self) -> tuple[TensorSpec, ...]:
        """What the program takes, in order."""
        state = (TensorSpec("random:state", "int64", (2,)),) if self.random else ()
        return (*self.inputs, *state, *(TensorSpec(f"size:{one.name}", "int64", ()) for one in self.open))

    @property
    def program_outputs(self) -> tuple[TensorSpec, ...]:
        """What the program gives, in order."""
        found = {number for axes in self.sizes for number in axes if number is not None}
        found |= {number for limit in self.limits for number in (limit.output, *limit.sizes)}
        return (*self.outputs, *(TensorSpec(f"size:{at}", "int64", ()) for at in range(len(found))))

    @property
    def has_strings(self) -> bool:
        """Whether an input or an output is of strings."""
        return any(spec.dtype == "string" for spec in (*self.inputs, *self.outputs))

    @property
    def coded(self) -> Binding:
        """The same as a C program has it: strings are their numbers, and a state of random numbers is an input."""
        inputs, outputs = (tuple(map(_numbered, specs)) for specs in (self.inputs, self.outputs))
        state = self.program_inputs[len(inputs) : len(inputs) + self.random]
        return self._replace(inputs=(*inputs, *state), outputs=outputs, random=False)

    @property
    def has_sizes(self) -> bool:
        """Whether the program takes sizes, or gives those of its outputs or what must hold."""
        return bool(self.open or self.limits) or any(number is not None for axes in self.sizes for number in axes)

    def misfit(self, shapes: Sequence[tuple[int, ...]]) -> str:
        """Why inputs cannot have these shapes, in order; empty where they can."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            if isinstance(spec, OpenSpec):
                if said := spec.misfit(shape):
                    return said
            elif spec.shape != shape:
                return f"input {spec.name!r} has shape {shape}. Fix: give {spec.shape}, or compile for that shape"
        return self._contradiction(shapes)

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The size of each open dimension, by name, for inputs that fit."""
        return {name: size for name, (size, _) in self._found(shapes)}

    def _contradiction(self, shapes: Sequence[tuple[int, ...]]) -> str:
        first: dict[str, tuple[int, str]] = {}
        for name, (size, where) in self._found(shapes):
            before, there = first.setdefault(name, (size, where))
            if before != size:
                return (
                    f"dimension {name!r} has two sizes: {before} in {there}, {size} in {where}. "
                    "Fix: give both inputs the same"
                )
        return ""

    def _found(self, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, str]]]:
        """Each open dimension with its size, wherever it is met, and in words where that is."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for at, axis in enumerate(spec.axes):
                if axis is not None:
                    yield axis.name, (shape[at], f"axis {at} of input {spec.name!r}")


def _numbered(spec: TensorSpec) -> TensorSpec:
    """With the numbers of strings for strings."""
    if spec.dtype != "string":
        return spec
    if isinstance(spec, OpenSpec):
        return OpenSpec(spec.name, "int64", spec.shape, spec.axes)
    return TensorSpec(spec.name, "int64", spec.shape)


class _Strings:
    """The numbers of strings during one run: those of the model, and from -1 down one for each other that is met."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._numbers = {word: number for number, word in enumerate(words)}
        self._others: list[str] = []

    def numbers(self, spec: TensorSpec, value: Any) -> Array:
        """An input as numbers. Raises InputError for what is no array of strings."""
        array = np.asarray(value)
        if array.dtype.kind not in "OSUT" or not all(isinstance(item, (str, bytes)) for item in array.flat):
            raise InputError(f"input {spec.name!r} is no array of strings. Fix: give it as {spec}, of str")
        flat = [item.decode() if isinstance(item, bytes) else str(item) for item in array.flat]
        return np.array([self._number(item) for item in flat], np.int64).reshape(array.shape)

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            self._others.append(word)
            number = self._numbers[word] = -len(self._others)
        return number

    def of(self, numbers: Array) -> Array:
        """Strings of their numbers, as an array of objects."""
        found = np.empty(numbers.size, object)
        found[:] = [self._words[number] if number >= 0 else self._others[-1 - number] for number in numbers.flat]
        return found.reshape(numbers.shape)


class PlanSpec(NamedTuple):
    """The plan that runs. `number` counts from 1; `tasks` is None where the library is too old to say.

    `most_handover_s` is what a hand-off between two cores may take for this plan to be the one that is chosen, None
    for any; `handover_s` what it was measured to take when the model was loaded: None where no choice depended on it,
    infinity where two lanes never ran at once.
    """

    number: int
    scheduler: str
    lanes: int
    tasks: int | None
    most_handover_s: float | None
    handover_s: float | None

    def __str__(self) -> str:
        limit = (
            f" where a hand-over takes at most {1e9 * self.most_handover_s:.0f} ns"
            if self.most_handover_s is not None
            else ""
        )
        found = f"; it took {1e9 * self.handover_s:.0f} ns" if self.handover_s is not None else ""
        return f"plan {self.number}: {self.scheduler}, {self.lanes} lanes{limit}{found}"


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


_RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""`tw_run` by addresses, which are converted faster than pointers."""


class _Config(ctypes.Structure):
    """`tw_config` of model.h."""

    _fields_ = (
        ("weights_path", ctypes.c_char_p),
        ("weights_offset", ctypes.c_int64),
        ("lanes", ctypes.c_int32),
        ("spin_us", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("plan", ctypes.c_int32),
        ("pin", ctypes.c_int32),
    )


class _StreamConfig(ctypes.Structure):
    """`tw_stream_config` of stream.h."""

    _fields_ = (
        ("folder", ctypes.c_char_p),
        ("libraries", ctypes.POINTER(ctypes.c_char_p)),
        ("weights_path", ctypes.c_char_p),
        ("weights_offset", ctypes.c_int64),
        ("spin_us", ctypes.c_int32),
        ("pin", ctypes.c_int32),
    )


class _DlTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, with which a `DLManagedTensor` begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DeviceArray(NamedTuple):
    """A row-major tensor in a GPU's memory, which belongs to `owner`; `kept` is what else must live as long."""

    address: int
    device: int
    spec: TensorSpec
    owner: Any
    kept: Any = None

    @property
    def bytes(self) -> int:
        """Its size, without gaps."""
        return int(np.prod(self.spec.shape, dtype=np.int64)) * self.spec.numpy.itemsize


class _Files:
    """The members of an artifact, in its archive or in a folder; each is checked as it is read."""

    def __init__(self, path: Path, verify: bool) -> None:
        self.path = path
        self.verify = verify
        self._verified: set[str] = set()
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
        if self.verify and name not in self._verified:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                file.seek(offset)
                left = size
                while left and (piece := file.read(min(left, 1 << 20))):
                    digest.update(piece)
                    left -= len(piece)
            self._compare(name, size - left, digest)
            self._verified.add(name)
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
    """model.so, opened.

    Each has a file of its own, so that none is mistaken for one opened before under the same name.
    """

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
        """By a file in memory, kept open.

        The dynamic linker identifies libraries by names, and this one holds the number.
        """
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
        try:
            handle, path = tempfile.mkstemp(suffix=".so", prefix="tilewright-")
        except OSError as reason:
            raise WrongMachine(f"there is no place for model.so: {reason}", PLACE) from reason
        try:
            with open(handle, "wb") as file:
                file.write(code)
            return ctypes.CDLL(path)
        except OSError as reason:
            if reason.errno is not None:
                raise WrongMachine(f"model.so cannot be written to {path}: {reason.strerror}", PLACE) from reason
            if os.statvfs(path).f_flag & os.ST_NOEXEC:
                raise WrongMachine(
                    f"model.so cannot be executed in {os.path.dirname(path)} (noexec)", PLACE
                ) from reason
            raise WrongMachine(
                f"model.so cannot be loaded: {reason}", "compile the model on or for this system"
            ) from reason
        finally:
            os.unlink(path)

    def _declare(self) -> None:
        c = self.calls
        self.version: int = c.tw_abi_version()
        if self.version not in (ABI_VERSION, *OLDER_ABI_VERSIONS):
            raise ArtifactError(
                f"model.so has ABI version {self.version}, this loader knows {ABI_VERSION}",
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
        if self.version == ABI_VERSION:
            doubles = ctypes.POINTER(ctypes.c_double)
            c.tw_trace.argtypes = (ctypes.c_void_p, tensors, tensors, doubles, doubles)
            c.tw_plan.argtypes = (ctypes.c_void_p, doubles)

    def describe(self) -> dict[str, Any]:
        """What the library says of itself."""
        return dict(json.loads(self.calls.tw_describe()))

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


class _Frames:
    """The parts of an artifact for several devices, at work: stream.so with the library of each part."""

    def __init__(self, files: _Files, spin_us: int | None, binding: Binding) -> None:
        described = files.manifest["stream"]
        self._binding = binding
        self._takes = [(spec.numpy, spec.shape) for spec in binding.inputs]
        states = {one["input"] for one in described.get("carried", ())}
        self.carried = [spec.name in states for spec in binding.inputs]
        self._files: list[int] = []
        self._turn = threading.RLock()
        self._flight: deque[tuple[int, _Seat, Any]] = deque()
        self._free: list[_Seat] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._loaded = False
        self._stream = ctypes.c_void_p()
        self._end: weakref.finalize[[ctypes.CDLL, ctypes.c_void_p, int], _Frames] | None = None
        self.parts, self.devices = len(described["parts"]), len(described["devices"])
        self.frames = int(described["frames"])
        try:
            folders = [part["folder"] for part in described["parts"]]
            opened = {folder: self._path(files.read(f"{folder}model.so")) for folder in dict.fromkeys(folders)}
            paths = [opened[folder] for folder in folders]
            self._calls = ctypes.CDLL(self._path(files.read("stream.so")))
            self._loaded = True
            self._declare()
            weights, offset = files.locate("weights.bin")
            libraries = (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths))
            spin = -1 if spin_us is None else spin_us
            config = _StreamConfig(None, libraries, os.fsencode(weights), offset, spin, 1)
            if self._calls.tw_stream_create(ctypes.byref(config), ctypes.byref(self._stream)):
                self._stream = ctypes.c_void_p()
                raise WrongMachine(f"the parts of the model cannot start: {self.last_error()}", "see the reason above")
            self._end = weakref.finalize(self, _end_stream, self._calls, self._stream, os.getpid())
        except BaseException:
            self.close()
            raise

    def _path(self, code: bytes) -> str:
        """A file that the dynamic linker can open, of a name of its own for as long as this is open."""
        _check_architecture(code)
        try:
            made = os.memfd_create("part.so", os.MFD_CLOEXEC)
            self._files.append(made)
            with open(made, "wb", closefd=False) as file:
                file.write(code)
            return f"/proc/self/fd/{made}"
        except (OSError, AttributeError):
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="tilewright-")
            path = Path(self._folder.name) / f"{hashlib.sha256(code).hexdigest()}.so"
            path.write_bytes(code)
            return str(path)

    def _declare(self) -> None:
        c, tensors = self._calls, ctypes.POINTER(_Tensor)
        c.tw_stream_error.restype = ctypes.c_char_p
        c.tw_stream_create.argtypes = (ctypes.POINTER(_StreamConfig), ctypes.POINTER(ctypes.c_void_p))
        c.tw_submit.argtypes, c.tw_submit.restype = (ctypes.c_void_p, tensors, tensors), ctypes.c_int64
        c.tw_wait.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        c.tw_stream_work.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_double))
        c.tw_stream_work.restype = ctypes.c_int64
        if hasattr(c, "tw_stream_delay"):
            c.tw_stream_delay.argtypes, c.tw_stream_delay.restype = c.tw_stream_work.argtypes, None
        c.tw_stream_destroy.argtypes, c.tw_stream_destroy.restype = (ctypes.c_void_p,), None

    def fit(self, inputs: Sequence[Any]) -> bool:
        """Whether inputs are arrays of just the types and shapes: what else may be given is found out slowly."""
        return len(inputs) == len(self._takes) and all(
            (value is None and is_state)
            or (type(value) is np.ndarray and value.dtype is dtype and value.shape == shape)
            for value, is_state, (dtype, shape) in zip(inputs, self.carried, self._takes, strict=True)
        )

    def seat(self) -> _Seat:
        """One that no frame in flight has. Every frame begins here."""
        with _alone(self._turn):
            return self._free.pop() if self._free else _Seat(self._binding)

    def submit(self, seat: _Seat, kept: Any = None) -> int:
        """The number of the frame that was begun; it waits while as many are in flight as may be.

        `kept` is what must live, beside the seat, until the frame has ended.
        """
        frame = int(self._calls.tw_submit(self._opened(), seat.taken, seat.filled))
        if frame < 0:
            raise RunError(self.last_error())
        with self._turn:
            self._flight.append((frame, seat, kept))
            while self._flight[0][0] <= frame - self.frames:  # it has ended, or this one had not begun
                self._free.append(self._flight.popleft()[1])
        return frame

    def wait(self, frame: int) -> None:
        """Until a frame has ended. Raises RunError where it failed."""
        if self._calls.tw_wait(self._opened(), frame):
            raise RunError(self.last_error())

    def work(self) -> tuple[int, list[float]]:
        """How many frames have ended, and the seconds of processor time that each part took."""
        seconds = (ctypes.c_double * self.parts)()
        return int(self._calls.tw_stream_work(self._opened(), seconds)), list(seconds)

    def delays(self) -> list[float]:
        """Of each device the seconds for which others kept its thread from its core; 0 where the system is silent."""
        seconds = (ctypes.c_double * self.devices)()
        if hasattr(self._calls, "tw_stream_delay"):  # artifacts of earlier compilers have none
            self._calls.tw_stream_delay(self._opened(), seconds)
        return list(seconds)

    def last_error(self) -> str:
        return bytes(self._calls.tw_stream_error() or b"no reason given").decode(errors="replace")

    def _opened(self) -> ctypes.c_void_p:
        if self._end is None or not self._end.alive:
            raise RunError("the model is closed. Fix: load it again")
        return self._stream

    def close(self, *, destroy: bool = True) -> None:
        """Waits for the frames in flight; without `destroy`, in a process that was forked, there are no threads."""
        if self._end is not None:
            self._end()
        if self._loaded and destroy:  # its name is a number that the next file may have
            _ctypes.dlclose(self._calls._handle)
        self._loaded, self._end = False, None
        for file in self._files:
            os.close(file)
        self._files, self._free = [], []
        self._flight.clear()
        if self._folder:
            self._folder.cleanup()
            self._folder = None


def _alone(lock: threading.RLock) -> threading.RLock:
    """The lock under which one thread at a time uses a model, for a thread that does not hold it already.

    Raises RunError in one that does, which would wait for itself: in a signal handler or a tracing hook amid a run.
    """
    if lock._is_owned():  # type: ignore[attr-defined]
        raise RunError(
            "the model is in use by this very thread, and a signal handler, tracing hook or finaliser calls it. "
            "Fix: call it once that run is over, or load the model a second time for it"
        )
    return lock


def _end_stream(calls: ctypes.CDLL, stream: ctypes.c_void_p, process: int) -> None:
    """Waits for the frames in flight, also when the interpreter ends: they write into its arrays."""
    if os.getpid() == process:
        calls.tw_stream_destroy(stream)


class _Seat:
    """What a frame in flight has: its C tensors, and arrays for copies of its inputs. A later frame has it again."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._takes: list[Array] = []
        self.taken, in_shapes = _tensors(binding.program_inputs)
        self.filled, out_shapes = _tensors(binding.program_outputs)
        self._shapes = (in_shapes, out_shapes)

    def copied(self, arrays: Sequence[Array | None]) -> Sequence[Array | None]:
        """Inputs, in arrays of its own; None stays what it is."""
        self._takes = self._takes or [_aligned(spec) for spec in self._binding.program_inputs]
        found: list[Array | None] = []
        for own, array in zip(self._takes, arrays, strict=True):
            if array is not None:
                own[...] = array
            found.append(None if array is None else own)
        return found

    def aim(self, arrays: Sequence[Array | None], results: Sequence[Array]) -> None:
        """At inputs and outputs, which are row-major; None is a state that the frame before makes."""
        for tensor, array in zip(self.taken, arrays, strict=False):
            tensor.data = None if array is None else array.__array_interface__["data"][0]
        for tensor, array in zip(self.filled, results, strict=False):
            tensor.data = array.__array_interface__["data"][0]


class Frame:
    """One inference in flight; `result` waits for it."""

    def __init__(self, frames: _Frames, number: int, outputs: Sequence[TensorSpec], results: list[Any]) -> None:
        self.number = number
        self._frames, self._outputs, self._results = frames, outputs, results
        self._ended: BaseException | bool = False

    def result(self) -> dict[str, Any]:
        """Outputs by name, as of `Model.run`. Raises RunError where this frame failed, each time that it is asked."""
        return {spec.name: array for spec, array in zip(self._outputs, self.result_flat(), strict=True)}

    def result_flat(self) -> list[Any]:
        """As `result`, in the order of the model's outputs."""
        if self._ended is False:
            try:
                self._frames.wait(self.number)
                self._ended = True
            except RunError as failure:
                self._ended = failure
        if isinstance(self._ended, BaseException):
            raise self._ended
        return self._results


class Stream:
    """Results of frames in the order in which these were given, with several in flight: an iterator.

    A frame that does not fit, or fails, raises its error where its result would be; the next `next` goes on with the
    frame after it.
    """

    def __init__(self, model: Model, frames: Iterable[Mapping[str, Any]], depth: int) -> None:
        self._model, self._frames, self._depth = model, iter(frames), depth
        self._waiting: deque[Frame | Exception] = deque()
        self._is_over = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> dict[str, Any]:
        while not self._is_over and len(self._waiting) < self._depth:
            try:
                inputs = next(self._frames)
            except StopIteration:
                self._is_over = True
                break
            try:
                self._waiting.append(self._model.submit(inputs))
            except InputError as refused:
                self._waiting.append(refused)
        if not self._waiting:
            raise StopIteration
        first = self._waiting.popleft()
        if isinstance(first, Exception):
            raise first
        return first.result()


class _Capacity:
    """Arrays of an open binding's program: as large as its axes may become, and zero beyond what was put into them."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._inputs: list[Array | None] = [None] * len(binding.inputs)
        self._filled: list[tuple[int, ...]] = [(0,) * len(spec.shape) for spec in binding.inputs]
        self.sizes = [np.zeros((), np.int64) for _ in binding.open]
        self._outputs: list[Array | None] = [None] * len(binding.outputs)
        self._found = [np.zeros((), np.int64) for _ in binding.program_outputs[len(binding.outputs) :]]

    def take(self, arrays: Sequence[Array | DeviceArray], state: Sequence[Array] = ()) -> list[Array | DeviceArray]:
        """What the program takes for inputs: those that are as large as may be, themselves, a state, and all sizes."""
        shapes = [array.spec.shape if isinstance(array, DeviceArray) else array.shape for array in arrays]
        if said := self.binding.misfit(shapes):
            raise InputError(said)
        self.size(shapes)
        return [*(self._padded(at, array) for at, array in enumerate(arrays)), *state, *self.sizes]

    def size(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Tells the program the sizes that inputs of these shapes have."""
        sizes = self.binding.sizes_of(shapes)
        for dimension, size in zip(self.binding.open, self.sizes, strict=True):
            size[...] = sizes[dimension.name]

    def _padded(self, at: int, array: Array | DeviceArray) -> Array | DeviceArray:
        if isinstance(array, DeviceArray) or array.shape == self.binding.inputs[at].shape:
            return array
        return self.keep(at, array)

    def keep(self, at: int, array: Array) -> Array:
        """An input at capacity that has this array at its beginning, and zeros beyond; always the same memory."""
        spec, shape = self.binding.inputs[at], array.shape
        kept = self._inputs[at]
        if kept is None:
            kept = self._inputs[at] = _aligned(spec, np.zeros)
        before = self._filled[at]
        for axis, (old, new) in enumerate(zip(before, shape, strict=True)):
            if old > new:
                inside = (slice(min(pair)) for pair in zip(before[:axis], shape[:axis], strict=True))
                kept[(*inside, slice(new, old), *map(slice, before[axis + 1 :]))] = 0
        # Whatever interrupts the copy, no more than this is other than zero.
        self._filled[at] = tuple(map(max, before, shape))
        kept[tuple(map(slice, shape))] = array
        self._filled[at] = shape
        return kept

    def blank(self, given: Sequence[Array | None]) -> list[Array]:
        """What the program fills; a given array for an output that has but one shape is filled itself."""
        for at, spec in enumerate(self.binding.outputs):
            if isinstance(spec, OpenSpec):
                kept = self._outputs[at]
                self._outputs[at] = _aligned(spec) if kept is None else kept
            else:
                self._outputs[at] = _aligned(spec) if given[at] is None else given[at]
        return [*(array for array in self._outputs if array is not None), *self._found]

    def results(self, given: Sequence[Array | None], inputs: Sequence[Array | DeviceArray]) -> list[Array]:
        """The outputs of the run that filled what `blank` gave, at their sizes; given arrays are filled.

        Raises InputError where the data were not what the model takes.
        """
        self.check()
        here = [array for array in inputs if isinstance(array, np.ndarray)]
        return [self._result(at, array, here) for at, array in enumerate(given)]

    def check(self) -> None:
        """Raises InputError where the data of the last run were not what the model takes."""
        for limit in self.binding.limits:
            number = self._number(limit.output)
            if limit.low <= number <= limit.high:
                continue
            if limit.sizes:
                raise InputError(f"{limit.says}: they are {' and '.join(str(self._number(at)) for at in limit.sizes)}")
            raise InputError(f"{limit.says}: {number} was found, and {limit.low} to {limit.high} can be")

    def _number(self, output: int) -> int:
        return int(self._found[output - len(self.binding.outputs)])

    def _result(self, at: int, given: Array | None, inputs: Sequence[Array]) -> Array:
        spec, whole = self.binding.outputs[at], self._outputs[at]
        assert whole is not None
        if not isinstance(spec, OpenSpec):
            self._outputs[at] = None
            return whole
        shape = self.shape(at, spec)
        part = whole[tuple(map(slice, shape))]
        if given is not None:
            array = _checked_output(TensorSpec(spec.name, spec.dtype, shape), given)
            _demand_apart([(spec.name, array)], inputs)
            np.copyto(array, part)
            return given
        if not part.flags.c_contiguous or 2 * part.size < whole.size:
            return np.array(part, order="C")
        self._outputs[at] = None
        return part

    def shape(self, at: int, spec: OpenSpec) -> tuple[int, ...]:
        """Of an output, by what the program says of its sizes. Raises RunError for sizes that there cannot be."""
        numbers = self.binding.sizes[at]
        found = tuple(
            most if number is None else int(self._found[number - len(self.binding.outputs)])
            for most, number in zip(spec.shape, numbers, strict=True)
        )
        if any(not 0 <= size <= most for size, most in zip(found, spec.shape, strict=True)):
            raise RunError(f"output {spec.name!r} has shape {found}, and at most {spec.shape}. Fix: report this model")
        return found


class _Fixed:
    """A run on arrays that stay where they are: its C tensors are made once. Calling it gives what `tw_run` does."""

    def __init__(
        self,
        library: _Library,
        instance: ctypes.c_void_p,
        binding: Binding,
        arrays: Sequence[Any],
        results: Sequence[Any],
    ) -> None:
        taken, in_shapes = _tensors(binding.program_inputs)
        filled, out_shapes = _tensors(binding.program_outputs)
        kept = [_point(tensor, array) for tensor, array in zip(taken, arrays, strict=False)]
        kept += [_point(tensor, array) for tensor, array in zip(filled, results, strict=False)]
        self._kept = (taken, filled, in_shapes, out_shapes, kept, arrays, results)
        self.call: Callable[[], int] = _run_of(library.calls, instance, taken, filled)


class _Quick:
    """What a model of small arrays keeps for `run`: memory of its own, to which and from which they are copied.

    Copying costs less than finding out where an array lies.
    """

    def __init__(
        self,
        library: _Library,
        instance: ctypes.c_void_p,
        binding: Binding,
        reads: Mapping[str, Array] | None = None,
        writes: Mapping[str, Array] | None = None,
    ) -> None:
        """Inputs in `reads` and outputs in `writes`, by name, are there: `run` neither takes nor gives them."""
        read, written = reads or {}, writes or {}
        own = [read[spec.name] if spec.name in read else _aligned(spec) for spec in binding.inputs]
        results = [written[spec.name] if spec.name in written else _aligned(spec) for spec in binding.outputs]
        self._fixed = _Fixed(library, instance, binding, own, results)
        self._takes = [
            (spec.name, array.dtype, array.shape, array)
            for spec, array in zip(binding.inputs, own, strict=True)
            if spec.name not in read
        ]
        self._fills = [
            (spec.name, array.dtype, array.shape, array)
            for spec, array in zip(binding.outputs, results, strict=True)
            if spec.name not in written
        ]

    # Here each tenth of a microsecond counts: a zip would take three of them.

    def named(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None, again: bool
    ) -> dict[str, Any] | int | None:
        """Outputs by name, in arrays of `out` where there is any.

        What `tw_run` gave, where it failed; None for arrays that are not as they mostly are.
        """
        if len(inputs) != len(self._takes):
            return None
        for name, dtype, shape, own in self._takes:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            own[...] = array
        if not out:
            return self._fixed.call() or {name: own.copy() for name, _, _, own in self._fills}
        if len(out) != len(self._fills):
            return None
        found = {}
        for name, dtype, shape, _ in self._fills:
            array = out.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            found[name] = array
        if not _may_fill(found.values(), inputs.values()):
            return None
        if failed := self._fixed.call():
            return failed
        for name, _, _, own in self._fills:
            found[name][...] = own
        return found

    def flat(self, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool) -> list[Any] | int | None:
        """The same in order."""
        if len(inputs) != len(self._takes):
            return None
        for at, (_, dtype, shape, own) in enumerate(self._takes):
            array = inputs[at]
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            own[...] = array
        if out is None:
            return self._fixed.call() or [own.copy() for _, _, _, own in self._fills]
        if len(out) != len(self._fills):
            return None
        found: list[Array] = []
        for _, dtype, shape, _ in self._fills:
            array = out[len(found)]
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            found.append(array)
        if not _may_fill(found, inputs):
            return None
        if failed := self._fixed.call():
            return failed
        for at, (_, _, _, own) in enumerate(self._fills):
            found[at][...] = own
        return found


class _QuickOpen:
    """The same for a binding with open axes: what follows from shapes is worked out when they change."""

    def __init__(self, library: _Library, instance: ctypes.c_void_p, binding: Binding) -> None:
        self._binding = binding
        self._capacity = _Capacity(binding)
        takes = [self._capacity.keep(at, _nothing(spec)) for at, spec in enumerate(binding.inputs)]
        self._outputs = self._capacity.blank([None] * len(binding.outputs))
        self._fixed = _Fixed(library, instance, binding, [*takes, *self._capacity.sizes], self._outputs)
        self._takes = [(spec.name, array.dtype, array) for spec, array in zip(binding.inputs, takes, strict=True)]
        self._names = [spec.name for spec in binding.outputs]
        self._shapes: list[tuple[int, ...]] = []
        self._views: list[Array] = []
        self._results: list[tuple[tuple[int, ...], Array]] = [
            ((), array) for array in self._outputs[: len(binding.outputs)]
        ]

    def named(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None, again: bool
    ) -> dict[str, Array] | int | None:
        """As that of `_Quick`, where no `out` is given; `again`: only for the shapes of the last run.

        Raises as `_Capacity.results` does.
        """
        if out or len(inputs) != len(self._takes):
            return None
        found = self.flat([inputs.get(name) for name, _, _ in self._takes], None, again)
        return dict(zip(self._names, found, strict=True)) if isinstance(found, list) else found

    def flat(self, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool) -> list[Array] | int | None:
        """The same in order."""
        if out is not None or len(inputs) != len(self._takes):
            return None
        for array, (_, dtype, _) in zip(inputs, self._takes, strict=True):
            if type(array) is not np.ndarray or array.dtype is not dtype:
                return None
        arrays: list[Array] = list(inputs)
        shapes = [array.shape for array in arrays]
        if shapes != self._shapes and (again or not self._enter(shapes, arrays)):
            return None
        for view, array in zip(self._views, arrays, strict=True):
            view[...] = array
        if failed := self._fixed.call():
            return failed
        self._capacity.check()
        return [self._result(at, spec) for at, spec in enumerate(self._binding.outputs)]

    def _enter(self, shapes: list[tuple[int, ...]], arrays: Sequence[Array]) -> bool:
        """Makes ready for arrays of other shapes than the last; False for shapes that do not fit."""
        self._shapes = []
        if self._binding.misfit(shapes):
            return False
        self._capacity.size(shapes)
        for at, array in enumerate(arrays):
            self._capacity.keep(at, array)
        self._views = [_beginning(whole, shape) for (_, _, whole), shape in zip(self._takes, shapes, strict=True)]
        self._shapes = shapes
        return True

    def _result(self, at: int, spec: TensorSpec) -> Array:
        if not isinstance(spec, OpenSpec):
            return self._outputs[at].copy()
        shape = self._capacity.shape(at, spec)
        before, view = self._results[at]
        if shape != before:
            view = _beginning(self._outputs[at], shape)
            self._results[at] = (shape, view)
        return view.copy()


class Carried(NamedTuple):
    """An output that is an input of the next run (option `carry`), and whether both have one memory."""

    output: TensorSpec
    input: TensorSpec
    in_place: bool


class State:
    """What a sequence of runs hands on from one to the next, in memory of its own: see `Model.state`.

    `state[name]` is a copy of a tensor that the next run reads, by the name of that input or of the output that made
    it, and `state[name] = array` replaces it. Any Model of the artifact may run from it, at any of its bindings, one
    run at a time. A run that is refused leaves it as it was. Where an exception, such as KeyboardInterrupt, ends a run
    from outside, it is void: all but `reset` raises RunError.
    """

    def __init__(self, artifact: tuple[str, str], carried: tuple[Carried, ...]) -> None:
        self.carried = carried
        self._artifact = artifact
        first = [_aligned(one.input, np.zeros) for one in carried]
        other = [array if one.in_place else _aligned(one.input) for one, array in zip(carried, first, strict=True)]
        self._sides = (first, other)  # what the next run reads, and beside it what a run writes that needs two memories
        self._swapped = 0  # bit by bit, which tensors lie where at first the other memory was
        self._quick: weakref.WeakKeyDictionary[Model, dict[int, _Quick | None]] = weakref.WeakKeyDictionary()
        self._turn = threading.RLock()
        self._is_void = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs that it holds."""
        return tuple(one.input.name for one in self.carried)

    @property
    def bytes(self) -> int:
        """The memory that it has."""
        return sum(array.nbytes for array in {id(array): array for side in self._sides for array in side}.values())

    def __getitem__(self, name: str) -> Array:
        with _alone(self._turn):
            return self._held(name)[1].copy()

    def __setitem__(self, name: str, value: Any) -> None:
        with _alone(self._turn):
            spec, array = self._held(name)
            array[...] = _as_array(spec, value)

    def reset(self) -> None:
        """Zeros again, as it began."""
        with _alone(self._turn):
            for array in self._sides[0]:
                array[...] = 0
            self._is_void = False

    def fork(self) -> State:
        """Another one that holds the same; from then on each goes its own way."""
        made = State(self._artifact, self.carried)
        with _alone(self._turn):
            self._demand_whole()
            for own, array in zip(made._sides[0], self._sides[0], strict=True):
                own[...] = array
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file that `Model.state` reads, whole or not at all. Raises OSError."""
        with _alone(self._turn):
            self._demand_whole()
            tensors = [array.copy() for array in self._sides[0]]
        described = {"model": self._artifact[0], "tensors": [[*one.input] for one in self.carried]}
        whole = io.BytesIO()
        np.savez(whole, np.array(json.dumps(described)), *tensors)
        beside = f"{os.fspath(path)}.{os.getpid()}.part"
        try:
            with open(beside, "wb") as file:
                file.write(whole.getbuffer())
            os.replace(beside, path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise

    def _restore(self, path: str | os.PathLike[str]) -> None:
        """What was saved to a file. Raises InputError for a file that is none, or of another model."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
                described = json.loads(str(saved["arr_0"]))
                model, tensors = described["model"], described["tensors"]
                arrays = [saved[f"arr_{at}"] for at in range(1, len(tensors) + 1)]
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as reason:
            raise InputError(f"{path} holds no state: {reason}. Fix: give a file that State.save wrote") from reason
        own = [[name, dtype, [*shape]] for name, dtype, shape in (one.input for one in self.carried)]
        if model != self._artifact[0] or tensors != own:
            raise InputError(f"{path} holds the state of another model. Fix: load it with the model that made it")
        for one, mine, array in zip(self.carried, self._sides[0], arrays, strict=True):
            mine[...] = _as_array(one.input, array)

    def _held(self, name: str) -> tuple[TensorSpec, Array]:
        """A tensor, in the memory from which the next run reads it."""
        self._demand_whole()
        for one, array in zip(self.carried, self._sides[0], strict=True):
            if name in (one.input.name, one.output.name):
                return one.input, array
        raise InputError(f"the state holds no {name!r}. Fix: it holds {', '.join(map(repr, self.names))}")

    def _demand_whole(self) -> None:
        if self._is_void:
            raise RunError("a run from this state was interrupted. Fix: reset it, or fork it before such runs")

    def _ends(self, carried: Sequence[Carried]) -> tuple[dict[str, Array], dict[str, Array]]:
        """What a run reads, by name of the input, and what it writes, by name of the output.

        `carried` is what the binding carries that runs: what is in place there is written where it is read.
        """
        reads, others = self._sides
        writes = (read if one.in_place else other for one, read, other in zip(carried, reads, others, strict=True))
        return (
            {one.input.name: array for one, array in zip(carried, reads, strict=True)},
            {one.output.name: array for one, array in zip(carried, writes, strict=True)},
        )

    def _swap(self, swaps: int) -> None:
        """A run has ended: what it wrote is what the next one reads. `swaps` has a bit for each that swaps."""
        reads, others = self._sides
        for at in range(swaps.bit_length()):
            if swaps >> at & 1:
                reads[at], others[at] = others[at], reads[at]
        self._swapped ^= swaps
        self._is_void = False

    def _demand_of(self, artifact: tuple[str, str]) -> None:
        """Raises unless a run of this artifact may begin from it."""
        self._demand_whole()
        if self._artifact != artifact:
            raise InputError("the state is of another artifact. Fix: make it by this model's `state`")


class Model:
    """A loaded artifact.

    path      a .tw file or a folder with its members; None: where this file lies
    lanes     threads; None: as many as the plan was made for. With fewer than any plan needs one thread does
              everything, so `.lanes` is 1
    verify    whether the library and the weights are compared with their SHA-256 first
    spin_us   how long an idle lane spins before it sleeps; None: the library's default
    device    which GPU runs a model that was compiled for one: 0 is the first that CUDA_VISIBLE_DEVICES leaves
    plan      which of the model's plans runs, from 1; None: where there are several, the one for a hand-off between
              cores that costs what it does here
    pin       whether each lane but the caller's stays on a core of its own: faster on cores that nobody else uses,
              slower on others
    binding   of a model with several `.bindings`, the one that this is, from 1; None: the first, and `run`, `run_flat`
              and all else that takes inputs go to the one that has their shapes, which is loaded when first needed:
              one made for exactly these, else the one with the least ranges that hold them

    seed      of a model that draws random numbers, the key of all that it draws, with the number of the run: equal
              seeds draw equal numbers. None: another one each time that a model is loaded
    coded     inputs and outputs are the program's own: strings are their numbers (`Binding.words`), and the state of
              random numbers is an input

    Weights are mapped from the file and shared by all processes that use it; on a GPU each Model has a copy. A Model
    may be used from any thread, one run at a time: `run` waits for the other to end. For runs side by side make several
    Models. It does not survive a fork. Raises ArtifactError, or WrongMachine when this machine cannot run it.
    """

    errors = (ArtifactError, InputError, RunError)
    """What is raised here, for those who have the Model and not this module."""

    def __init__(
        self,
        path: str | os.PathLike[str] | _Files | None = None,
        lanes: int | None = None,
        *,
        verify: bool = True,
        spin_us: int | None = None,
        device: int = 0,
        plan: int | None = None,
        pin: bool = False,
        binding: int | None = None,
        seed: int | None = None,
        coded: bool = False,
    ) -> None:
        self._instance = ctypes.c_void_p()
        self._library: _Library | None = None
        self._parts: _Frames | None = None
        if lanes is not None and lanes < 1:
            raise ValueError(f"lanes is {lanes}. Fix: give 1 or more, or None for what the plan was made for")
        begin = time.perf_counter()
        self._has_own_files = not isinstance(path, _Files)
        if isinstance(path, _Files):  # of the model that this is another binding of
            self._files = path
        else:
            self._files = _Files(Path(path) if path is not None else Path(__file__).resolve().parent, verify)
        self.path = self._files.path
        try:
            self.manifest = self._files.manifest
            self.bindings = _bindings(self.manifest)
            number = 1 if binding is None else binding
            _check_binding(number, self.bindings)
            if coded:
                self.bindings = tuple(one.coded for one in self.bindings)
            self.binding = self.bindings[number - 1]
            self._by_size = sorted(self.bindings, key=lambda one: one.size)
            self.inputs, self.outputs = self.binding.inputs, self.binding.outputs
            self._folder = str(self.manifest["bindings"][number - 1]["folder"]) if "bindings" in self.manifest else ""
            self._others: dict[int, Model] = {}
            self._open = functools.partial(
                type(self), self._files, lanes, spin_us=spin_us, device=device, pin=pin, seed=seed, coded=coded
            )
            self._state = self._first_state(seed)
            self._chooses = binding is None and len(self.bindings) > 1
            self.device = device
            self.on_gpu = str(self.manifest["target"]).startswith("cuda")
            self._library = self._open_library(self._files.read(f"{self._folder}model.so"))
            self._create(lanes or 0, -1 if spin_us is None else spin_us, device, plan, pin)
            self._spin_us = spin_us
            self._runs_parts = bool(self.manifest.get("stream", {}).get("runs")) and plan is None
            if self._runs_parts:
                self._parts = self._open_parts()
            self.plan = self._running()
            planned = self.plan.lanes
            self.lanes = planned if lanes is None or lanes >= planned or self.on_gpu else 1
        except BaseException:
            self.close()
            raise
        self._in, self._in_shapes = _tensors(self.binding.program_inputs)
        self._out, self._out_shapes = _tensors(self.binding.program_outputs)
        self._capacity = _Capacity(self.binding) if self.binding.has_sizes else None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._quick = self._quick_run()
        self.carried = self._carried(self.binding)
        self._swaps = sum(1 << at for at, one in enumerate(self.carried) if not one.in_place)
        self._last: Model | None = None  # the binding that the last run was passed on to
        self.load_seconds = time.perf_counter() - begin

    def _quick_run(self) -> _Quick | _QuickOpen | None:
        """For `run`; None for a model that does more than a call of its library, and for large arrays."""
        binding = self.binding
        ports = (*binding.inputs, *binding.outputs)
        plain = not (self.on_gpu or self._state or self._runs_parts or binding.has_strings)
        if not plain or any(spec.dtype in _SMALL for spec in ports):
            return None
        size = sum(spec.numpy.itemsize * math.prod(spec.shape) for spec in ports)
        if binding.has_sizes:
            many = size > QUICK_CAPACITY or (self._chooses and len(self.bindings) > 1)
            return None if many else _QuickOpen(self._opened(), self._instance, binding)
        return None if size > QUICK_BYTES else _Quick(self._opened(), self._instance, binding)

    @property
    def _artifact(self) -> tuple[str, str]:
        """What a state is for: the model, whose saved states can be loaded, and the programs that run from it."""
        folders = [str(one["folder"]) for one in self.manifest.get("bindings", ())] or [""]
        programs = [str(self.manifest["files"][f"{folder}model.so"]["sha256"]) for folder in folders]
        return str(self.manifest["model_digest"]), " ".join(programs)

    def _carried(self, binding: Binding) -> tuple[Carried, ...]:
        """The states that runs hand on, if the artifact was compiled so (option `carry`, on one device)."""
        inputs, outputs = ({spec.name: spec for spec in specs} for specs in (binding.inputs, binding.outputs))
        return tuple(
            Carried(outputs[one["output"]], inputs[one["input"]], bool(one["in_place"]))
            for one in self._described(binding).get("carried", ())
        )

    def _first_state(self, seed: int | None) -> list[Array]:
        """What the first run is given, of a model that draws random numbers; the second number counts the runs."""
        if not self.binding.random:
            return []
        key = int.from_bytes(os.urandom(8), "little") if seed is None else seed % 2**64
        return [np.array([key - 2**64 if key >= 2**63 else key, 0], np.int64)]

    def _open_library(self, code: bytes) -> _Library:
        return _Library(code)

    def _create(self, lanes: int, spin_us: int, device: int, plan: int | None, pin: bool) -> None:
        library = self._opened()
        plans = len(library.describe()["plans"]) if library.version == ABI_VERSION else 1
        if plan is not None and not 1 <= plan <= plans:
            raise ValueError(f"plan is {plan}. Fix: give 1 to {plans}, or None for the one that suits this machine")
        path, offset = self._files.locate("weights.bin")
        config = _Config(os.fsencode(path), offset, lanes, spin_us, device, plan or 0, pin)
        if library.calls.tw_create(ctypes.byref(config), ctypes.byref(self._instance)):
            self._instance = ctypes.c_void_p()
            raise WrongMachine(f"the model cannot start: {library.last_error()}", "see the reason above")

    def _running(self) -> PlanSpec:
        library = self._opened()
        if library.version != ABI_VERSION:
            return PlanSpec(1, str(self.manifest.get("scheduler", "")), self.manifest["lanes"], None, None, None)
        handover = ctypes.c_double()
        number = library.calls.tw_plan(self._instance, ctypes.byref(handover))
        chosen = library.describe()["plans"][number - 1]
        limit = None if chosen["most_handover_ns"] is None else 1e-9 * chosen["most_handover_ns"]
        return PlanSpec(number, chosen["scheduler"], chosen["lanes"], chosen["tasks"], limit, handover.value or None)

    def state(self, path: str | os.PathLike[str] | None = None) -> State:
        """A state for `run`: what the model hands on itself (option `carry`), zeros at first, or as it was saved.

        Each has its own memory, and all share the model's weights. It serves all bindings: a tensor has two memories
        where the program of any of them needs two. Raises RunError for an artifact that carries none,
        InputError for a file that is no state of this model.
        """
        self._demand_carried()
        each = zip(*map(self._carried, self.bindings), strict=True)
        in_place = (all(one.in_place for one in same) for same in each)
        carried = (one._replace(in_place=alike) for one, alike in zip(self.carried, in_place, strict=True))
        made = State(self._artifact, tuple(carried))
        if path is not None:
            made._restore(path)
        return made

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None, state: State | None = None
    ) -> dict[str, Any]:
        """Outputs by name, for inputs by name.

        Inputs are numpy arrays, anything with `__dlpack__` in host memory, or nested lists. Of a model with one input
        it may stand alone, without its name.

        `out` may give arrays for some or all outputs, which are filled and returned. Strided arrays are fine, row-major
        ones are used in place. A model that runs on a GPU also takes tensors in that GPU's memory (with `__dlpack__` or
        `__cuda_array_interface__`: PyTorch, CuPy, JAX, Numba) for `inputs` and `out`: row-major, and used in place;
        outputs are complete when this returns. Strings are arrays or nested lists of str, and come back as arrays of
        str objects; `out` takes none. Raises InputError when something does not fit, RunError when the model
        is closed or fails.

        With a `state` the inputs that it holds are left out, and so are the outputs that it takes over, unless `out`
        names them (with None for a new array).
        """
        if type(inputs) is not dict:
            inputs = self._by_name(inputs)
        if state is not None:
            return self._run_from(state, inputs, out)
        if (quick := self._quick) and (found := self._run_quick(quick, inputs, out)) is not None:
            return found
        if (last := self._last) and (quick := last._quick):
            found = last._run_quick(quick, inputs, out, again=True)
            if found is not None:
                return found
        _check_names("input", inputs, self.inputs)
        if (chosen := self._asked(inputs)) is not self:
            self._last = chosen
            return chosen.run(inputs, out)
        given = out or {}
        _check_names("output", given, [spec for spec in self.outputs if spec.dtype != "string"])
        for spec in self.inputs:
            if spec.name not in inputs:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        strings = self._strings()
        arrays = [self._input(spec, inputs[spec.name], strings) for spec in self.inputs]
        results = self._call(arrays, self._results([given.get(spec.name) for spec in self.outputs], arrays))
        results = self._as_strings(results, strings)
        return {spec.name: _returned(spec, given, result) for spec, result in zip(self.outputs, results, strict=True)}

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What `run` gives for inputs in their order, by name, or in one mapping; of one output the array alone.

        Raises as `run` does.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            (given,) = inputs
        elif len(inputs) > len(self.inputs):
            raise InputError(f"{len(inputs)} inputs are given. Fix: give {self._wanted()}")
        else:
            given = dict(zip([spec.name for spec in self.inputs], inputs, strict=False))
        if twice := sorted({*given} & {*named}):
            raise InputError(f"input {twice[0]!r} is given twice. Fix: give it once")
        found = self.run({**given, **named})
        return next(iter(found.values())) if len(found) == 1 else found

    def _by_name(self, inputs: Any) -> Mapping[str, Any]:
        """Inputs by name; one without a name is that of a model with one. Raises InputError for any other."""
        if isinstance(inputs, Mapping):
            return inputs
        if len(self.inputs) != 1:
            raise InputError(f"inputs are given by name, not as a {type(inputs).__name__}. Fix: give {self._wanted()}")
        return {self.inputs[0].name: inputs}

    def _wanted(self) -> str:
        return "{" + ", ".join(f"{spec.name!r}: {spec}" for spec in self.inputs) + "}"

    def __repr__(self) -> str:
        rows = self._facts()
        return (
            f"<Model {rows.pop('artifact')}: {rows.pop('inputs')} -> {rows.pop('outputs')}; {', '.join(rows.values())}>"
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in self._facts().items())
        return f"<table>{rows}</table>"

    def _facts(self) -> dict[str, str]:
        """What it is, in words."""

        def listed(specs: Sequence[TensorSpec]) -> str:
            each = ["".join(c if c.isprintable() else "?" for c in f"{spec.name}: {spec}") for spec in specs]
            return ", ".join(each)

        predicted = self.manifest.get("predicted_s")
        return {
            "artifact": self.path.name,
            "inputs": listed(self.inputs),
            "outputs": listed(self.outputs),
            "target": str(self.manifest["target"]),
            "lanes": f"{self.lanes} lane{'s' if self.lanes > 1 else ''}",
            **({"latency": f"{1e3 * predicted:.3g} ms predicted"} if predicted else {}),
        }

    def _run_quick(
        self,
        quick: _Quick | _QuickOpen,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> dict[str, Any] | None:
        """As `run`; None where something is not as it mostly is, or amiss. `again`: only for the last run's shapes."""
        with _alone(self._lock):
            if self._library is None or os.getpid() != self._process:
                return None
            found = quick.named(inputs, out, again)
            if isinstance(found, int):
                raise RunError(self._library.last_error())
            return found

    def _run_quick_flat(
        self, quick: _Quick | _QuickOpen, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool = False
    ) -> list[Any] | None:
        """The same in order."""
        with _alone(self._lock):
            if self._library is None or os.getpid() != self._process:
                return None
            found = quick.flat(inputs, out, again)
            if isinstance(found, int):
                raise RunError(self._library.last_error())
            return found

    def _run_from(self, state: State, inputs: Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        """As `run`, from a state and into it."""
        with _alone(state._turn):
            state._demand_of(self._artifact)
            for model in (self, self._last):
                if model is not None and (found := model._run_quick_from(state, inputs, out)) is not None:
                    return found
            held = dict(zip(state.names, state._sides[0], strict=True))
            chosen = self._fitting([held.get(spec.name, inputs.get(spec.name)) for spec in self.inputs], held)
            if chosen is not self:
                self._last = chosen
                if (found := chosen._run_quick_from(state, inputs, out)) is not None:
                    return found
            return chosen._run_whole_from(state, inputs, out or {})

    def _run_quick_from(
        self, state: State, inputs: Mapping[str, Any], out: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """As `_run_quick`, at this binding."""
        if (quick := self._quick_from(state)) is None:
            return None
        state._is_void = True
        try:
            found = self._run_quick(quick, inputs, out)
        except RunError:
            state._is_void = False
            raise
        state._is_void = False
        if found is not None:
            state._swap(self._swaps)
        return found

    def _run_whole_from(self, state: State, inputs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """As `_run_from`, at this binding; outputs are written to those of `given`."""
        reads, writes = state._ends(self.carried)
        takes = [spec for spec in self.inputs if spec.name not in reads]
        _check_names("input that no state holds", inputs, takes)
        _check_names("output", given, [spec for spec in self.outputs if spec.dtype != "string"])
        for spec in takes:
            if spec.name not in inputs:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        strings = self._strings()
        arrays = [
            reads[spec.name] if spec.name in reads else self._input(spec, inputs[spec.name], strings)
            for spec in self.inputs
        ]
        asked: dict[str, Any] = {
            spec.name: _aligned(spec) if (array := given[spec.name]) is None else self._output(spec, array, arrays)
            for spec in self.outputs
            if spec.name in writes and spec.name in given
        }
        _demand_apart(asked.items(), arrays)
        results = self._results([given.get(spec.name) for spec in self.outputs], arrays, writes)
        state._is_void = True
        try:
            self._call(arrays, results)
        except RunError:
            state._is_void = False
            raise
        state._swap(self._swaps)
        for name, array in asked.items():
            np.copyto(array, writes[name])
        own = zip(self.outputs, self._as_strings(results, strings), strict=True)
        made = {spec.name: asked.get(spec.name, result) for spec, result in own}
        return {
            spec.name: _returned(spec, given, made[spec.name])
            for spec in self.outputs
            if spec.name not in writes or spec.name in asked
        }

    def _quick_from(self, state: State) -> _Quick | None:
        """For runs from a state as it lies now; None where `run` has none either, or for large arrays beside it."""
        known = state._quick.setdefault(self, {})
        if state._swapped not in known:
            if len(known) >= QUICK_PLACES:
                known.clear()
            reads, writes = state._ends(self.carried)
            sides = (self.inputs, reads), (self.outputs, writes)
            beside = [spec for specs, held in sides for spec in specs if spec.name not in held]
            plain = not (self._state or self.binding.has_strings or any(spec.dtype in _SMALL for spec in beside))
            size = sum(spec.numpy.itemsize * math.prod(spec.shape) for spec in beside)
            quick = plain and size <= QUICK_CAPACITY
            run = _Quick(self._opened(), self._instance, self.binding, reads, writes) if quick else None
            known[state._swapped] = run
        return known[state._swapped]

    def run_flat(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """As `run`, with inputs and outputs in the order of `.inputs` and `.outputs`."""
        if (quick := self._quick) and (found := self._run_quick_flat(quick, inputs, out)) is not None:
            return found
        if (last := self._last) and (quick := last._quick):
            found = last._run_quick_flat(quick, inputs, out, again=True)
            if found is not None:
                return found
        if (chosen := self._fitting(inputs)) is not self:
            self._last = chosen
            return chosen.run_flat(inputs, out)
        strings = self._strings()
        results = self._as_strings(self._call(*self._flat(inputs, out, strings)), strings)
        return [result.owner if isinstance(result, DeviceArray) else result for result in results]

    def stream(self, frames: Iterable[Mapping[str, Any]], depth: int | None = None) -> Stream:
        """Outputs by name for each of many inputs by name, with several in flight on the model's devices.

        Frames are taken from the iterable when there is room for them: `depth` are in flight at most, None for as many
        as the parts can hold. Results come in the order of the frames. An input is copied when it is taken, so that the
        iterable may use its arrays again. What is wrong with one frame is raised where its result would be, and the
        next call of `next` goes on. For an artifact that was compiled for several devices; raises RunError for another.
        """
        if depth is not None and depth < 1:
            raise ValueError(f"depth is {depth}. Fix: give 1 or more, or None for as many as the parts can hold")
        return Stream(self, frames, depth or self._streamed().frames)

    def submit(self, inputs: Mapping[str, Any]) -> Frame:
        """Begins an inference on the model's devices, and waits only while as many are in flight as may be.

        A state that the artifact carries (option `carry`) may be left out: it is what the frame submitted before makes,
        zeros in the first one. Where that one failed before it had made it, this one fails too; a state that is given
        is taken. Raises as `run` does, and RunError for an artifact that was not compiled for several devices.
        """
        carried = self._streamed().carried
        _check_names("input", inputs, self.inputs)
        for spec, is_state in zip(self.inputs, carried, strict=True):
            if spec.name not in inputs and not is_state:
                raise InputError(f"input {spec.name!r} is missing. Fix: give it as {spec}")
        return self.submit_flat([inputs.get(spec.name) for spec in self.inputs])

    def submit_flat(self, inputs: Sequence[Any]) -> Frame:
        """As `submit`, with inputs in the order of `.inputs`; None for a state that is left out."""
        frames = self._streamed()
        arrays: Sequence[Array | None] = inputs
        if frames.fit(inputs):
            results = [_aligned(spec) for spec in self.outputs]
        else:
            arrays, results = self._flat_with_states(inputs, frames.carried)
        seat = frames.seat()
        seat.aim(seat.copied(arrays), results)
        return Frame(frames, frames.submit(seat, results), self.outputs, results)

    def _flat_with_states(
        self, inputs: Sequence[Any], carried: Sequence[bool]
    ) -> tuple[list[Array | None], list[Array]]:
        """Inputs and outputs that are in order, found fit; None for states that are left out."""
        left_out = [value is None and is_state for value, is_state in zip(inputs, carried, strict=False)]
        filled = [
            np.zeros(spec.shape, spec.numpy) if absent else value
            for value, absent, spec in zip(inputs, left_out, self.inputs, strict=False)
        ]
        arrays, results = self._flat([*filled, *inputs[len(filled) :]], None)
        return [None if absent else array for array, absent in zip(arrays, left_out, strict=True)], results

    def occupancy(self) -> tuple[int, list[float]]:
        """How many frames have ended since the parts were first used, and each part's seconds of processor time."""
        return self._streamed().work()

    def delays(self) -> list[float]:
        """Of each device how long other threads kept its own from its core since the parts were first used, in seconds.

        So it is seen how much of the time by the clock is others' work. 0 where the system does not say, and of a
        device that is no core what its thread waits for the host's.
        """
        return self._streamed().delays()

    def _streamed(self) -> _Frames:
        """The parts, opened when they are first needed."""
        with _alone(self._lock):
            self._opened()
            self._check_process()
            if self._parts is None:
                self._parts = self._open_parts()
            return self._parts

    def _open_parts(self) -> _Frames:
        if "stream" not in self.manifest:
            raise RunError(
                "the model was compiled for one device, and has no parts to stream through. "
                'Fix: compile it with devices, such as {"devices": ["cpu:0", "cpu:1"], "objective": "throughput"}'
            )
        return _Frames(self._files, self._spin_us, self.binding)

    def bind(self, inputs: Sequence[Any], out: Sequence[Any]) -> Callable[[], float]:
        """A run that is checked once, for loops in which checking would count.

        Each call runs the model and returns its seconds.

        `inputs` and `out` are in the order of `.inputs` and `.outputs`; arrays of the right type are used in place, so
        what is written to an input between two calls is seen by the second: on a GPU if that is complete, or in the
        legacy default stream. A binding that leaves dimensions open may also be given what its program takes and fills
        (`staged`, `resident`), which is then used in place. Strings are read once, here, and an output of strings is
        filled with their numbers (int64). Raises as `run` does.
        """
        if (chosen := self._fitting(inputs)) is not self:
            return chosen.bind(inputs, out)
        arrays, results = self._flat(inputs, out)
        return self._again(arrays, results)

    def bind_state(self, inputs: Sequence[Any]) -> Callable[[], float]:
        """As `bind`, of runs from a state, to measure them: none of it is copied in or out.

        `inputs` are in the order of `.inputs`, with those that a state holds, which begins with copies of them. Each
        run finds the same: what it makes in other memory is left there, and what it writes in place is put back before
        the next one, outside of its seconds, if it is small or the model demands something of it. Larger tensors in
        place go on, such as a cache, of which each run writes the same rows. Raises as `bind` and `state` do.
        """
        if (chosen := self._fitting(inputs)) is not self:
            return chosen.bind_state(inputs)
        self._demand_carried()
        return self._again_from_state(*self._flat(inputs, None))

    def _again_from_state(self, arrays: list[Any], results: list[Any]) -> Callable[[], float]:
        """As `bind_state`, of arrays that were found fit."""
        demanded = {one["name"] for one in self._described()["inputs"] if "range" in one}
        carried = {one.input.name: one for one in self.carried}
        outputs = [spec.name for spec in self.outputs]
        back: list[tuple[Array, Array]] = []
        for at, spec in enumerate(self.inputs):
            if spec.name in carried:
                first, arrays[at] = np.array(arrays[at]), _aligned(spec)
                arrays[at][...] = first
                if carried[spec.name].in_place:
                    results[outputs.index(carried[spec.name].output.name)] = arrays[at]
                    if first.nbytes <= QUICK_BYTES or spec.name in demanded:
                        back.append((arrays[at], first))
        run = self._again(arrays, results)

        def once() -> float:
            for array, first in back:
                array[...] = first
            return run()

        return once

    def _demand_carried(self) -> None:
        if not self.carried:
            raise RunError(
                "the model was compiled without states for one device. "
                'Fix: compile it with carry, such as {"carry": {"next_h": "h"}}: output next_h becomes input h'
            )

    def _again(self, arrays: Sequence[Any], results: list[Any]) -> Callable[[], float]:
        """Runs of these, found fit; each call gives its seconds."""
        if self._capacity or self._state or self._runs_parts:
            return lambda: self._timed(self._call, arrays, results)
        fixed = _Fixed(self._opened(), self._instance, self.binding, arrays, results)
        return lambda: self._timed(self._run_fixed, fixed)

    def _run_fixed(self, fixed: _Fixed) -> None:
        with _alone(self._lock):
            library = self._opened()
            self._check_process()
            if fixed.call():
                raise RunError(library.last_error())

    def at(self, number: int) -> Model:
        """The model at one of its `.bindings`, which counts from 1; it is closed with this one."""
        _check_binding(number, self.bindings)
        if number == self.binding.number:
            return self
        with _alone(self._lock):
            self._opened()
            if number not in self._others:
                self._others[number] = self._open(binding=number)
            return self._others[number]

    def _fitting(self, inputs: Sequence[Any], held: Container[str] = ()) -> Model:
        """The model at the binding that has the shapes of these inputs, of which a state may have `held` some.

        This one where there is no choice, or where something is amiss that it says better. Raises InputError where no
        binding has them.
        """
        if not self._chooses or len(inputs) != len(self.inputs):
            return self
        shapes = [_shape_of(value) for value in inputs]
        if None in shapes:
            return self
        found = [shape or () for shape in shapes]
        for one in self._by_size:
            if not one.misfit(found):
                return self.at(one.number)
        ranged = [one for one in self.bindings if one.open]
        if len(ranged) == 1:
            raise InputError(ranged[0].misfit(found))
        named = zip(self.inputs, shapes, strict=True)
        given = ", ".join(f"{spec.name!r} {list(shape or ())}" for spec, shape in named if spec.name not in held)
        raise InputError(f"no binding of the model has {given}. Fix: give shapes of {_listed(self.bindings)}")

    def _asked(self, inputs: Mapping[str, Any] | None) -> Model:
        """The model at the binding of inputs by name; this one for random ones."""
        if inputs is None or not self._chooses:
            return self
        return self._fitting([inputs.get(spec.name) for spec in self.inputs])

    def staged(self, inputs: Sequence[Any]) -> list[Array]:
        """What the program of a binding that leaves dimensions open takes for inputs, in order.

        These are arrays of their own, zero beyond what was given, and the sizes. Raises InputError as `run` does.
        """
        arrays, _ = self._flat(inputs, None)
        return [np.array(array) for array in _Capacity(self.binding).take(arrays, self._state)]

    def resident(self) -> tuple[list[DeviceArray], list[DeviceArray]]:
        """Inputs and outputs in the memory that a model on a GPU has for them.

        A run from there copies nothing, and finds what the last one left.
        """
        inputs, outputs = (
            [DeviceArray(0, self.device, spec, None) for spec in specs]
            for specs in (self.binding.program_inputs, self.binding.program_outputs)
        )
        return inputs, outputs

    def random_inputs(self, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Inputs in the ranges that the manifest states (`range`, of what the model demands something of).

        Where few are legal it states `examples`, of which one is taken, the same place for all inputs.
        Others are standard normal floats, and integers and booleans of 0 and 1. `sizes` are those of dimensions that
        the binding leaves open, by name; their opt where there is none.
        """
        random = np.random.default_rng(seed)
        made: dict[str, Array] = {}
        described = self._described()["inputs"]
        ranges = {one["name"]: one["range"] for one in described if "range" in one}
        examples = {one["name"]: one["examples"] for one in described if "examples" in one}
        for port in self.inputs:
            spec = port.at(sizes or {}) if isinstance(port, OpenSpec) else port
            if spec.dtype == "string":
                known = [*self.binding.words, "another"]
                drawn = [known[at] for at in random.integers(0, len(known), math.prod(spec.shape))]
                made[spec.name] = np.array(drawn, object).reshape(spec.shape)
            elif spec.name in examples:
                one = examples[spec.name][seed % len(examples[spec.name])]
                made[spec.name] = np.array(one, spec.numpy).reshape(spec.shape)
            elif spec.name in ranges:
                made[spec.name] = _in_range(spec, ranges[spec.name], random)
            elif spec.dtype in _SMALL:
                made[spec.name] = _codes(spec, random)
            elif spec.dtype == "bfloat16":
                made[spec.name] = (random.standard_normal(spec.shape, np.float32).view(np.uint32) >> 16).astype(
                    np.uint16
                )
            elif spec.numpy.kind == "f":
                made[spec.name] = np.asarray(random.standard_normal(spec.shape)).astype(spec.numpy)
            else:
                made[spec.name] = np.asarray(random.integers(0, 2, spec.shape)).astype(spec.numpy)
        return made

    def _described(self, binding: Binding | None = None) -> Mapping[str, Any]:
        """What the manifest says of a binding, or of this model's."""
        listed: Sequence[Mapping[str, Any]] = self.manifest.get("bindings") or (self.manifest,)
        return listed[(binding or self.binding).number - 1]

    def trace(self, inputs: Mapping[str, Any] | None = None, repeats: int = 30) -> list[tuple[float, float]]:
        """When each task of the running plan begins and ends, in seconds since the run began.

        Medians over `repeats` runs, in the plan's order.

        Reading the clock delays each task by some 50 ns. Raises RunError for a model on a GPU, which does not say it.
        """
        if (chosen := self._asked(inputs)) is not self:
            return chosen.trace(inputs, repeats)
        library = self._opened()
        if self.plan.tasks is None:
            raise RunError("this library is too old to be traced. Fix: compile the model again")
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        tasks = self.plan.tasks
        begins, ends = ((ctypes.c_double * max(tasks, 1))() for _ in range(2))
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._call(arrays, results, library.calls.tw_trace, begins, ends)
            rows.append([*begins[:tasks], *ends[:tasks]])
        medians = [statistics.median(times) for times in zip(*rows[1:], strict=True)]
        return list(zip(medians[:tasks], medians[tasks:], strict=True))

    def profile(self, inputs: Mapping[str, Any] | None = None, repeats: int = 10) -> list[dict[str, Any]]:
        """For each kernel call: what it is, and its median seconds over `repeats` runs, one lane at a time."""
        if (chosen := self._asked(inputs)) is not self:
            return chosen.profile(inputs, repeats)
        library = self._opened()
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        calls = self.plan_json()["calls"]
        seconds = (ctypes.c_double * max(len(calls), 1))()
        rows = []
        for _ in range(max(repeats, 1) + 1):
            self._call(arrays, results, library.calls.tw_profile, seconds)
            rows.append(list(seconds)[: len(calls)])
        medians = [statistics.median(times) for times in zip(*rows[1:], strict=True)]
        whole = sum(medians) or 1.0
        kept = ("family", "sources", "tile", "predicted_s", "predicted_from")
        return [
            {"call": at, **{key: call[key] for key in kept}, "seconds": spent, "share": spent / whole}
            for at, (call, spent) in enumerate(zip(calls, medians, strict=True))
        ]

    def plan_json(self) -> dict[str, Any]:
        """The running plan, of plan.json: its calls with what they are, and its tasks."""
        written = json.loads(self._files.read(f"{self._folder}plan.json"))
        if written.get("number", 1) == self.plan.number:
            return dict(written)
        other = next(one for one in written["others"] if one["number"] == self.plan.number)
        calls = [{**call, **own} for call, own in zip(written["calls"], other["calls"], strict=True)]
        return {**other, "calls": calls}

    def bench(self, seconds: float = 2.0, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Latency of one run, in seconds: every sample and its percentiles, the first run and the loading apart.

        A fifth of `seconds` warms up first. At least ten samples are taken, however long they last. On a GPU inputs and
        outputs stay in its memory; `with_copies` is the latency of runs from and to host memory. Of an artifact with
        states runs are from a state, which begins with what `inputs` say.
        """
        if (chosen := self._asked(inputs)) is not self:
            return chosen.bench(seconds, inputs)
        arrays = self._arrays(inputs)
        results = self._results([None] * len(self.outputs), arrays)
        run = (self._again_from_state if self.carried else self._again)(arrays, results)
        first = run()
        common = {"first_run": first, "load": self.load_seconds, "lanes": self.lanes, "plan": self.plan.number}
        if not self.on_gpu:
            return {**self._latency(seconds, run), **common}
        whole = self._latency(seconds / 2, run)
        inside = self._latency(seconds / 2, self._again(*self.resident()))
        return {**inside, **common, "with_copies": whole}

    def _latency(self, seconds: float, run: Callable[[], float]) -> dict[str, Any]:
        """Samples and their percentiles, after a fifth of the time for warming up."""
        end = time.perf_counter() + seconds / 5
        while time.perf_counter() < end:
            run()
        samples: list[float] = []
        end = time.perf_counter() + seconds * 4 / 5
        while len(samples) < 10 or time.perf_counter() < end:
            samples.append(run())
        p10, median, p90, p99 = (float(value) for value in np.percentile(samples, (10, 50, 90, 99)))
        return {
            "median": median,
            "min": min(samples),
            "mean": statistics.fmean(samples),
            "p10": p10,
            "p90": p90,
            "p99": p99,
            "runs": len(samples),
            "samples": samples,
        }

    def close(self) -> None:
        """Frees the instance and its threads; a second call does nothing. Raises RunError while this thread runs it."""
        if hasattr(self, "_lock"):
            _alone(self._lock)
        for other in getattr(self, "_others", {}).values():
            other.close()
        is_own = os.getpid() == getattr(self, "_process", os.getpid())
        if self._parts:
            self._parts.close(destroy=is_own)
            self._parts = None
        if self._library and self._instance:
            if is_own:
                self._library.calls.tw_destroy(self._instance)
            self._instance = ctypes.c_void_p()
        if self._library:
            self._library.close()
            self._library = None
        if hasattr(self, "_files") and self._has_own_files:
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

    def _arrays(self, inputs: Mapping[str, Any] | None) -> list[Any]:
        given = self.random_inputs() if inputs is None else inputs
        _check_names("input", given, self.inputs)
        strings = self._strings()
        return [self._input(spec, given[spec.name], strings) for spec in self.inputs]

    def _strings(self) -> _Strings | None:
        """For one run; None where nothing is of strings."""
        return _Strings(self.binding.words) if self.binding.has_strings else None

    def _as_strings(self, results: list[Any], strings: _Strings | None) -> list[Any]:
        """Results of a run, those of strings as such."""
        if strings is None:
            return results
        specs = zip(self.outputs, results, strict=True)
        return [strings.of(result) if spec.dtype == "string" else result for spec, result in specs]

    def _input(self, spec: TensorSpec, value: Any, strings: _Strings | None = None) -> Array | DeviceArray:
        """An input, found fit."""
        if spec.dtype == "string" and strings is not None:
            return _as_array(spec, strings.numbers(spec, value))
        if self.on_gpu and isinstance(spec, OpenSpec) and _is_on_gpu(value):
            raise InputError(
                f"input {spec.name!r} is in the memory of a GPU, and has axes that are open. Fix: copy it to the host"
            )
        found = _on_gpu(f"input {spec.name!r}", spec, value, self.device) if self.on_gpu else None
        return _as_array(spec, value) if found is None else found

    def _flat(
        self, inputs: Sequence[Any], out: Sequence[Any] | None, strings: _Strings | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Inputs and outputs that are in order, found fit."""
        if self._capacity and out is not None and self._is_of_program(inputs, out):
            return self._of_program(inputs, out)
        for kind, given, specs in (("inputs", inputs, self.inputs), ("outputs", out, self.outputs)):
            if given is not None and len(given) != len(specs):
                raise InputError(
                    f"{len(given)} {kind} for {len(specs)}. Fix: give {', '.join(map(str, specs)) or 'none'}"
                )
        strings = strings or self._strings()
        arrays = [self._input(spec, value, strings) for spec, value in zip(self.inputs, inputs, strict=True)]
        return arrays, self._results(list(out) if out is not None else [None] * len(self.outputs), arrays)

    def _is_of_program(self, inputs: Sequence[Any], out: Sequence[Any]) -> bool:
        """Whether these are as many as an open binding's program takes and fills: more than the model does."""
        binding = self.binding
        return (len(inputs), len(out)) == (len(binding.program_inputs), len(binding.program_outputs))

    def _of_program(self, inputs: Sequence[Any], out: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What an open binding's program itself takes and fills, found fit."""
        takes, fills = (
            [TensorSpec(*spec) for spec in specs]
            for specs in (self.binding.program_inputs, self.binding.program_outputs)
        )
        arrays = [self._input(spec, value) for spec, value in zip(takes, inputs, strict=True)]
        results = [self._output(spec, array, arrays) for spec, array in zip(fills, out, strict=True)]
        _demand_apart([(spec.name, array) for spec, array in zip(fills, results, strict=True)], arrays)
        return arrays, results

    def _results(
        self, given: Sequence[Any], arrays: Sequence[Any], kept: Mapping[str, Array] | None = None
    ) -> list[Any]:
        """The arrays that a run fills: those kept, those given, once they are found fit, and new ones."""
        there = kept or {}
        results: list[Any] = []
        checked: list[tuple[str, Any]] = []
        for spec, array in zip(self.outputs, given, strict=True):
            if spec.name in there:
                results.append(there[spec.name])
            elif array is None or isinstance(spec, OpenSpec):
                results.append(array if self._capacity else _aligned(spec))
            else:
                results.append(self._output(spec, array, arrays))
                checked.append((spec.name, results[-1]))
        _demand_apart(checked, arrays)
        return results

    def _output(self, spec: TensorSpec, array: Any, arrays: Sequence[Any]) -> Array | DeviceArray:
        """A preallocated output, found fit; one in the host's memory may still be shared with an input's."""
        found = _on_gpu(f"output {spec.name!r}", spec, array, self.device) if self.on_gpu else None
        if found is None:
            return _checked_output(spec, array)
        if any(isinstance(one, DeviceArray) and one.address and _overlap(one, found) for one in arrays):
            raise InputError(f"output {spec.name!r} shares memory with an input. Fix: give an array of its own")
        return found

    def _timed(self, run: Callable[..., Any], *arguments: Any) -> float:
        begin = time.perf_counter()
        run(*arguments)
        return time.perf_counter() - begin

    def _call(self, arrays: Sequence[Any], results: list[Any], function: Any = None, *more: Any) -> list[Any]:
        """The outputs of one run, by `tw_run` or by another function of the library that is given `more`."""
        with _alone(self._lock):
            self._opened()
            self._check_process()
            if self._is_of_program(arrays, results):
                self._invoke(arrays, results, function, *more)
                return results
            if self._state:
                self._state[0][1] += 1
            if self._capacity is None:
                self._invoke([*arrays, *self._state], results, function, *more)
                return results
            self._invoke(self._capacity.take(arrays, self._state), self._capacity.blank(results), function, *more)
            return self._capacity.results(results, arrays)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RunError("the model was loaded before this process was forked. Fix: load it in this process")

    def _invoke(self, arrays: Sequence[Any], results: Sequence[Any], function: Any, *more: Any) -> None:
        library = self._opened()
        if self._runs_parts and self._parts and function is None:
            self._run_parts(self._parts, arrays, results)
            return
        kept = [_point(tensor, array) for tensor, array in zip(self._in, arrays, strict=False)]
        kept += [_point(tensor, array) for tensor, array in zip(self._out, results, strict=False)]
        if (function or library.calls.tw_run)(self._instance, self._in, self._out, *more):
            raise RunError(library.last_error())

    def _run_parts(self, frames: _Frames, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """One frame by itself; arrays that are not row-major are copied."""
        inside = [array if array.flags.c_contiguous else np.empty_like(array, order="C") for array in results]
        given = [np.asarray(array, order="C") for array in arrays]
        seat = frames.seat()
        seat.aim(given, inside)
        frames.wait(frames.submit(seat, (given, inside)))
        for array, own in zip(results, inside, strict=True):
            if own is not array:
                np.copyto(array, own)


def _specs(
    described: Sequence[Mapping[str, Any]], axes: Sequence[Sequence[Size | None]] | None = None
) -> tuple[TensorSpec, ...]:
    """Of ports of the manifest; `axes` has the open ones of each."""
    specs = [TensorSpec(port["name"], port["dtype"], tuple(port["shape"])) for port in described]
    if axes is None:
        return tuple(specs)
    pairs = zip(specs, axes, strict=True)
    return tuple(OpenSpec(*spec, tuple(its)) if any(map(_is_open, its)) else spec for spec, its in pairs)


def _is_open(axis: Size | None) -> bool:
    return axis is not None


def _binding(number: int, described: Mapping[str, Any]) -> Binding:
    """One that a manifest describes."""
    inputs, outputs, ranges = described["inputs"], described["outputs"], described.get("open")
    words, draws = tuple(described.get("strings", ())), bool(described.get("random"))
    if ranges is None:
        return Binding(number, dict(described["dims"]), _specs(inputs), _specs(outputs), words=words, random=draws)
    sizes = tuple(
        Size(one["name"], one["min"], one["opt"], one["max"], one.get("step", 1)) for one in ranges["dimensions"]
    )
    of_inputs = [[None if number is None else sizes[number] for number in axes] for axes in ranges["inputs"]]
    of_outputs = [
        [None if number is None else Size("", 0, most, most) for number, most in zip(axes, port["shape"], strict=True)]
        for axes, port in zip(ranges["outputs"], outputs, strict=True)
    ]
    numbers = tuple(map(tuple, ranges["outputs"]))
    limits = tuple(
        Limit(one["says"], one["min"], one["max"], one["output"], tuple(one.get("sizes", ())))
        for one in ranges.get("limits", ())
    )
    specs = _specs(inputs, of_inputs), _specs(outputs, of_outputs)
    return Binding(number, dict(described["dims"]), *specs, sizes, numbers, words, draws, limits)


def _bindings(manifest: Mapping[str, Any]) -> tuple[Binding, ...]:
    """Those that a manifest lists; one for an artifact that was compiled for one."""
    listed = manifest.get("bindings") or ({"dims": {}, **manifest},)
    return tuple(_binding(number, one) for number, one in enumerate(listed, 1))


def _check_binding(number: int, bindings: Sequence[Binding]) -> None:
    if not 1 <= number <= len(bindings):
        raise NoSuchBinding(f"the artifact has no binding {number}", f"give 1 to {len(bindings)}")


MOST_LISTED = 8
"""Bindings that a message names."""


def _listed(bindings: Sequence[Binding]) -> str:
    named = " or ".join(f"({one})" for one in bindings[:MOST_LISTED])
    return named + (f" or {len(bindings) - MOST_LISTED} others" if len(bindings) > MOST_LISTED else "")


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """An array's or a nested list's shape; None if it is unknown."""
    shape = getattr(value, "shape", None)
    if shape is None and isinstance(value, DeviceArray):
        shape = value.spec.shape
    if shape is None and isinstance(value, (list, tuple, int, float, bool)):
        try:
            shape = np.shape(value)
        except ValueError:
            return None
    return None if shape is None else tuple(int(dim) for dim in shape)


def _codes(spec: TensorSpec, random: np.random.Generator) -> Array:
    """Elements of a small type, as their codes."""
    first, end, sign = _SMALL[spec.dtype]
    codes = np.asarray(random.integers(first, end, spec.shape))
    return np.asarray(np.where(random.integers(0, 2, spec.shape) & (codes != 0), codes | sign, codes)).astype(np.uint8)


def _in_range(spec: TensorSpec, ends: Sequence[float | None], random: np.random.Generator) -> Array:
    """Numbers between two ends, both included, None where there is no bound; whole ones where there are two."""
    low, high = ends
    if spec.dtype in _SMALL and "int" not in spec.dtype:
        return np.zeros(spec.shape, np.uint8)  # the code of 0, the one number that is known without a table
    if spec.dtype in _SMALL:
        _, codes, _ = _SMALL[spec.dtype]
        first, last = (-codes if low is None else math.ceil(low)), (codes if high is None else math.floor(high))
        return np.asarray(random.integers(first, last, spec.shape, endpoint=True) % codes).astype(np.uint8)
    if spec.dtype != "bfloat16" and spec.numpy.kind != "f":
        first, last = _whole_ends(spec, low, high)
        return np.asarray(random.integers(first, last, spec.shape, endpoint=True)).astype(spec.numpy)
    if low is None or high is None:
        away = np.abs(np.asarray(random.standard_normal(spec.shape))) + 0.1
        drawn = away + low if low is not None else (high or 0) - away
    elif math.ceil(low) < math.floor(high):
        drawn = np.asarray(random.integers(math.ceil(low), math.floor(high), spec.shape, endpoint=True))
    else:
        drawn = np.asarray(random.uniform(low, high, spec.shape))
    if spec.dtype == "bfloat16":
        return (drawn.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return drawn.astype(spec.numpy)


def _whole_ends(spec: TensorSpec, low: float | None, high: float | None) -> tuple[int, int]:
    """The least and the greatest integer; a byte's worth of them, not negative if possible, where an end is missing."""
    most = 1 if spec.dtype == "bool" else int(np.iinfo(spec.numpy).max)
    if low is None:
        low = 0 if high is None or high >= 0 else high - 255
    if high is None:
        low = max(low, 0)
        high = max(low, 0) + 255
    return math.ceil(low), math.floor(min(high, most, 2**63 - 1))


def _tensors(specs: Sequence[TensorSpec]) -> tuple[Any, list[Any]]:
    """C tensors that lack only their data, and the shapes they point to."""
    tensors = (_Tensor * max(len(specs), 1))()
    shapes = []
    for tensor, spec in zip(tensors, specs, strict=False):
        shape = (ctypes.c_int64 * max(len(spec.shape), 1))(*spec.shape)
        code, bits = _TYPES["uint8" if spec.dtype in _SMALL else spec.dtype]
        tensor.device_type, tensor.code, tensor.bits, tensor.ndim = 1, code, bits, len(spec.shape)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        shapes.append(shape)
    return tensors, shapes


def _run_of(calls: Any, instance: ctypes.c_void_p, inputs: Any, outputs: Any) -> Callable[[], int]:
    """A library's `tw_run` of these, which must live as long as it is used."""
    if not isinstance(calls, ctypes.CDLL):  # a library in an emulator
        return functools.partial(calls.tw_run, instance, inputs, outputs)
    addresses = (instance.value, ctypes.addressof(inputs), ctypes.addressof(outputs))
    return functools.partial(_RUN(("tw_run", calls)), *addresses)


def _point(tensor: _Tensor, array: Array | DeviceArray) -> Any:
    """Aims a C tensor at an array; what is returned must live as long as that is used."""
    if isinstance(array, DeviceArray):
        tensor.data, tensor.strides = array.address or None, None
        tensor.device_type, tensor.device_id = _CUDA, array.device
        return array
    tensor.device_type, tensor.device_id = _CPU, 0
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
    if array.dtype.name == spec.dtype != spec.carrier:  # ml_dtypes' own
        array = array.view(spec.numpy)
    if array.dtype != spec.numpy:
        raise InputError(f"input {spec.name!r} is {array.dtype}, not {spec.dtype}. Fix: {_how_to_fix(spec)}")
    if isinstance(spec, OpenSpec):
        if said := spec.misfit(array.shape):
            raise InputError(said)
    elif array.shape != spec.shape:
        raise InputError(
            f"input {spec.name!r} has shape {array.shape}. Fix: give {spec.shape}, or compile for that shape"
        )
    strided = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if strided else np.ascontiguousarray(array)


def _how_to_fix(spec: TensorSpec) -> str:
    if spec.dtype in _SMALL:
        return f"give its codes in uint8, one to a byte, or an array of ml_dtypes.{spec.dtype}"
    return f".astype({spec.numpy.name!r})"


def _converted(spec: TensorSpec, value: Any) -> Array:
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value, dtype=spec.numpy)
    except Exception as reason:  # DLPack's producers raise what they like
        raise InputError(
            f"input {spec.name!r} cannot be read as {spec}: {reason}. "
            "Fix: give a numpy array, or a detached tensor in host memory"
        ) from reason


def _on_gpu(what: str, spec: TensorSpec, value: Any, here: int) -> DeviceArray | None:
    """A tensor in a GPU's memory; None for all that is elsewhere.

    It may be used once what writes it is in the legacy default stream.

    `what` is how messages call it, `here` the model's GPU, where a tensor lies that does not say. DLPack is asked
    first: there the producer makes sure that its writes come before.
    """
    if isinstance(value, DeviceArray):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return None
    try:
        if hasattr(value, "__dlpack_device__"):
            kind, device = value.__dlpack_device__()
            return _from_dlpack(what, spec, value, int(device)) if int(kind) in (_CUDA, _CUDA_MANAGED) else None
        if hasattr(value, "__cuda_array_interface__"):
            return _from_interface(what, spec, value, here)
    except InputError:
        raise
    except Exception as reason:  # producers raise what they like
        raise InputError(
            f"{what} cannot be read as {spec}: {reason}. Fix: give a detached, contiguous tensor"
        ) from reason
    return None


def _is_on_gpu(value: Any) -> bool:
    """Whether it says that it is; no `resident` memory is of an input alone."""
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (_CUDA, _CUDA_MANAGED)
    return isinstance(value, DeviceArray) or hasattr(value, "__cuda_array_interface__")


_LEGACY_STREAM = 1
"""As DLPack and the CUDA array interface number it."""


def _from_dlpack(what: str, spec: TensorSpec, value: Any, device: int) -> DeviceArray:
    capsule = value.__dlpack__(stream=_LEGACY_STREAM)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    named = {codes: name for name, codes in _TYPES.items()}.get((tensor.code, tensor.bits), "another type")
    named = spec.dtype if spec.dtype in _SMALL and named == spec.carrier else named
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    _check_on_gpu(what, spec, named if tensor.lanes == 1 else "a vector type", shape, strides)
    return DeviceArray((tensor.data or 0) + tensor.byte_offset, device, spec, value, capsule)


def _from_interface(what: str, spec: TensorSpec, value: Any, here: int) -> DeviceArray:
    described = value.__cuda_array_interface__
    dtype = np.dtype(described["typestr"])
    strides = described.get("strides")
    if strides is not None:
        strides = tuple(stride // dtype.itemsize for stride in strides)
    name = spec.dtype if spec.dtype != spec.carrier and dtype == spec.numpy else dtype.name
    _check_on_gpu(what, spec, name, tuple(described["shape"]), strides)
    address, read_only = described["data"]
    if read_only and what.startswith("output"):
        raise InputError(f"{what} is read-only. Fix: give an array that can be written")
    if described.get("stream") not in (None, _LEGACY_STREAM):
        _wait_for_stream(described["stream"], here)
    return DeviceArray(address, here, spec, value)


def _wait_for_stream(stream: int, device: int) -> None:
    """Until what a producer has put into a stream of its own is done.

    Also on a thread in which no context is current.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    handle, context, left = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    code = driver.cuDeviceGet(ctypes.byref(handle), device) or driver.cuDevicePrimaryCtxRetain(
        ctypes.byref(context), handle
    )
    if not code:
        code = driver.cuCtxPushCurrent_v2(context)
        if not code:
            code = driver.cuStreamSynchronize(ctypes.c_void_p(stream))
            driver.cuCtxPopCurrent_v2(ctypes.byref(left))
        driver.cuDevicePrimaryCtxRelease_v2(handle)
    if code:
        raise InputError(f"the stream that writes a tensor failed (CUDA error {code}). Fix: look for the error there")


def _check_on_gpu(
    what: str, spec: TensorSpec, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    if dtype != spec.dtype or shape != spec.shape:
        how = f" as its codes in {spec.carrier}" if spec.dtype in _SMALL else ""
        raise InputError(f"{what} is {dtype}{list(shape)}. Fix: give {spec}{how}")
    if 0 in shape:  # whatever its strides say
        return
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent != 1 and stride != expected:
            raise InputError(f"{what} is on the GPU and not row-major. Fix: make it contiguous")
        expected *= extent


def _overlap(one: DeviceArray, other: DeviceArray) -> bool:
    return one.address < other.address + other.bytes and other.address < one.address + one.bytes


def _checked_output(spec: TensorSpec, array: Array) -> Array:
    """A preallocated output, as the array to fill. Raises InputError naming the output and the fix."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"output {spec.name!r} is a {type(array).__name__}. Fix: give a numpy array of {spec}")
    if array.dtype.name == spec.dtype != spec.carrier:
        array = array.view(spec.numpy)
    if array.dtype != spec.numpy or array.shape != spec.shape:
        raise InputError(f"output {spec.name!r} is {array.dtype}{list(array.shape)}. Fix: give {spec}")
    if not array.flags.writeable or not array.flags.aligned or any(stride % array.itemsize for stride in array.strides):
        raise InputError(f"output {spec.name!r} is read-only or misaligned. Fix: give an array of numpy.empty")
    return array


def _demand_apart(outputs: Iterable[tuple[str, Any]], inputs: Iterable[Any]) -> None:
    """Raises InputError for an output, beside its name, in memory of the host that an input may have too."""
    there = [(name, array) for name, array in outputs if isinstance(array, np.ndarray)]
    if not there:
        return
    shared = _shared([array for _, array in there], [one for one in inputs if isinstance(one, np.ndarray)])
    if shared is not None:
        name = next(name for name, array in there if array is shared)
        raise InputError(f"output {name!r} shares memory with an input. Fix: give an array of its own")


FEW_PAIRS = 8
"""Pairs of arrays that are compared one by one: that takes as long as to find where two arrays lie."""


def _may_fill(outputs: Collection[Array], inputs: Collection[Array]) -> bool:
    """Whether outputs can be written, and lie apart from the inputs as far as numpy's arrays know.

    Of two arrays without a base each has memory of its own, but for those that another library made so: where inputs
    are copied that does no harm.
    """
    if len(outputs) * len(inputs) > FEW_PAIRS:
        return all(one.flags.behaved for one in outputs) and _shared(outputs, inputs) is None
    for one in outputs:
        if not one.flags.behaved:
            return False
        for other in inputs:
            if one.base is None is other.base:
                if one is other:
                    return False
            elif np.may_share_memory(one, other):
                return False
    return True


def _shared(outputs: Collection[Array], inputs: Collection[Array]) -> Array | None:
    """The first of these outputs of which an address is between the first and the last one of an input; None: of none.

    It is what `np.may_share_memory` says of each pair. Where there are many, only arrays are compared that may lie in
    memory of the same array, each output with all inputs at once.
    """
    if len(outputs) * len(inputs) <= FEW_PAIRS:
        return next((one for one in outputs if any(np.may_share_memory(one, other) for other in inputs)), None)
    of_inputs, of_outputs = list(map(_owner, inputs)), list(map(_owner, outputs))
    both = {*of_inputs}.intersection(of_outputs)
    if 0 in of_inputs or 0 in of_outputs:
        both.update(of_inputs, of_outputs)
    taken = sorted(_addresses(one) for one, owner in zip(inputs, of_inputs, strict=True) if owner in both and one.size)
    begins = [begin for begin, _ in taken]
    ends = list(itertools.accumulate((end for _, end in taken), max))
    for one, owner in zip(outputs, of_outputs, strict=True):
        if owner in both and one.size:
            begin, end = _addresses(one)
            before = bisect.bisect_left(begins, end)  # inputs that begin before the output ends
            if before and ends[before - 1] > begin:
                return one
    return None


def _owner(array: Array) -> int:
    """What says in which array's memory an array lies; 0 for memory of something else."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array) if array.flags.owndata else 0


def _addresses(array: Array) -> tuple[int, int]:
    """Where an array's memory begins and ends."""
    ways = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    first: int = array.__array_interface__["data"][0]
    return first + sum(way for way in ways if way < 0), first + sum(way for way in ways if way > 0) + array.itemsize


def _returned(spec: TensorSpec, given: Mapping[str, Any], result: Any) -> Any:
    """The caller's own array where one was given."""
    array = given.get(spec.name)
    return result if array is None else array


def _beginning(whole: Array, shape: tuple[int, ...]) -> Array:
    """The part of an array that has this shape, in its memory."""
    places: Any = (*map(slice, shape), ...)
    part: Array = whole[places]
    return part


def _nothing(spec: TensorSpec) -> Array:
    """The smallest array of a spec."""
    return np.zeros(
        [0 if _is_open(axis) else extent for axis, extent in zip(spec.axes, spec.shape, strict=True)], spec.numpy
    )


def _aligned(spec: TensorSpec, make: Callable[..., Array] = np.empty) -> Array:
    size = math.prod(spec.shape) * spec.numpy.itemsize
    memory = make(size + ALIGNMENT, np.uint8)
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
    parser.add_argument("--plan", type=int, help="which of its plans (default: the one that suits these cores)")
    parser.add_argument("--pin", action="store_true", help="keep each lane on a core of its own")
    parser.add_argument("--binding", type=int, help="which of its bindings, from 1 (default: the first)")
    parser.add_argument("--device", type=int, default=0, help="which GPU, for a model that runs on one (default 0)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may have fewer letters than names have
    try:
        asked = {"device": options.device, "plan": options.plan, "pin": options.pin, "binding": options.binding}
        with Model(options.model, options.lanes, **asked) as model:
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
        "plan": str(model.plan),
        **({"binding": str(model.binding)} if len(model.bindings) > 1 else {}),
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


def _percentiles(bench: Mapping[str, Any]) -> str:
    ms = {key: f"{value * 1e3:.3f} ms" for key, value in bench.items() if isinstance(value, float)}
    return f"{ms['median']} median, {ms['min']} least, {ms['p10']} p10, {ms['p90']} p90, {ms['p99']} p99"


def _lines(done: Mapping[str, Any]) -> list[str]:
    lines = [str(done["model"]), f"  {done['plan']}"]
    lines += [f"  binding {done['binding']}"] if "binding" in done else []
    lines += [f"  input  {name!r}: {spec}" for name, spec in done["inputs"].items()]
    for name, about in done["outputs"].items():
        span = f"  {about['min']:.6g} .. {about['max']:.6g}" if "min" in about else ""
        lines.append(f"  output {name!r}: {about['dtype']}{about['shape']}{span}")
    if "bench" in done:
        b = done["bench"]
        lines.append(f"  latency {_percentiles(b)}")
        if "with_copies" in b:
            lines.append(f"  with copies from and to the host {_percentiles(b['with_copies'])}")
        lines.append(
            f"  {b['runs']} runs on {b['lanes']} lanes; "
            f"first run {b['first_run'] * 1e3:.3f} ms, load {b['load'] * 1e3:.3f} ms"
        )
    for row in sorted(done.get("profile", ()), key=lambda row: -row["seconds"]):
        lines.append(
            f"  {row['seconds'] * 1e6:10.1f} us {row['share']:6.1%}  {row['call']:4d} {row['family']}  {row['tile']}"
        )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
