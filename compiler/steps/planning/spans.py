"""When the tasks of a plan ran, as text that a record can carry: some three bytes a task."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from itertools import pairwise

from compiler.ir.plans.plan import Task

Span = tuple[float, float]
UNIT_S = 1e-8
"""In which times are kept; reading the clock takes longer."""
MOST_UNITS = 1 << 40
"""Of one number: three hours."""


def pack_spans(tasks: Sequence[Task], spans: Sequence[Span]) -> str:
    """`spans`, in seconds, for each of `tasks` when it began and ended.

    Two numbers for each: how long after the end of the task before on its lane it began, and how long it took; in units
    of UNIT_S, as variable-length bytes (LEB128, signs by zigzag), deflated, in base 64.
    """
    written = bytearray()
    free: dict[int, int] = {}
    for task, span in zip(tasks, spans, strict=True):
        begin, end = (round(seconds / UNIT_S) for seconds in span)
        for number in (begin - free.get(task.lane, 0), end - begin):
            _write(written, number)
        free[task.lane] = end
    return base64.b64encode(zlib.compress(bytes(written), 9)).decode("ascii")


def unpack_spans(tasks: Sequence[Task], text: object) -> tuple[Span, ...]:
    """What `pack_spans` was given, in whole units.

    Nothing for what cannot be that: text of another plan, damaged, or no text.
    """
    numbers = _read(text, 20 * len(tasks)) if isinstance(text, str) else None
    if numbers is None or len(numbers) != 2 * len(tasks):
        return ()
    found: list[Span] = []
    free: dict[int, int] = {}
    for task, gap, length in zip(tasks, numbers[::2], numbers[1::2], strict=True):
        begin = free.get(task.lane, 0) + gap
        if begin < 0 or length < 0:
            return ()
        free[task.lane] = begin + length
        found.append((begin * UNIT_S, (begin + length) * UNIT_S))
    return tuple(found)


def _write(written: bytearray, number: int) -> None:
    left = 2 * number if number >= 0 else -2 * number - 1
    while left > 127:
        written.append(left & 127 | 128)
        left >>= 7
    written.append(left)


def _read(text: str, most: int) -> list[int] | None:
    """The numbers, of at most so many bytes; None where these are not numbers to their end."""
    inflate = zlib.decompressobj()
    try:
        content = inflate.decompress(base64.b64decode(text, validate=True), most + 1)
    except (binascii.Error, ValueError, zlib.error):
        return None
    if len(content) > most or not inflate.eof or (content and content[-1] & 128):
        return None
    ends = [-1, *(at for at, byte in enumerate(content) if not byte & 128)]
    numbers = []
    for before, end in pairwise(ends):
        value = sum((byte & 127) << 7 * place for place, byte in enumerate(content[before + 1 : end + 1]))
        numbers.append(-(value + 1 >> 1) if value & 1 else value >> 1)
    return numbers if all(abs(number) <= MOST_UNITS for number in numbers) else None
