"""A TOSA file evaluated in numpy, by the pseudo-code of the TOSA specification 1.0. It travels in the artifact.

Integers alone are here, and the operators that `compiler.accelerate.tosa.lower` writes. What the pseudo-code requires
of values (REQUIRE) is checked: beyond it the specification leaves results open. The numbers of operators and fields are
those of the specification's `tosa.fbs`; the attribute of an operator has its operator's number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

VERSION = (1, 0, 0)
DTYPES = {"int8": 3, "int16": 4, "int32": 5}
SINGLE_ROUND, DOUBLE_ROUND = 1, 3
NEAREST, BILINEAR = 1, 2
PROPAGATE = 1

_WINDOW = (("pad", "ints"), ("stride", "ints"), ("dilation", "ints"), ("local_bound", "bool"), ("acc_type", "uint"))
OPERATORS: Mapping[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    "AVG_POOL2D": (2, (("kernel", "ints"), ("stride", "ints"), ("pad", "ints"), ("acc_type", "uint"))),
    "CONV2D": (3, _WINDOW),
    "DEPTHWISE_CONV2D": (5, _WINDOW),
    "MATMUL": (7, ()),
    "MAX_POOL2D": (8, (("kernel", "ints"), ("stride", "ints"), ("pad", "ints"), ("nan_mode", "uint"))),
    "TRANSPOSE_CONV2D": (
        10,
        (("out_pad", "ints"), ("stride", "ints"), ("local_bound", "bool"), ("acc_type", "uint")),
    ),
    "CLAMP": (11, (("min_val", "bytes"), ("max_val", "bytes"), ("nan_mode", "uint"))),
    "ADD": (15, ()),
    "ARITHMETIC_RIGHT_SHIFT": (16, (("round", "bool"),)),
    "LOGICAL_LEFT_SHIFT": (22, ()),
    "MINIMUM": (27, (("nan_mode", "uint"),)),
    "MUL": (28, ()),
    "SUB": (30, ()),
    "TABLE": (31, ()),
    "CLZ": (35, ()),
    "REDUCE_MAX": (51, (("axis", "int"), ("nan_mode", "uint"))),
    "REDUCE_SUM": (54, (("axis", "int"),)),
    "CONCAT": (55, (("axis", "int"),)),
    "PAD": (56, ()),
    "RESHAPE": (57, ()),
    "SLICE": (59, ()),
    "TRANSPOSE": (61, (("perms", "ints"),)),
    "RESIZE": (64, (("mode", "uint"),)),
    "RESCALE": (
        66,
        (
            ("scale32", "bool"),
            ("rounding_mode", "uint"),
            ("per_channel", "bool"),
            ("input_unsigned", "bool"),
            ("output_unsigned", "bool"),
        ),
    ),
    "CONST": (67, ()),
    "CONST_SHAPE": (75, ()),
}
"""By name: the number, and the fields of the attribute in the order of their slots."""


class TosaError(Exception):
    """A file that is none of these, or values for which the specification leaves the result open."""


class Tensor(NamedTuple):
    """A tensor; `data` are the elements of a constant. Shapes are tensors of int64 too."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None


class Operator(NamedTuple):
    """An operator, with the names of the tensors and shapes that it reads and makes."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


class Graph(NamedTuple):
    """What a file holds, operators in order."""

    tensors: Mapping[str, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def values(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The elements of every tensor by name, for those of the inputs. Raises TosaError."""
        found = dict(given)
        for one in self.operators:
            out = self.tensors[one.outputs[0]]
            if one.kind in ("CONST", "CONST_SHAPE"):
                assert out.data is not None
                found[out.name] = out.data
                continue
            made = KERNELS[one.kind](one.attributes, [found[name] for name in one.inputs], out)
            if made.shape != out.shape:
                raise TosaError(f"{one.kind} {out.name!r:.100} makes {made.shape} where {out.shape} is declared")
            found[out.name] = _within(made, out)
        return found

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, for the inputs, both in the file's order."""
        found = self.values(dict(zip(self.inputs, arrays, strict=True)))
        return [found[name] for name in self.outputs]


def _within(made: np.ndarray, out: Tensor) -> np.ndarray:
    """As the declared type. Raises TosaError for what it cannot hold."""
    ends = np.iinfo(out.dtype)
    if made.size and (int(made.min()) < ends.min or int(made.max()) > ends.max):
        raise TosaError(f"{out.name!r:.100} exceeds {out.dtype}")
    return np.ascontiguousarray(made, out.dtype)


