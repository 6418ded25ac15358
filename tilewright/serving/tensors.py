"""Bodies of the Open Inference Protocol (KServe v2), with its extension for binary tensors, and numpy arrays."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import UsageError
from tilewright.loading import TensorSpec

Array = NDArray[Any]
DATATYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}
"""The protocol's name of each element type; those of 8 bits and less that it lacks are carried as UINT8."""
LENGTH = struct.Struct("<I")
"""In front of each element of binary BYTES."""
OPEN = -1
"""The size of an axis that has a range, in a model's metadata."""


@dataclass(frozen=True)
class Asked:
    """An inference request: what to run, and how the outputs are to be written.

    id       of the request, "" where it has none
    inputs   arrays by name
    outputs  whether each is to be binary, by name, in order; empty: all outputs
    binary   what holds for outputs that are not named
    """

    id: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool]
    binary: bool


def datatype(spec: TensorSpec) -> str:
    """The protocol's name of a tensor's element type."""
    return DATATYPES.get(spec.dtype, "UINT8")


def described(specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """A tensor in a model's metadata, from what it is at each of the model's bindings."""
    sizes = [
        {size if axis is None else OPEN for size, axis in zip(of_axis, axes, strict=True)}
        for of_axis, axes in zip(
            zip(*(spec.shape for spec in specs), strict=True),
            zip(*(spec.axes for spec in specs), strict=True),
            strict=True,
        )
    ]
    shape = [found.pop() if len(found) == 1 else OPEN for found in sizes]
    return {"name": specs[0].name, "datatype": datatype(specs[0]), "shape": shape}


def asked(body: bytes, header: int | None, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Asked:
    """A request's body.

    header  the length of the JSON in front of binary data (`Inference-Header-Content-Length`); None: all of it

    Raises `UsageError` for what is not such a body, or does not fit the model's tensors.
    """
    if header is not None and not 0 <= header <= len(body):
        raise UsageError(
            f"the JSON's length {header} is not within the body's {len(body)} bytes", fix="give its length"
        )
    try:
        plain = json.loads(body[:header])
    except ValueError as error:
        raise UsageError(f"the body is not JSON: {error}", fix="send the JSON of the Open Inference Protocol") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("inputs"), list):
        raise UsageError("the body has no list `inputs`", fix="give the tensors in `inputs`")
    binary = memoryview(body)[len(body) if header is None else header :]
    known, given = {spec.name: spec for spec in inputs}, {}
    for one in _tensors(plain["inputs"], known, "input"):
        array, binary = _array(known[one["name"]], one, binary)
        given[one["name"]] = array
    if missing := [name for name in known if name not in given]:
        raise UsageError(f"input {missing[0]!r} is missing", fix=f"give {', '.join(map(str, known.values()))}")
    if len(binary):
        raise UsageError(f"{len(binary)} bytes of binary data belong to no input", fix="give binary_data_size for each")
    by_default = bool(_parameters(plain).get("binary_data_output", False))
    wanted = _tensors(plain.get("outputs") or [], {spec.name: spec for spec in outputs}, "output")
    each = {one["name"]: bool(_parameters(one).get("binary_data", by_default)) for one in wanted}
    return Asked(str(plain.get("id", "")), given, each, by_default)


def _tensors(given: Any, known: Mapping[str, TensorSpec], kind: str) -> Iterable[Mapping[str, Any]]:
    if not isinstance(given, list):
        raise UsageError(f"{kind}s are no list", fix=f"give a list of {kind}s")
    for one in given:
        name = one.get("name") if isinstance(one, dict) else None
        if name not in known:
            raise UsageError(f"{name!r} is no {kind} of the model", fix=f"give one of {', '.join(known)}")
    return given


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = given.get("parameters") or {}
    return found if isinstance(found, dict) else {}


def _array(spec: TensorSpec, given: Mapping[str, Any], binary: memoryview) -> tuple[Array, memoryview]:
    """An input, and the binary data behind it."""
    name, shape, kind = spec.name, given.get("shape"), datatype(spec)
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise UsageError(f"input {name!r} has no shape", fix="give `shape` as a list of sizes")
    if given.get("datatype") != kind:
        raise UsageError(f"input {name!r} is {given.get('datatype')} and has to be {kind}", fix=f"send it as {kind}")
    count = _parameters(given).get("binary_data_size")
    try:
        if count is None:
            return _of_json(spec, given.get("data"), shape), binary
        if not isinstance(count, int) or not 0 <= count <= len(binary):
            raise ValueError(f"binary_data_size is {count}, and {len(binary)} bytes are left")
        return _of_bytes(spec, binary[:count]).reshape(shape), binary[count:]
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        fix = f"give {kind} values for the shape {shape}"
        raise UsageError(f"input {name!r} cannot be read: {error}", fix=fix) from None


def _of_json(spec: TensorSpec, data: Any, shape: Sequence[int]) -> Array:
    """Numbers as a list, flat or nested; bfloat16 as numbers too, which lose the bits that it has not."""
    if spec.dtype == "string":
        return np.array(data, dtype=object).reshape(shape)
    if spec.dtype == "bfloat16":
        bits = np.array(data, np.float32).reshape(shape).view(np.uint32)
        return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    # Integers beyond int64 are no array of integers by themselves.
    if spec.numpy.kind in "iub" and np.array(data).dtype.kind not in "iub" and not _are_whole(data):
        raise ValueError(f"its data are no {datatype(spec)}")
    return np.array(data, spec.numpy).reshape(shape)


def _are_whole(data: Any) -> bool:
    return all(isinstance(one, int) for one in np.array(data, object).ravel())


def _of_bytes(spec: TensorSpec, data: memoryview) -> Array:
    if spec.dtype != "string":
        return np.frombuffer(data, spec.numpy)
    words, at = [], 0
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size + length
        if at > len(data):
            raise ValueError("a string ends past its bytes")
        words.append(bytes(data[at - length : at]).decode())
    return np.array(words, dtype=object)


def answer(
    name: str, asked: Asked, outputs: Sequence[TensorSpec], found: Mapping[str, Array]
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON where binary data follow."""
    wanted = asked.outputs or {spec.name: asked.binary for spec in outputs if spec.name in found}
    known, tensors, behind = {spec.name: spec for spec in outputs}, [], []
    for output, is_binary in wanted.items():
        array, spec = found[output], known[output]
        one: dict[str, Any] = {"name": output, "datatype": datatype(spec), "shape": list(array.shape)}
        if is_binary:
            data = _to_bytes(spec, array)
            behind.append(data)
            one["parameters"] = {"binary_data_size": len(data)}
        else:
            one["data"] = _to_json(spec, array)
        tensors.append(one)
    plain = {"model_name": name, "model_version": "1", "outputs": tensors} | ({"id": asked.id} if asked.id else {})
    head = json.dumps(plain, separators=(",", ":")).encode()
    return b"".join((head, *behind)), len(head) if behind else None


def _to_json(spec: TensorSpec, array: Array) -> list[Any]:
    if spec.dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return list(array.ravel().tolist())


def _to_bytes(spec: TensorSpec, array: Array) -> bytes:
    if spec.dtype != "string":
        return np.ascontiguousarray(array).tobytes()
    words = [str(one).encode() for one in array.ravel()]
    return b"".join(LENGTH.pack(len(word)) + word for word in words)
