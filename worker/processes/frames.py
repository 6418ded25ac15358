"""Messages between a worker and the process that runs one job: a length, then that many bytes of JSON.

The reading end treats what arrives as hostile: a child that was taken over by its model may write anything.
A frame is `{"kind": ..., ...}`; the kinds of a job are `sandbox`, `event`, `report` and `problem`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
"""Of objects and lists in each other: whoever walks a message by recursion comes to its end."""
MAX_DIGITS = 300
"""Of a whole number: it stays within what a float can hold."""
_LENGTH = struct.Struct(">I")


class GarbledFrame(Exception):
    """The bytes on the pipe are not frames."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame. Raises `ValueError` for NaN or infinity (no JSON) or a message above `MAX_FRAME_BYTES`."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes is above the limit of {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def write(descriptor: int, message: Mapping[str, Any]) -> None:
    """Write one whole frame to a blocking descriptor."""
    rest = memoryview(encode(message))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Decoder:
    """Frames out of a byte stream that arrives in arbitrary pieces."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """Every frame completed by `piece`. Raises `GarbledFrame`; after that the decoder is of no more use."""
        self._held += piece
        start = 0
        while len(self._held) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held, start)
            if length > self._max:
                raise GarbledFrame(f"a frame claims {length} bytes, the limit is {self._max}")
            end = start + _LENGTH.size + length
            if len(self._held) < end:
                break
            body = bytes(self._held[start + _LENGTH.size : end])
            start = end
            yield _object(body)
        del self._held[:start]

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._held)


def _object(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body, parse_constant=_refuse_constant, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise GarbledFrame("a frame is not JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise GarbledFrame("a frame is not an object with a kind")
    _check_depth(message)
    return message


def _check_depth(message: dict[str, Any]) -> None:
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise GarbledFrame(f"a frame is nested deeper than {MAX_DEPTH} levels")


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(text)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