class _Table:
    """A table of a flatbuffer: fields by slot."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.fields = at - struct.unpack_from("<i", data, at)[0]
        self.size = struct.unpack_from("<H", data, self.fields)[0]

    def place(self, slot: int) -> int | None:
        """Where a field lies; None where it has its default."""
        entry = 4 + 2 * slot
        offset = struct.unpack_from("<H", self.data, self.fields + entry)[0] if entry < self.size else 0
        return self.at + offset if offset else None

    def number(self, slot: int, kind: str, default: int = 0) -> int:
        place = self.place(slot)
        return default if place is None else int(struct.unpack_from(f"<{kind}", self.data, place)[0])

    def _vector(self, slot: int) -> tuple[int, int]:
        """Where the elements of a vector lie, and how many there are."""
        place = self.place(slot)
        if place is None:
            return 0, 0
        start = place + struct.unpack_from("<I", self.data, place)[0]
        return start + 4, struct.unpack_from("<I", self.data, start)[0]

    def array(self, slot: int, dtype: str) -> np.ndarray:
        start, count = self._vector(slot)
        return np.frombuffer(self.data, dtype, count, start)

    def text(self, slot: int) -> str:
        return self.array(slot, "u1").tobytes().decode()

    def table(self, slot: int) -> _Table | None:
        place = self.place(slot)
        return None if place is None else self.follow(place)

    def tables(self, slot: int) -> list[_Table]:
        start, count = self._vector(slot)
        return [self.follow(start + 4 * at) for at in range(count)]

    def texts(self, slot: int) -> tuple[str, ...]:
        start, count = self._vector(slot)
        found = []
        for at in range(start, start + 4 * count, 4):
            here = at + struct.unpack_from("<I", self.data, at)[0]
            found.append(self.data[here + 4 : here + 4 + struct.unpack_from("<I", self.data, here)[0]].decode())
        return tuple(found)

    def follow(self, place: int) -> _Table:
        return _Table(self.data, place + struct.unpack_from("<I", self.data, place)[0])


def is_tosa(data: bytes) -> bool:
    """Whether a file says that it is one."""
    return data[4:8] == b"TOSA"


def read(data: bytes) -> Graph:
    """The one block of a file.

    Raises TosaError for one that is damaged or of another version, and for operators that are not here.
    """
    if not is_tosa(data):
        raise TosaError("this is no TOSA file")
    try:
        return _read(data)
    except (struct.error, IndexError, KeyError, ValueError) as reason:
        raise TosaError(f"the file is damaged: {reason}") from reason


def _read(data: bytes) -> Graph:
    root = _Table(data, struct.unpack_from("<I", data, 0)[0])
    version = root.table(0)
    stated = tuple(version.number(slot, "i", -1) for slot in range(3)) if version else ()
    if stated != VERSION:
        raise TosaError(f"the file is of version {stated}, and {VERSION} is read")
    (block,) = root.tables(1)[0].tables(1)
    names = {number: name for name, number in DTYPES.items()}
    tensors = {}
    for one in block.tables(2):
        shape, dtype = tuple(one.array(1, "<i4").tolist()), names[one.number(2, "I")]
        stored = one.array(3, "u1")
        elements = np.frombuffer(stored.tobytes(), dtype).reshape(shape) if stored.size else None
        tensors[one.text(0)] = Tensor(one.text(0), shape, dtype, elements)
    for one in block.tables(5):
        sizes = np.frombuffer(one.array(2, "u1").tobytes(), "<i8")
        tensors[one.text(0)] = Tensor(one.text(0), sizes.shape, "int64", sizes)
    kinds = {number: name for name, (number, _) in OPERATORS.items()}
    operators = []
    for one in block.tables(1):
        if (kind := kinds.get(one.number(0, "I"))) is None:
            raise TosaError(f"operator {one.number(0, 'I')} is not known here")
        if (attribute := one.table(2)) is None:
            raise TosaError(f"{kind} has no attribute")
        attributes = {name: _field(attribute, slot, type) for slot, (name, type) in enumerate(OPERATORS[kind][1])}
        operators.append(Operator(kind, one.texts(3), one.texts(4), attributes))
    return Graph(tensors, tuple(operators), block.texts(3), block.texts(4))


def _field(table: _Table, slot: int, type: str) -> Any:
    if type == "ints":
        return tuple(table.array(slot, "<i4").tolist())
    if type == "bytes":
        return table.array(slot, "u1").tobytes()
    return bool(table.number(slot, "B")) if type == "bool" else table.number(slot, "I" if type == "uint" else "i")


Kernel = Callable[[Mapping[str, Any], Sequence[np.ndarray], Tensor], np.ndarray]


def scaled(value: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, double: bool) -> np.ndarray:
    """The specification's `apply_scale_32`. Raises TosaError for a value beyond the shift."""
    value, multiplier, shift = (np.asarray(one, np.int64) for one in (value, multiplier, shift))
    one = np.int64(1)
    if multiplier.min() < 0 or shift.min() < 2 or shift.max() > 62:
        raise TosaError("a multiplier is below 0, or a shift not within 2 and 62")
    most = one << (shift - 1)
    if ((value < -most) | (value >= most)).any():
        raise TosaError("a value is larger than its shift permits")
    nudge = np.where(shift > 31, np.where(value >= 0, one << 30, -(one << 30)), 0) if double else np.int64(0)
    return np.asarray((value * multiplier + most + nudge) >> shift)


