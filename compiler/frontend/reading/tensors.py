"""TensorProto to numpy array.

Sizes are checked before anything is allocated, external data is mapped from inside one folder.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import TensorProto

from compiler.encodings.aside import aside
from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Foreign, quoted, text
from compiler.frontend.reading.strings import text_array
from compiler.ir.small import BITS, packed_bytes, unpacked
from compiler.ir.tensor import DType

DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: DType.F32,
    TensorProto.DOUBLE: DType.F64,
    TensorProto.FLOAT16: DType.F16,
    TensorProto.BFLOAT16: DType.BF16,
    TensorProto.INT8: DType.I8,
    TensorProto.INT16: DType.I16,
    TensorProto.INT32: DType.I32,
    TensorProto.INT64: DType.I64,
    TensorProto.UINT8: DType.U8,
    TensorProto.UINT16: DType.U16,
    TensorProto.UINT32: DType.U32,
    TensorProto.UINT64: DType.U64,
    TensorProto.BOOL: DType.BOOL,
    TensorProto.FLOAT8E4M3FN: DType.F8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: DType.F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: DType.F8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: DType.F8E5M2FNUZ,
    TensorProto.FLOAT8E8M0: DType.F8E8M0,
    TensorProto.FLOAT6E2M3: DType.F6E2M3,
    TensorProto.FLOAT6E3M2: DType.F6E3M2,
    TensorProto.FLOAT4E2M1: DType.F4E2M1,
    TensorProto.INT4: DType.I4,
    TensorProto.UINT4: DType.U4,
    TensorProto.INT2: DType.I2,
    TensorProto.UINT2: DType.U2,
}

CODES: dict[DType, int] = {dtype: code for code, dtype in DTYPES.items()}
"""ONNX type code of an element type."""

_TYPED_FIELDS = {
    "float_data": (DType.F32,),
    "double_data": (DType.F64,),
    "int64_data": (DType.I64,),
    "uint64_data": (DType.U32, DType.U64),
    "int32_data": (DType.I32, DType.I16, DType.I8, DType.U16, DType.U8, DType.BOOL, DType.F16, DType.BF16),
}
"""Where a tensor without raw bytes keeps its elements; 16-bit floats lie there as bit patterns."""

_FIELD_DTYPES = {"float_data": "f4", "double_data": "f8", "int64_data": "i8", "uint64_data": "u8", "int32_data": "i4"}

_PLAIN = re.compile(r"[\w./+-]{1,200}")
"""A path that may stand in a command which a message proposes."""


@dataclass(frozen=True)
class Source:
    """Where tensors come from: the file of the model (None: one given as bytes has no external data) and the limits.

    `data` names all files of external data that there are, by their paths in the model, or by their last names alone
    where the sender left out the folders; None: they lie beside the model, which is a user's of this machine.
    """

    file: Path | None
    limits: Limits
    data: Mapping[str, Path] | None = None
    taken: dict[str, str] = field(default_factory=dict)
    """Files of `data` that were looked for so far, with the path by which the model names each."""


def dtype_of(code: int, where: str) -> DType | Foreign:
    """The element type of an ONNX type code; Foreign for one that this compiler has no type for."""
    if code in DTYPES:
        return DTYPES[code]
    if code not in TensorProto.DataType.values() or code == TensorProto.UNDEFINED:
        raise MalformedModel(
            f"{where} has element type {code}, which ONNX does not define", fix="export the model again"
        )
    return Foreign(f"of element type {TensorProto.DataType.Name(code).lower()}")


def array_of(tensor: TensorProto, source: Source) -> np.ndarray | Foreign:
    """The tensor's elements, read-only; strings as objects.

    Raises MalformedModel where the declared size and the bytes disagree.
    """
    where = f"tensor {quoted(text(tensor.name))}"
    if tensor.data_type == TensorProto.STRING:
        return _strings(tensor, where, source.limits)
    dtype = dtype_of(tensor.data_type, where)
    if isinstance(dtype, Foreign):
        return dtype
    if tensor.HasField("segment"):
        raise MalformedModel(f"{where} is stored in segments", fix="save the model with whole tensors")
    shape = _shape(tensor, dtype, where, source.limits)
    count = math.prod(shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        flat = _elements(_external(tensor, packed_bytes(dtype, count), where, source), dtype, count)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
        _expect(len(raw), packed_bytes(dtype, count), "bytes", where, shape)
        flat = _elements(np.frombuffer(raw, dtype=np.uint8), dtype, count)
    elif dtype.is_small:
        flat = _small(tensor, dtype, where, shape)
    else:
        flat = _typed(tensor, dtype, where, shape)
    if dtype is DType.BOOL:
        flat = flat.view(np.uint8) != 0
    array = aside(flat.reshape(shape))
    array.flags.writeable = False
    return array


def _strings(tensor: TensorProto, where: str, limits: Limits) -> np.ndarray:
    """An array of str."""
    shape = _shape(tensor, DType.I64, where, limits)
    _expect(len(tensor.string_data), math.prod(shape), "strings", where, shape)
    return text_array([string(item) for item in tensor.string_data], shape)


def string(data: bytes) -> str:
    """A string of the file, of whatever bytes."""
    return data.decode("utf-8", errors="surrogateescape")


def _shape(tensor: TensorProto, dtype: DType, where: str, limits: Limits) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise MalformedModel(f"{where} has a negative dimension: {list(shape)[:8]}", fix="export the model again")
    check_size(shape, dtype, where, limits)
    return shape


def check_size(shape: tuple[int, ...], dtype: DType, where: str, limits: Limits) -> None:
    """Raises ModelTooLarge for more bytes than one tensor may have, or more axes than numpy takes."""
    if len(shape) > 32:
        raise ModelTooLarge(f"{where} has {len(shape)} axes, more than 32", fix="reshape it to fewer axes")
    size = math.prod(shape) * dtype.bytes
    if size > limits.tensor_bytes or any(dim > limits.tensor_bytes for dim in shape):
        raise ModelTooLarge(
            f"{where} of shape {list(shape)[:8]} takes {size} bytes, more than {limits.tensor_bytes}",
            fix="bind smaller input shapes or split the tensor",
        )


def _typed(tensor: TensorProto, dtype: DType, where: str, shape: tuple[int, ...]) -> np.ndarray:
    field = next(name for name, dtypes in _TYPED_FIELDS.items() if dtype in dtypes)
    elements = getattr(tensor, field)
    _expect(len(elements), math.prod(shape), "elements", where, shape)
    wide = np.array(elements, dtype=_FIELD_DTYPES[field])
    narrow = np.dtype(np.uint16) if dtype in (DType.F16, DType.BF16) else dtype.numpy
    flat = wide.astype(narrow)
    if wide.dtype != narrow and not np.array_equal(flat, wide):
        raise MalformedModel(f"{where} holds numbers outside {dtype}", fix="export the model again")
    return flat.view(dtype.numpy)


def _elements(octets: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Raw bytes as elements."""
    return unpacked(octets, dtype, count) if dtype.is_small else octets.view(dtype.numpy)


