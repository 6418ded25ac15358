"""TensorProto to numpy array.

Sizes are checked before anything is allocated, external data is mapped from inside one folder.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto

from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.limits import Limits
from compiler.frontend.model import Foreign, quoted, text
from compiler.frontend.strings import text_array
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


@dataclass(frozen=True)
class Source:
    """Where tensors come from: the folder of external data (None: a model given as bytes has none) and the limits.

    `data` names all files of external data that there are, by their paths in the model; None: they lie in the folder.
    """

    folder: Path | None
    limits: Limits
    data: Mapping[str, Path] | None = None


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
    array = flat.reshape(shape)
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
    if source.folder is None:
        raise MalformedModel(
            f"{where} lies in another file, {quoted(location)}, and only the model's bytes were given",
            fix="give the path of the model with its data files beside it, or save it with the weights inside",
        )
    offset = _number(entries, "offset", 0, where)
    length = _number(entries, "length", size, where)
    _expect(length, size, "bytes", where, tuple(tensor.dims))
    if source.data is None:
        descriptor = _open_inside(source.folder, location, where)
    else:
        descriptor = _open_named(source.data, location, where)
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


def _open_named(data: Mapping[str, Path], location: str, where: str) -> int:
    """A descriptor of the file that whoever calls the compiler, not the model, gave for a path."""
    name = "/".join(part for part in location.split("/") if part not in ("", "."))
    if name not in data:
        known = ", ".join(sorted(data)[:5]) or "none"
        raise _refused(where, location, f"is none of the files that came with the model ({known})")
    try:
        return os.open(data[name], os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(where, location, f"cannot be opened ({error.strerror})") from None


def _open_inside(folder: Path, location: str, where: str) -> int:
    """A descriptor of a regular file below `folder`, opened step by step so that no link is followed on the way."""
    parts = location.split("/")
    if not location or location.startswith("/") or "\\" in location or "\0" in location or ".." in parts:
        raise _refused(where, location, "is not a plain path inside the model's folder")
    parts = [part for part in parts if part not in ("", ".")]
    if not parts:
        raise _refused(where, location, "names no file")
    try:
        descriptor = _descend(folder, parts)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be opened"
        raise _refused(where, location, f"cannot be opened without following links ({reason})") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _refused(where, location, "is not a regular file with one name (a link, pipe or device)")
    return descriptor


def _descend(folder: Path, parts: list[str]) -> int:
    """A descriptor of the file at `parts` below `folder`.

    Raises OSError, also for a folder that may not be looked into.
    """
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)


def _refused(where: str, location: str, why: str) -> MalformedModel:
    return MalformedModel(
        f"{where} has external data at {quoted(location)}, which {why}",
        fix="save the model with the weights inside, "
        "or put a plain copy of the data file beside it, named relative to its folder",
    )
