"""Which files the tensors of an ONNX model name: its message is walked in protobuf's wire format, without onnx.

Numbers of fields are those of onnx.proto; the format is in protobuf's encoding specification.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

_WITHIN = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""Of each message the fields whose messages tensors lie in."""
_ENTRY, _LOCATION, _EXTERNAL = 13, 14, 1
"""Of a tensor: an entry of `external_data`, `data_location`, and its value for a tensor that lies in another file."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_Field = tuple[int, int, int, int]
"""Number, wire type, and where its content begins and ends."""


def external_data(path: Path) -> list[str]:
    """The locations that the tensors of an ONNX file name, in the order of their first mention.

    Only these fields are read of the file, which may be larger than memory. Raises `ValueError` for one that is no
    whole message of protobuf.
    """
    with path.open("rb") as file:
        if not path.stat().st_size:
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            found = dict.fromkeys(_location(view, *tensor) for tensor in _tensors(view))
    return [name for name in found if name]


def _tensors(view: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Where the messages of all tensors begin and end."""
    left = [("model", 0, len(view))]
    while left:
        message, at, end = left.pop()
        while at < end:
            number, wire, begin, at = _field(view, at, end)
            inner = _WITHIN[message].get(number) if wire == _BYTES else None
            if inner == "tensor":
                yield begin, at
            elif inner is not None:
                left.append((message, at, end))
                message, at, end = inner, begin, at


def _location(view: mmap.mmap, at: int, end: int) -> str:
    """The file that a tensor lies in; empty for one that lies in the model."""
    entries: dict[bytes, bytes] = {}
    is_outside = False
    while at < end:
        number, wire, begin, at = _field(view, at, end)
        if (number, wire) == (_ENTRY, _BYTES):
            pair = {1: b"", 2: b""}
            inside = begin
            while inside < at:
                which, form, first, inside = _field(view, inside, at)
                if which in pair and form == _BYTES:
                    pair[which] = view[first:inside]
            entries[pair[1]] = pair[2]
        elif (number, wire) == (_LOCATION, _VARINT):
            is_outside = _varint(view, begin, at)[0] == _EXTERNAL
    return entries.get(b"location", b"").decode() if is_outside else ""


def _field(view: mmap.mmap, at: int, end: int) -> _Field:
    tag, begin = _varint(view, at, end)
    number, wire = tag >> 3, tag & 7
    if wire == _BYTES:
        size, begin = _varint(view, begin, end)
        stop = begin + size
    elif wire == _VARINT:
        stop = _varint(view, begin, end)[1]
    elif wire in (_FIXED32, _FIXED64):
        stop = begin + (4 if wire == _FIXED32 else 8)
    else:
        raise ValueError(f"byte {at} begins no field")
    if not number:
        raise ValueError(f"byte {at} begins no field")
    if stop > end:
        raise ValueError(f"the field at byte {at} ends behind what it lies in")
    return number, wire, begin, stop


def _varint(view: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """A number of up to ten bytes, and where what follows begins."""
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"the number that ends at byte {at} is cut off, or too long")