def _small(tensor: TensorProto, dtype: DType, where: str, shape: tuple[int, ...]) -> np.ndarray:
    """Elements that stand in `int32_data`: a packed byte in each number, but for floats of 6 and 8 bits a code."""
    count, codes = math.prod(shape), np.array(tensor.int32_data, dtype=np.int32)
    is_packed = BITS[dtype] < 6
    _expect(codes.size, packed_bytes(dtype, count) if is_packed else count, "numbers", where, shape)
    if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < (256 if is_packed else 1 << BITS[dtype]):
        raise MalformedModel(f"{where} holds numbers that are no codes of {dtype}", fix="export the model again")
    octets = codes.astype(np.uint8)
    return unpacked(octets, dtype, count) if is_packed else octets.view(dtype.numpy)


def _expect(found: int, expected: int, unit: str, where: str, shape: tuple[int, ...]) -> None:
    if found != expected:
        raise MalformedModel(
            f"{where} of shape {list(shape)[:8]} needs {expected} {unit} but has {found}",
            fix="save the model again; a file with external data must come with that data",
        )


def _external(tensor: TensorProto, size: int, where: str, source: Source) -> np.ndarray:
    """The tensor's bytes, mapped; `size` of them."""
    entries = {text(entry.key): text(entry.value) for entry in tensor.external_data}
    location = entries.get("location", "")
    if source.file is None:
        raise MalformedModel(
            f"{where} lies in another file, {quoted(location)}, and only the model's bytes were given",
            fix="give the path of the model with its data files in the same folder, or save it with the weights inside",
        )
    offset = _number(entries, "offset", 0, where)
    length = _number(entries, "length", size, where)
    _expect(length, size, "bytes", where, tuple(tensor.dims))
    if source.data is None:
        descriptor = _open_beside(source.file, location, where)
    else:
        descriptor = _open_named(source.data, source.taken, location, where)
    with os.fdopen(descriptor, "rb") as file:
        available = os.fstat(descriptor).st_size
        if offset + size > available:
            raise MalformedModel(
                f"{where} needs bytes {offset} to {offset + size} of {quoted(location)}, which has {available}",
                fix="copy or upload the data file again",
            )
        if size == 0:
            return np.empty(0, np.uint8)
        return np.asarray(np.memmap(file, dtype=np.uint8, mode="r", offset=offset, shape=(size,)))


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise MalformedModel(f"{where} has external {key} {quoted(text)}, not a number", fix="save the model again")
    return int(text)


