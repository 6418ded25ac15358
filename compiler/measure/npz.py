"""Arrays that go into and come out of a run, as .npz archives.

What is read may be hostile: nothing in it is unpickled or believed.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from compiler.errors import InputsError, Refusal, UnsupportedModel
from compiler.ir.small import BITS

MOST_MEMBERS = 4096
MOST_BYTES = 4 << 30
"""Of all members together, uncompressed."""
MOST_AT_ONCE = MOST_MEMBERS * 1024
"""Bytes that one read of the file may give."""
MOST_LISTED = 8
"""Bindings that an error names."""
MOST_HEADER_BYTES = 16 * 1024
PIECE = 1 << 20
STRING = "string"
"""The dtype of inputs that travel as numpy's arrays of text."""
MOST_STRING_BYTES = 4 << 16
"""Of the longest string, four for a character."""
SUFFIX = ".npy"
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What numpy writes. zipfile unpacks the others without a bound on what comes out."""


SMALL = {dtype.numpy.name: dtype for dtype in BITS}
"""The types of which each element travels as its bits in a byte, by their names."""


class Axis(Protocol):
    """Sizes that an axis may have: multiples of `step`, `low` <= size <= `high`, the same wherever the `name` is."""

    @property
    def name(self) -> str:
        """The dimension's name."""
        ...

    @property
    def low(self) -> int:
        """The smallest size."""
        ...

    @property
    def high(self) -> int:
        """The largest size."""
        ...

    @property
    def step(self) -> int:
        """Sizes are `low` and multiples of the step above it."""
        ...


class Spec(Protocol):
    """One input of a model."""

    @property
    def name(self) -> str:
        """The input's name."""
        ...

    @property
    def dtype(self) -> str:
        """The element type as numpy names it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes; where sizes are open, the largest."""
        ...

    @property
    def axes(self) -> Sequence[Axis | None]:
        """Of each axis the sizes that it may have; None where that is the one in `shape`."""
        ...

    @property
    def numpy(self) -> np.dtype[Any]:
        """Of the array that carries it; bfloat16 travels as its bits, in uint16, small types as theirs, in uint8."""
        ...


