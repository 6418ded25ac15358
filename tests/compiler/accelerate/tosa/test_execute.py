"""TOSA's operators in numpy against the specification's pseudo-code, written out in Python's integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from compiler.accelerate.tosa.execute import (
    BILINEAR,
    DOUBLE_ROUND,
    NEAREST,
    PROPAGATE,
    SINGLE_ROUND,
    TosaError,
    read,
    scaled,
)
from compiler.accelerate.tosa.write import TosaWriter, to_bytes

RESCALE: dict[str, Any] = {"scale32": True, "per_channel": False, "input_unsigned": False, "output_unsigned": False}


def _one(
    kind: str, given: list[np.ndarray], constants: list[np.ndarray], shape: Any, dtype: str, **attributes: Any
) -> Any:
    """What a file of one operator makes of operands, constants after them; written and read again."""
    writer = TosaWriter()
    inputs = [writer.tensor(f"x{at}", one.shape, one.dtype.name) for at, one in enumerate(given)]
    names = [*inputs, *(writer.constant(one) for one in constants)]
    made = writer.operator(kind, names, "y", shape, dtype, **attributes)
    return read(to_bytes(writer.graph(inputs, [made]))).run(given)[0]


def _apply_scale_32(value: int, multiplier: int, shift: int, double: bool) -> int:
    rounds = 1 << (shift - 1)
    if double and shift > 31:
        rounds += 1 << 30 if value >= 0 else -(1 << 30)
    return (value * multiplier + rounds) >> shift


@pytest.mark.parametrize("double", [False, True])
def test_values_are_scaled_as_the_pseudo_code_says(double: bool) -> None:
    random = np.random.default_rng(0)
    shift = random.integers(2, 63, 4000)
    most = np.minimum(np.int64(1) << (shift - 1), 1 << 31)
    value = np.floor(random.uniform(-1, 1, 4000) * most).astype(np.int64)
    value[:50], value[50:100] = -most[:50], most[50:100] - 1
    multiplier = random.integers(0, 1 << 31, 4000)
    drawn = zip(value.tolist(), multiplier.tolist(), shift.tolist(), strict=True)
    wanted = [_apply_scale_32(*one, double) for one in drawn]
    assert scaled(value, multiplier, shift, double).tolist() == wanted


def test_what_the_specification_leaves_open_is_refused() -> None:
    for value, multiplier, shift in ((0, 1, 1), (0, 1, 63), (0, -1, 30), (8, 1, 4), (-9, 1, 4)):
        with pytest.raises(TosaError):
            scaled(np.array([value]), np.array([multiplier]), np.array([shift]), False)
    with pytest.raises(TosaError, match="exceeds int8"):
        _one("REDUCE_SUM", [np.full((2, 3), 100, np.int8)], [], (1, 3), "int8", axis=0)
    with pytest.raises(TosaError, match="declared"):
        _one("REDUCE_SUM", [np.zeros((2, 3), np.int32)], [], (2, 1), "int32", axis=0)
    pool = {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 0, 0), "nan_mode": PROPAGATE}
    with pytest.raises(TosaError, match="border"):
        _one("MAX_POOL2D", [np.zeros((1, 5, 4, 1), np.int8)], [], (1, 2, 2, 1), "int8", **pool)


@pytest.mark.parametrize("mode", [SINGLE_ROUND, DOUBLE_ROUND])
def test_a_rescale_saturates_and_has_a_multiplier_for_each_channel(mode: int) -> None:
    x = np.array([[-(1 << 20), 1000], [77, -1000], [1 << 20, 3]], np.int32)
    constants: list[Any] = [np.array([1 << 30, 3 << 29], np.int32), np.array([38, 34], np.int8), np.zeros(1, np.int32)]
    options = {**RESCALE, "per_channel": True, "rounding_mode": mode}
    found = _one("RESCALE", [x], [*constants, np.array([-5], np.int8)], x.shape, "int8", **options)
    assert found.shape == x.shape
    for (row, column), value in np.ndenumerate(x):
        made = _apply_scale_32(int(value), int(constants[0][column]), int(constants[1][column]), mode == DOUBLE_ROUND)
        assert found[row, column] == min(max(made - 5, -128), 127)


def test_tables_of_16_bits_are_interpolated() -> None:
    entries = np.random.default_rng(1).integers(-30000, 30000, 513).astype(np.int16)
    entries[1:] = np.clip(entries[1:], entries[:-1].astype(int) - 30000, entries[:-1].astype(int) + 30000)
    x = np.random.default_rng(2).integers(-32768, 32768, 500).astype(np.int16)
    x[:2] = -32768, 32767
    found = _one("TABLE", [x], [entries], x.shape, "int32")
    assert found.shape == x.shape
    for value, made in zip(x.tolist(), found.tolist(), strict=True):
        index, fraction = (value + 32768) >> 7, (value + 32768) & 0x7F
        base, after = int(entries[index]), int(entries[index + 1])
        assert made == (base << 7) + (after - base) * fraction


def test_an_average_is_over_what_lies_inside() -> None:
    x = np.random.default_rng(3).integers(-128, 128, (1, 5, 4, 2)).astype(np.int8)
    pool = {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1, 1, 0), "acc_type": 5}
    found = _one("AVG_POOL2D", [x], [np.array([7], np.int8), np.array([-3], np.int8)], (1, 3, 4, 2), "int8", **pool)
    assert found.shape == (1, 3, 4, 2)
    for (_, row, column, channel), made in np.ndenumerate(found):
        total = count = 0
        for at in range(6):
            i, j = 2 * row - 1 + at // 2, column - 1 + at % 2
            if 0 <= i < 5 and 0 <= j < 4:
                total, count = total + int(x[0, i, j, channel]) - 7, count + 1
        up = (count - 1).bit_length()
        scale = _apply_scale_32(total, (((1 << 30) + 1) << up) // count, 30 + up, False)
        assert made == min(max(scale - 3, -128), 127)


def _resized(x: np.ndarray, y: int, x_: int, channel: int, scale: Any, offset: Any, mode: int) -> int:
    """The pseudo-code of RESIZE for one element."""
    places = []
    for axis, at in enumerate((y, x_)):
        above, below = scale[2 * axis : 2 * axis + 2]
        place = at * below + offset[axis]
        low = math.floor(place / above)
        rest, size = place - low * above, x.shape[1 + axis]
        places.append((max(low, 0), min(low + 1, size - 1), rest, above))
    (y0, y1, dy, ny), (x0, x1, dx, nx) = places
    if mode == NEAREST:
        return int(x[0, y1 if 2 * dy >= ny else y0, x1 if 2 * dx >= nx else x0, channel])
    (a, b), (c, d) = ([int(x[0, i, j, channel]) for j in (x0, x1)] for i in (y0, y1))
    return int((a * (nx - dx) + b * dx) * (ny - dy) + (c * (nx - dx) + d * dx) * dy)


@pytest.mark.parametrize("mode", [NEAREST, BILINEAR])
def test_positions_of_a_resize_are_exact_fractions(mode: int) -> None:
    x = np.random.default_rng(4).integers(-128, 128, (1, 3, 5, 2)).astype(np.int8)
    for scale, offset, border in (
        ((4, 2, 6, 2), (-1, -2), (1, 2)),
        ((14, 6, 4, 10), (-4, -1), (4, 3)),
        ((6, 4, 2, 2), (0, 0), (0, 0)),
    ):
        last = [(x.shape[1 + at] - 1) * scale[2 * at] - offset[at] + border[at] for at in (0, 1)]
        shape = (1, last[0] // scale[1] + 1, last[1] // scale[3] + 1, 2)
        constants = [np.array(one, np.int64) for one in (scale, offset, border)]
        found = _one("RESIZE", [x], constants, shape, "int32" if mode == BILINEAR else "int8", mode=mode)
        wanted = [_resized(x, at[1], at[2], at[3], scale, offset, mode) for at in np.ndindex(shape)]
        assert found.reshape(-1).tolist() == wanted


def test_products_and_shifts_round_half_up() -> None:
    a, b = np.array([[3, -3, 1 << 15, -7]], np.int32), np.array([[1, 1, 1 << 15, 5]], np.int32)
    assert _one("MUL", [a, b], [np.array([1], np.int8)], a.shape, "int32").tolist() == [[2, -1, 1 << 29, -17]]
    bits = np.array([[1, 1, 3, 0]], np.int32)
    shifted = _one("ARITHMETIC_RIGHT_SHIFT", [a, bits], [], a.shape, "int32", round=True)
    assert shifted.tolist() == [[2, -1, 1 << 12, -7]]
    floor = _one("ARITHMETIC_RIGHT_SHIFT", [a, bits], [], a.shape, "int32", round=False)
    assert floor.tolist() == [[1, -2, 1 << 12, -7]]


def test_files_of_others_are_refused_by_name() -> None:
    with pytest.raises(TosaError, match="no TOSA file"):
        read(b"\0\0\0\0TFL3" + bytes(64))
    writer = TosaWriter()
    x = writer.tensor("x", (2,), "int8")
    y = writer.operator("CLAMP", [x], "y", (2,), "int8", min_val=b"\x80", max_val=b"\x05", nan_mode=PROPAGATE)
    data = to_bytes(writer.graph([x], [y]))
    assert read(data).run([np.array([-9, 9], np.int8)])[0].tolist() == [-9, 5]
    for length in range(8, len(data) - 8, 4):
        with pytest.raises(TosaError):
            read(data[:length]).run([np.zeros(2, np.int8)])
    with pytest.raises(TosaError, match="version"):
        read(_with_version(data, 9))


def _with_version(data: bytes, major: int) -> bytes:
    """The file as one of another version: the first field of the first table that its root names."""
    found = bytearray(data)
    root = int.from_bytes(data[:4], "little")
    fields = root - int.from_bytes(data[root : root + 4], "little", signed=True)
    place = root + int.from_bytes(data[fields + 4 : fields + 6], "little")
    version = place + int.from_bytes(data[place : place + 4], "little")
    fields = version - int.from_bytes(data[version : version + 4], "little", signed=True)
    found[version + int.from_bytes(data[fields + 4 : fields + 6], "little")] = major
    return bytes(found)