def data_path(location: str) -> str:
    """The path that a location means, without `.`; one that was saved on Windows has backslashes."""
    return "/".join(part for part in location.replace("\\", "/").split("/") if part not in ("", "."))


def data_name(data: Mapping[str, Path], location: str) -> str:
    """Under which name the file at a location came: its path, or else its last name alone."""
    path = data_path(location)
    last = path.rpartition("/")[2]
    return path if path in data or last not in data else last


def _open_named(data: Mapping[str, Path], taken: dict[str, str], location: str, where: str) -> int:
    """A descriptor of the file that whoever calls the compiler, not the model, gave for a path."""
    name, path = data_name(data, location), data_path(location)
    shown = path if _PLAIN.fullmatch(path) else "PATH"
    sent = f"send it under the path that the model has for it: -F 'data=@FILE;filename={shown}'"
    if name not in data:
        known = ", ".join(sorted(data)[:5]) or "none"
        raise _refused(where, location, f"is none of the files that came with the model ({known})", sent)
    if taken.setdefault(name, path) != path:
        raise _refused(where, location, f"may be the file {name!r:.120} that came, or {taken[name]!r:.120} is", sent)
    try:
        return os.open(data[name], os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(where, location, f"cannot be opened ({error.strerror})") from None


def _open_beside(model: Path, location: str, where: str) -> int:
    """A descriptor of a regular file below the model's folder.

    Links are followed where they stay below it, or below the folder of the file that the model's own path leads to:
    caches keep models as links into a folder of blobs.
    """
    path = data_path(location)
    if location.startswith(("/", "\\")) or "\0" in location or ".." in path.split("/"):
        raise _refused(where, location, "is not a plain path inside the model's folder")
    if not path:
        raise _refused(where, location, "names no file")
    try:
        file = (model.parent / path).resolve(strict=True)
        if not any(file.is_relative_to(folder) for folder in (model.parent.resolve(), model.resolve().parent)):
            raise _refused(where, location, "is a link to what does not lie below the model's folder")
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError, RuntimeError) as error:  # the last: links in a circle
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
        raise _refused(where, location, f"cannot be opened ({reason})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(where, location, "is not a regular file (a pipe or device)")
    return descriptor


def _refused(where: str, location: str, why: str, fix: str = "put the data file beside it") -> MalformedModel:
    return MalformedModel(
        f"{where} has external data at {quoted(location)}, which {why}",
        fix=f"save the model with the weights inside, or {fix}",
    )
