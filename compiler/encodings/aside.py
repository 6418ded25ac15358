"""Large constants are kept in files without a name, which the system may take out of memory while nobody reads them.

A model's weights become floats when it is loaded, several times the file's size where they were of few bits. Steps look
at one of them at a time.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np

Octets = bytes | memoryview
"""Bytes that are read: in memory, or where they lie in a file."""
LEAST_BYTES = 1 << 20
"""Of what is worth a file."""


def aside(array: np.ndarray) -> np.ndarray:
    """An array with the same elements, read-only, in a file of the temporary folder that goes when the array does.

    One that is small, repeats its elements, or lies in a file is given back as it is, and so is any other where the
    folder has no room.
    """
    if array.nbytes < LEAST_BYTES or 0 in array.strides or array.dtype.hasobject or _mapping(array) is not None:
        return array
    try:
        content = _in_a_file([np.ascontiguousarray(array).reshape(-1).view(np.uint8).data])
    except OSError:
        return array
    return np.frombuffer(content, np.uint8).view(array.dtype).reshape(array.shape)


def together(pieces: Sequence[Octets]) -> Octets:
    """Pieces behind each other, in a file like that of an array if they are large and there is room."""
    if sum(map(len, pieces)) >= LEAST_BYTES:
        with suppress(OSError):
            return memoryview(_in_a_file(pieces))
    return b"".join(pieces)


def _in_a_file(pieces: Iterable[Octets]) -> mmap.mmap:
    """Raises OSError where they cannot be written, or are of no byte."""
    with tempfile.TemporaryFile(prefix="tilewright-") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def give_back() -> None:
    """Gives memory that was freed back to the system, of which the C library keeps much after large arrays."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapped file that the elements lie in."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None
