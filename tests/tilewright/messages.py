"""Files that are whole messages of protobuf, as an ONNX file is, and hold whatever a test wants to send."""

from __future__ import annotations


def varint(number: int) -> bytes:
    low = number & 0x7F
    return bytes([low]) if number < 128 else bytes([low | 0x80]) + varint(number >> 7)


def message(content: bytes) -> bytes:
    """A message that holds these bytes in a field which ONNX does not have."""
    return varint(100 << 3 | 2) + varint(len(content)) + content
