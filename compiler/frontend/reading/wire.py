"""A walk over the wire format before protobuf decodes it.

It says whether the file is whole and how much it will become.

Two bytes of file make a whole message in memory, so the number of messages and fields is bounded here, from the bytes
alone; a cut-off file is distinguished from another kind of file, with the position where it stops making sense. An
entry of a list of numbers takes an eighth of a message's memory, and a forest of decision trees has millions: these
have a bound of their own, and are passed over many at a time.
Source of the format: protobuf's encoding specification.
"""

from __future__ import annotations

import re
from functools import cache

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]

from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.reading.limits import Limits

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_FORM = {VARINT: rb"[\x80-\xff]{0,9}[\x00-\x7f]", FIXED64: rb"[\x00-\xff]{8}", FIXED32: rb"[\x00-\xff]{4}"}
"""What follows the tag of a number."""
_WIRES = {
    FieldDescriptor.TYPE_INT32: VARINT,
    FieldDescriptor.TYPE_INT64: VARINT,
    FieldDescriptor.TYPE_UINT64: VARINT,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
}
_CONTINUED = bytes(range(128, 256))
"""Bytes of a varint that another one follows."""

_TRUNCATED_FIX = "copy or upload the file again; the tool that wrote it may have run out of disk"


@cache
def _submessages(descriptor: Descriptor) -> dict[int, Descriptor]:
    """Field number to message type, for the fields that hold messages."""
    return {f.number: f.message_type for f in descriptor.fields if f.type == FieldDescriptor.TYPE_MESSAGE}


@cache
def _lists(descriptor: Descriptor) -> dict[int, re.Pattern[bytes]]:
    """Tag to the pattern of up to a million successive entries, for lists of numbers that are written one by one.

    Tags of one byte only, as those of attributes are. A number with another wire type is an unknown field of protobuf,
    which takes more memory, and is none of these.
    """
    found = {}
    for field in descriptor.fields:
        wire = _WIRES.get(field.type)
        tag = field.number << 3 | (wire or 0)
        if wire is not None and field.is_repeated and tag < 128:
            found[tag] = re.compile(b"(?:" + re.escape(bytes([tag])) + _FORM[wire] + b"){1,1000000}+")
    return found


def _entries(run: bytes, wire: int) -> int:
    """How many numbers, each after its tag, a match of `_lists` holds."""
    if wire == VARINT:
        return len(run.translate(None, _CONTINUED)) // 2  # the tag, and the last byte of the number
    return len(run) // (5 if wire == FIXED32 else 9)


def walk(data: bytes, limits: Limits) -> None:
    """Raises MalformedModel unless `data` is a whole protobuf message.

    Raises ModelTooLarge past `fields`, `numbers`, `nodes` or `depth`. Successive entries of a list of numbers are one
    field.
    """
    position, fields, entries, nodes = 0, 0, 0, 0
    ends: list[int] = [len(data)]
    kinds: list[Descriptor] = [onnx.ModelProto.DESCRIPTOR]
    while ends:
        if position >= ends[-1]:
            ends.pop()
            kinds.pop()
            continue
        fields += 1
        if fields > limits.fields:
            raise ModelTooLarge(
                f"the file holds more than {limits.fields} protobuf fields",
                fix="split the model or remove unused nodes",
            )
        pattern = _lists(kinds[-1]).get(data[position])
        run = pattern.match(data, position, ends[-1]) if pattern else None
        if run is not None:
            entries += _entries(run.group(), data[position] & 7)
            if entries > limits.numbers:
                raise ModelTooLarge(
                    f"the lists of numbers in the file's attributes have more than {limits.numbers} entries",
                    fix="store large tables as tensors, or export a smaller ensemble",
                )
            position = run.end()
            continue
        start = position
        tag, position = _varint(data, position, ends[-1])
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _not_protobuf(data, start)
        if wire == BYTES:
            length, position = _varint(data, position, ends[-1])
            if position + length > ends[-1]:
                raise _overrun(data, start, length, ends)
            inner = _submessages(kinds[-1]).get(number)
            if inner is None:
                position += length
                continue
            nodes += inner is onnx.NodeProto.DESCRIPTOR
            if nodes > limits.nodes:
                raise ModelTooLarge(
                    f"the file holds more than {limits.nodes} nodes", fix="simplify the model, or split it"
                )
            if len(ends) >= limits.depth:
                raise ModelTooLarge(
                    f"subgraphs are nested deeper than {limits.depth // 3} levels",
                    fix="flatten nested If and Loop bodies",
                )
            ends.append(position + length)
            kinds.append(inner)
        elif wire == VARINT:
            _, position = _varint(data, position, ends[-1])
        elif wire in (FIXED32, FIXED64):
            position += 4 if wire == FIXED32 else 8
            if position > ends[-1]:
                raise _overrun(data, start, 4 if wire == FIXED32 else 8, ends)
        else:
            raise _not_protobuf(data, start)


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Value and position after it."""
    if position < end and data[position] < 128:
        return data[position], position + 1
    value = 0
    for index in range(10):
        if position + index >= end:
            raise MalformedModel(f"the file ends or a field breaks off at byte {position + index}", fix=_TRUNCATED_FIX)
        byte = data[position + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise _not_protobuf(data, position)


def _overrun(data: bytes, start: int, length: int, ends: list[int]) -> MalformedModel:
    if start == 0 or length > 2**31:
        return _not_protobuf(data, start)
    if len(ends) == 1 or ends[-1] == len(data):
        left = len(data) - start
        return MalformedModel(
            f"the file is truncated: a field of {length} bytes starts at byte {start}, {left} bytes before the end",
            fix=_TRUNCATED_FIX,
        )
    return MalformedModel(f"a field at byte {start} is longer than the message around it", fix=_TRUNCATED_FIX)


_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive (a PyTorch .pt file or a package?)"),
    (b"\x89HDF", "an HDF5 file (Keras?)"),
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"{", "JSON text"),
    (b"<", "HTML or XML text"),
)


def _not_protobuf(data: bytes, position: int) -> MalformedModel:
    kind = next((words for signature, words in _SIGNATURES if data.startswith(signature)), "")
    return MalformedModel(
        f"this is not an ONNX file: it looks like {kind}"
        if kind
        else f"this is not an ONNX file: no protobuf at byte {position}",
        fix="export the network to ONNX (torch.onnx.export, tf2onnx, ...) and send that file",
    )