def rescale(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """In another scale and type, saturated; per channel along the last axis."""
    x, multiplier, shift, input_zp, output_zp = inputs
    less = x.astype(np.int64) - int(input_zp[0])
    made = scaled(less, multiplier, shift, attributes["rounding_mode"] == DOUBLE_ROUND) + int(output_zp[0])
    ends = np.iinfo(out.dtype)
    return np.asarray(np.clip(made, ends.min, ends.max))


def _windows(x: np.ndarray, kernel: Sequence[int], attributes: Mapping[str, Any], fill: int) -> np.ndarray:
    """N, OH, OW, C, kh, kw: under each position of the result the elements of its window."""
    top, bottom, left, right = attributes["pad"]
    dilation = attributes.get("dilation", (1, 1))
    strides, spans = attributes["stride"], [(size - 1) * by + 1 for size, by in zip(kernel, dilation, strict=True)]
    x = np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=fill)
    if any((size - span) % by for size, span, by in zip(x.shape[1:3], spans, strides, strict=True)):
        raise TosaError("windows do not reach the border")
    found = np.lib.stride_tricks.sliding_window_view(x, spans, (1, 2))
    return np.asarray(found[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]])


def _sums(equation: str, *arrays: np.ndarray) -> np.ndarray:
    """Exact sums of products of bytes: in float64, whose integers reach 2^53."""
    found = np.einsum(equation, *(one.astype(np.float64) for one in arrays), optimize=True)
    return np.asarray(np.rint(found), np.int64)


def _less(array: np.ndarray, zero: np.ndarray) -> np.ndarray:
    return np.asarray(array.astype(np.int64) - int(zero[0]))


def _bit_length(x: np.ndarray) -> np.ndarray:
    """Of numbers below 2^53: the exponent that `frexp` gives, exact since they are floats too."""
    return np.asarray(np.frexp(x.astype(np.float64))[1], np.int64)