def read_inputs(path: Path, specs: Sequence[Spec]) -> list[np.ndarray]:
    """The inputs, in the order of `specs`, from an .npz archive whose arrays have their names.

    A dtype may differ from the model's where no kind is lost: within a kind (float64 for float32) if every value fits,
    or to one that holds all values of the other. Sizes, names, dtypes and shapes are checked before any array is read,
    so that no more memory is used than the model's own inputs take, and an array or two beside. Raises InputsError with
    every mismatch.
    """
    try:
        with _Bounded(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
            return _inputs(archive, specs)
    except (
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        UnicodeError,
    ) as reason:
        raise InputsError(f"the inputs are not a whole .npz archive: {reason}", fix=_HOW) from reason


def read_fitting(path: Path, bindings: Sequence[Sequence[Spec]]) -> tuple[int, list[np.ndarray]]:
    """The position of the least binding whose inputs these are, and the inputs as `read_inputs` gives them.

    That is one that has exactly their shapes, else the one with the least ranges that hold them. Raises InputsError
    where no binding has such inputs: with every mismatch to the one that they are nearest to.
    """
    refusals: list[InputsError] = []
    for at, specs in sorted(enumerate(bindings), key=_size_of):
        try:
            return at, read_inputs(path, specs)
        except InputsError as error:
            refusals.append(error)
    refused = min(refusals, key=lambda error: len(error.refusals))
    if len(bindings) == 1 or not refused.refusals:
        raise refused
    shapes = ["; ".join(map(_text, specs)) for specs in bindings]
    raise InputsError(
        f"the inputs fit none of the model's {len(bindings)} bindings",
        fix=f"give shapes of one of them: {' or '.join(f'({text})' for text in shapes[:MOST_LISTED])}",
        refusals=refused.refusals,
    )


def _size_of(binding: tuple[int, Sequence[Spec]]) -> tuple[int, bool]:
    """Elements of the largest inputs, and whether there are smaller ones."""
    _, specs = binding
    return sum(math.prod(spec.shape) for spec in specs), any(any(spec.axes) for spec in specs)


def write_outputs(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an uncompressed .npz archive, which appears at `path` whole. Equal arrays give equal bytes.

    Raises UnsupportedModel for a name that no archive can hold.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with zipfile.ZipFile(unfinished, "w") as archive:
            for name, array in arrays.items():
                if "\0" in name:
                    raise UnsupportedModel(f"output {name!r} cannot be in an archive", fix="rename it in the model")
                # A ZipInfo of its own: the time in it is that of the format's beginning, and not now.
                with archive.open(zipfile.ZipInfo(name + SUFFIX), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _plain(array), allow_pickle=False)
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def described(arrays: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Of each output dtype (`dtypes`, as the model calls them), shape, and SHA-256 of its elements."""
    return {
        name: {
            "dtype": dtypes[name],
            "shape": list(array.shape),
            "sha256": hashlib.sha256(_elements(array)).hexdigest(),
        }
        for name, array in arrays.items()
    }


def _elements(array: np.ndarray) -> bytes:
    """What is hashed of an output: strings with their lengths, in UTF-8."""
    if not array.dtype.hasobject:
        return array.tobytes()
    words = [str(item).encode("utf-8", "surrogateescape") for item in array.flat]
    return b"".join(len(word).to_bytes(8, "little") + word for word in words)


def _plain(array: np.ndarray) -> np.ndarray:
    """Row-major, strings as numpy's text: nothing in an archive is pickled."""
    if array.dtype.hasobject and all(isinstance(item, str) for item in array.flat):
        return array.astype(np.str_) if array.size else np.empty(array.shape, "U1")
    return array if array.dtype.hasobject else np.ascontiguousarray(array).reshape(array.shape)


_HOW = "write it with numpy.savez(path, **{name: array})"


class _Bounded(io.BufferedReader):
    """A file that gives only so much at once: zipfile reads the whole list of members, however long that says it is."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = MOST_AT_ONCE + 1
        content = super().read(min(size, MOST_AT_ONCE + 1))
        if len(content) > MOST_AT_ONCE:
            raise InputsError(f"the inputs' list of members takes more than {MOST_AT_ONCE} bytes", fix=_HOW)
        return content


def _inputs(archive: zipfile.ZipFile, specs: Sequence[Spec]) -> list[np.ndarray]:
    members = _members(archive)
    refusals = []
    wanted = {spec.name: spec for spec in specs}
    known = ", ".join(map(repr, wanted)) or "none"
    refusals += [
        Refusal(f"input {name!r} is unknown", f"leave it out; the model's inputs are {known}")
        for name in members
        if name not in wanted
    ]
    headers: dict[str, _Header] = {}
    for spec in specs:
        if spec.name not in members:
            refusals.append(Refusal(f"input {spec.name!r} is missing", f"add it as {_text(spec)}"))
            continue
        found = _header(archive, members[spec.name], spec)
        if isinstance(found, Refusal):
            refusals.append(found)
        else:
            headers[spec.name] = found
    _refuse(refusals or _contradictions(specs, headers))
    arrays = []
    for spec in specs:
        read = _cast(_array(archive, members[spec.name], headers[spec.name]), spec)
        if isinstance(read, Refusal):
            refusals.append(read)
        else:
            arrays.append(read)
    _refuse(refusals)
    return arrays


def _contradictions(specs: Sequence[Spec], headers: Mapping[str, _Header]) -> list[Refusal]:
    """One for each axis whose size is not that of another one of its name."""
    first: dict[str, tuple[int, str]] = {}
    found = []
    for spec in specs:
        for at, (axis, size) in enumerate(zip(spec.axes, headers[spec.name].shape, strict=True)):
            where = f"axis {at} of input {spec.name!r}"
            if axis is not None and (before := first.setdefault(axis.name, (size, where)))[0] != size:
                said = f"dimension {axis.name!r} has two sizes: {before[0]} in {before[1]}, {size} in {where}"
                found.append(Refusal(said, "give both inputs the same"))
    return found


def _refuse(refusals: Sequence[Refusal]) -> None:
    if refusals:
        raise InputsError("the inputs do not fit the model", fix="see each input", refusals=tuple(refusals))


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Arrays by name. Raises InputsError for an archive that is too large or holds other things than named arrays."""
    entries = archive.infolist()
    if len(entries) > MOST_MEMBERS:
        raise InputsError(f"the inputs have {len(entries)} members, at most {MOST_MEMBERS} are read", fix=_HOW)
    total = sum(entry.file_size for entry in entries)
    if total > MOST_BYTES:
        raise InputsError(
            f"the inputs unpack to {total} bytes, at most {MOST_BYTES} are read",
            fix="send only the arrays that the model takes, in its dtypes",
        )
    # zipfile cuts a name off at a NUL: what it then says is not what the archive's other readers see.
    odd = [
        Refusal(f"member {entry.orig_filename!r:.200} is not an array", _HOW)
        for entry in entries
        if "\0" in entry.orig_filename or not entry.filename.endswith(SUFFIX)
    ]
    odd += [
        Refusal(f"member {name!r:.200} is there {count} times", "send it once")
        for name, count in Counter(entry.filename for entry in entries).items()
        if count > 1
    ]
    odd += [
        Refusal(f"member {entry.filename!r:.200} is encrypted, or packed in an unusual way", _HOW)
        for entry in entries
        if entry.flag_bits & 1 or entry.compress_type not in COMPRESSIONS
    ]
    _refuse(odd)
    return {entry.filename.removesuffix(SUFFIX): entry for entry in entries}


@dataclass(frozen=True)
class _Header:
    """What an array says of itself, and where in the member its elements begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    columns_first: bool
    begin: int


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, spec: Spec) -> _Header | Refusal:
    """The header of an array that fits; nothing behind it is read."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with archive.open(entry) as member, warnings.catch_warnings():
            warnings.simplefilter("error")
            # numpy would read a header as long as it says it is.
            head = io.BytesIO(member.read(MOST_HEADER_BYTES))
            version = np.lib.format.read_magic(head)
            if version not in readers:
                raise ValueError(f"it has format version {version}")
            shape, columns_first, dtype = readers[version](head)
            begin = head.tell()
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, OverflowError, Warning) as reason:
        return Refusal(f"input {spec.name!r} is no array that can be read: {reason!s:.200}", _HOW)
    if dtype.hasobject:
        return Refusal(f"input {spec.name!r} holds pickled objects", f"send it as {_text(spec)}")
    if not _castable(dtype, spec):
        wanted = "U" if spec.dtype == STRING else spec.numpy.name
        return Refusal(f"input {spec.name!r} is {dtype}, not {spec.dtype}", f".astype({wanted!r})")
    if not _fits(shape, spec):
        return Refusal(
            f"input {spec.name!r} has shape {list(shape)!s:.200}, not {_shape_text(spec)}", "or compile for that shape"
        )
    data = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if begin + data != entry.file_size:
        return Refusal(f"input {spec.name!r} has {entry.file_size - begin} bytes of elements, not {data}", _HOW)
    return _Header(dtype, shape, columns_first, begin)


def _fits(shape: tuple[int, ...], spec: Spec) -> bool:
    return len(shape) == len(spec.shape) and all(
        size == dim if axis is None else axis.low <= size <= axis.high and not size % axis.step
        for size, dim, axis in zip(shape, spec.shape, spec.axes, strict=True)
    )


def _shape_text(spec: Spec) -> str:
    pairs = zip(spec.shape, spec.axes, strict=True)
    return f"[{', '.join(str(dim) if axis is None else _axis_text(axis) for dim, axis in pairs)}]"


def _axis_text(axis: Axis) -> str:
    return f"{axis.name}={axis.low}..{axis.high}" + (f" by {axis.step}" if axis.step > 1 else "")


def _castable(dtype: np.dtype[Any], spec: Spec) -> bool:
    if spec.dtype == STRING:
        return dtype.kind in "US" and 0 < dtype.itemsize <= MOST_STRING_BYTES
    if spec.dtype == "bfloat16":
        # numpy writes ml_dtypes' bfloat16, which has no meaning to it, as two bytes.
        return dtype.newbyteorder("=") == np.uint16 or dtype == np.dtype("V2")
    if spec.dtype in SMALL:
        return dtype == np.uint8 or dtype == np.dtype("V1")
    return dtype.kind == spec.numpy.kind or (dtype.kind in "biuf" and np.can_cast(dtype, spec.numpy, "safe"))


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, header: _Header) -> np.ndarray:
    """The elements, row-major, in their own dtype."""
    memory = np.empty(entry.file_size - header.begin, np.uint8)
    with archive.open(entry) as member:
        member.read(header.begin)
        at = 0
        # The read that reaches the end compares the checksum, also of an array without elements.
        while piece := member.read(PIECE):
            memory[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
    if at < len(memory):
        raise EOFError(f"{entry.filename!r:.200} ends too early")
    return memory.view(header.dtype).reshape(header.shape, order="F" if header.columns_first else "C")


def _strings(array: np.ndarray, spec: Spec) -> np.ndarray | Refusal:
    try:
        return np.char.decode(array, "utf-8").astype(object) if array.dtype.kind == "S" else array.astype(object)
    except ValueError as reason:  # bytes that are no UTF-8, numbers that are no characters
        return Refusal(f"input {spec.name!r} is no text: {reason!s:.200}", "send it as numpy's text, of dtype '<U...'")


def _cast(array: np.ndarray, spec: Spec) -> np.ndarray | Refusal:
    """In the model's dtype; refused where a value does not fit into it. Strings are objects."""
    if spec.dtype == STRING:
        return _strings(array, spec)
    if (spec.dtype == "bfloat16" or spec.dtype in SMALL) and array.dtype.kind == "V":
        array = array.view(spec.numpy)
    if array.dtype != spec.numpy:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(spec.numpy, order="C")
        if spec.numpy.kind in "iu" and not np.array_equal(cast, array):
            return Refusal(f"input {spec.name!r} has values that {spec.dtype} cannot hold", f"send it as {_text(spec)}")
        if spec.numpy.kind == "f" and np.any(np.isinf(cast) & ~np.isinf(array)):
            return Refusal(f"input {spec.name!r} has values that {spec.dtype} cannot hold", f"send it as {_text(spec)}")
        return cast
    return np.ascontiguousarray(array).reshape(array.shape)


def _text(spec: Spec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