def conv2d(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Weights OC, KH, KW, IC."""
    x, weight, bias, input_zp, weight_zp = inputs
    windows = _windows(_less(x, input_zp), weight.shape[1:3], attributes, 0)
    return np.asarray(_sums("nhwcij,oijc->nhwo", windows, _less(weight, weight_zp)) + bias)


def depthwise_conv2d(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Weights KH, KW, C, M: M results of each of C channels lie next to each other."""
    x, weight, bias, input_zp, weight_zp = inputs
    windows = _windows(_less(x, input_zp), weight.shape[:2], attributes, 0)
    sums = _sums("nhwcij,ijcm->nhwcm", windows, _less(weight, weight_zp))
    return np.asarray(sums.reshape(*sums.shape[:3], -1) + bias)


def transpose_conv2d(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Weights OC, KH, KW, IC."""
    x, weight, bias, input_zp, weight_zp = inputs
    less, filters = _less(x, input_zp), _less(weight, weight_zp)
    (h, w), (kh, kw), strides = x.shape[1:3], weight.shape[1:3], attributes["stride"]
    top, bottom, left, right = attributes["out_pad"]
    if min(top, bottom, left, right) < 0:
        raise TosaError("a negative out_pad is not evaluated here")
    sums = np.zeros(out.shape, np.int64)
    for row in range(kh):
        for column in range(kw):
            rows = slice(top + row, top + row + (h - 1) * strides[0] + 1, strides[0])
            columns = slice(left + column, left + column + (w - 1) * strides[1] + 1, strides[1])
            sums[:, rows, columns] += _sums("nhwc,oc->nhwo", less, filters[:, row, column])
    return np.asarray(sums + bias)


def matmul(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """N, H, C by N, C, W."""
    a, b, a_zp, b_zp = inputs
    return _sums("nhc,ncw->nhw", _less(a, a_zp), _less(b, b_zp))


def max_pool2d(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Of what lies inside."""
    return np.asarray(_windows(inputs[0], attributes["kernel"], attributes, -128).max((-1, -2)))


def avg_pool2d(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """The sum times a reciprocal of how many lie inside, rounded once."""
    x, input_zp, output_zp = inputs
    less = _less(x, input_zp)
    sums = _windows(less, attributes["kernel"], attributes, 0).sum((-1, -2))
    counts = _windows(np.ones(x.shape, np.int64), attributes["kernel"], attributes, 0).sum((-1, -2))
    up = _bit_length(counts - 1)
    multiplier = (((np.int64(1) << 30) + 1) << up) // counts
    return np.asarray(np.clip(scaled(sums, multiplier, 30 + up, False) + int(output_zp[0]), -128, 127))


def clamp(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Between two ends in the type of the operand."""
    low, high = (np.frombuffer(attributes[end], out.dtype)[0] for end in ("min_val", "max_val"))
    return np.asarray(np.clip(inputs[0], low, high))


def arithmetic_right_shift(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Floor, or half up with `round`. Raises TosaError for a shift that 32 bits do not have."""
    value, bits = inputs[0].astype(np.int64), inputs[1].astype(np.int64)
    if bits.min() < 0 or bits.max() > 31:
        raise TosaError("a shift is not within 0 and 31")
    half = np.where(bits > 0, (np.int64(1) << bits) >> 1, 0) if attributes["round"] else 0
    return np.asarray((value + half) >> bits)


def mul(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Of 32 bits the product shifted right, half up; of fewer without a shift."""
    a, b, shift = inputs
    product, bits = a.astype(np.int64) * b, int(shift[0])
    return np.asarray((product + (1 << (bits - 1)) >> bits) if bits else product)


def table(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """256 entries for bytes; 513 for 16 bits, with seven bits of interpolation between them."""
    x, entries = inputs[0].astype(np.int64), inputs[1].astype(np.int64)
    if inputs[0].dtype == np.int8:
        return np.asarray(entries[x + 128])
    index, fraction = (x + 32768) >> 7, (x + 32768) & 127
    return np.asarray((entries[index] << 7) + (entries[index + 1] - entries[index]) * fraction)


def pad(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """With a given number."""
    return np.pad(inputs[0], inputs[1].reshape(-1, 2).tolist(), constant_values=int(inputs[2][0]))


def slices(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """From a start, so many."""
    x, starts, sizes = inputs
    ends = zip(starts.tolist(), sizes.tolist(), strict=True)
    return np.asarray(x[tuple(slice(start, start + size) for start, size in ends)])


def resize(attributes: Mapping[str, Any], inputs: Sequence[np.ndarray], out: Tensor) -> np.ndarray:
    """Of height and width; bilinear results carry the product of both scales' numerators."""
    x, scale, offset, border = inputs[0].astype(np.int64), *(one.tolist() for one in inputs[1:])
    found = x
    for axis in (0, 1):
        size, (above, below) = x.shape[1 + axis], scale[2 * axis : 2 * axis + 2]
        count = (size - 1) * above - offset[axis] + border[axis]
        if count % below:
            raise TosaError("a size is no multiple of the scale")
        at = np.arange(count // below + 1) * below + offset[axis]
        low, rest = at // above, at % above
        first, second = (np.clip(one, 0, size - 1) for one in (low, low + 1))
        weight = rest.reshape([-1 if one == axis + 1 else 1 for one in range(4)])
        if attributes["mode"] == NEAREST:
            found = found.take(np.where(rest * 2 >= above, second, first), axis + 1)
        else:
            found = found.take(first, axis + 1) * (above - weight) + found.take(second, axis + 1) * weight
    return found


KERNELS: Mapping[str, Kernel] = {
    "ADD": lambda attributes, inputs, out: inputs[0].astype(np.int64) + inputs[1],
    "ARITHMETIC_RIGHT_SHIFT": arithmetic_right_shift,
    "AVG_POOL2D": avg_pool2d,
    "CLAMP": clamp,
    "CLZ": lambda attributes, inputs, out: 32 - _bit_length(inputs[0].astype(np.int64) & 0xFFFFFFFF),
    "CONCAT": lambda attributes, inputs, out: np.concatenate(inputs, attributes["axis"]),
    "CONV2D": conv2d,
    "DEPTHWISE_CONV2D": depthwise_conv2d,
    "LOGICAL_LEFT_SHIFT": lambda attributes, inputs, out: (inputs[0] << inputs[1]).astype(np.int32),
    "MATMUL": matmul,
    "MAX_POOL2D": max_pool2d,
    "MINIMUM": lambda attributes, inputs, out: np.minimum(inputs[0], inputs[1]),
    "MUL": mul,
    "PAD": pad,
    "REDUCE_MAX": lambda attributes, inputs, out: inputs[0].max(attributes["axis"], keepdims=True),
    "REDUCE_SUM": lambda attributes, inputs, out: inputs[0].sum(attributes["axis"], keepdims=True, dtype=np.int64),
    "RESCALE": rescale,
    "RESHAPE": lambda attributes, inputs, out: inputs[0].reshape(inputs[1].tolist()),
    "RESIZE": resize,
    "SLICE": slices,
    "SUB": lambda attributes, inputs, out: inputs[0].astype(np.int64) - inputs[1],
    "TABLE": table,
    "TRANSPOSE": lambda attributes, inputs, out: inputs[0].transpose(attributes["perms"]),
    "TRANSPOSE_CONV2D": transpose_conv2d,
}
