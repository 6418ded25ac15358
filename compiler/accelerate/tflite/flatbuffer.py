"""TFLite files written with flatbuffers and numpy alone, by the numbers of TensorFlow's schema.fbs (version 3).

Activations are NHWC, weights of Conv2D OHWI (scales along axis 0), of DepthwiseConv2D 1HWO (axis 3), of FullyConnected
OI (axis 0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3

CUSTOM = 32
"""The code of operators that TFLite has not: here of one, TABLE, whose files are for no runtime of TFLite."""

TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}

_PADDED: list[Any] = [("padding", "b"), ("stride_w", "i"), ("stride_h", "i")]
_FUSED: Any = ("activation", "b")

OPERATORS: dict[str, tuple[int, int, int, list[Any]]] = {
    "ADD": (0, 2, 11, [_FUSED, ("pot_scale_int16", "?", True)]),
    "AVERAGE_POOL_2D": (1, 2, 5, [*_PADDED, ("filter_width", "i"), ("filter_height", "i"), _FUSED]),
    "CONCATENATION": (2, 2, 10, [("axis", "i"), _FUSED]),
    "CONV_2D": (3, 3, 1, [*_PADDED, _FUSED, ("dilation_w", "i", 1), ("dilation_h", "i", 1)]),
    "DEPTHWISE_CONV_2D": (
        4, 3, 2, [*_PADDED, ("depth_multiplier", "i"), _FUSED, ("dilation_w", "i", 1), ("dilation_h", "i", 1)]
    ),
    "DEPTH_TO_SPACE": (5, 2, 94, [("block_size", "i")]),
    "DEQUANTIZE": (6, 2, 38, []),
    "FULLY_CONNECTED": (9, 4, 8, [_FUSED, ("weights_format", "b"), ("keep_num_dims", "?", False)]),
    "LOGISTIC": (14, 2, 0, []),
    "MAX_POOL_2D": (17, 2, 5, [*_PADDED, ("filter_width", "i"), ("filter_height", "i"), _FUSED]),
    "MUL": (18, 2, 21, [_FUSED]),
    "RELU": (19, 2, 0, []),
    "RELU6": (21, 2, 0, []),
    "RESHAPE": (22, 1, 17, []),
    "RESIZE_BILINEAR": (23, 3, 15, [None, None, ("align_corners", "?", False), ("half_pixel_centers", "?", False)]),
    "SOFTMAX": (25, 2, 9, [("beta", "f")]),
    "TANH": (28, 2, 0, []),
    "TABLE": (CUSTOM, 1, 0, []),
    "PAD": (34, 2, 22, []),
    "GATHER": (36, 2, 23, [("axis", "i")]),
    "TRANSPOSE": (39, 2, 26, []),
    "MEAN": (40, 2, 27, [("keep_dims", "?", False)]),
    "SUB": (41, 3, 28, [_FUSED, ("pot_scale_int16", "?", True)]),
    "DIV": (42, 1, 29, [_FUSED]),
    "STRIDED_SLICE": (
        45, 2, 32,
        [(f"{what}_mask", "i") for what in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")],
    ),
    "EXP": (47, 2, 33, []),
    "SPLIT": (49, 2, 35, [("num_splits", "i")]),
    "PRELU": (54, 1, 0, []),
    "MAXIMUM": (55, 2, 39, []),
    "ARG_MAX": (56, 2, 40, [("output_type", "b")]),
    "MINIMUM": (57, 2, 39, []),
    "NEG": (59, 2, 42, []),
    "PADV2": (60, 2, 43, []),
    "SLICE": (65, 2, 48, []),
    "TRANSPOSE_CONV": (67, 3, 49, [*_PADDED, _FUSED]),
    "LOG": (73, 2, 0, []),
    "SUM": (74, 2, 27, [("keep_dims", "?", False)]),
    "SQRT": (75, 1, 0, []),
    "RSQRT": (76, 2, 0, []),
    "POW": (78, 1, 56, []),
    "RESIZE_NEAREST_NEIGHBOR": (97, 2, 74, [("align_corners", "?", False), ("half_pixel_centers", "?", False)]),
    "LEAKY_RELU": (98, 2, 75, [("alpha", "f")]),
    "SQUARED_DIFFERENCE": (99, 2, 76, []),
    "ABS": (101, 2, 78, []),
    "ELU": (111, 1, 0, []),
    "QUANTIZE": (114, 2, 89, []),
    "HARD_SWISH": (117, 1, 91, []),
    "BATCH_MATMUL": (126, 2, 101, [("adj_x", "?", False), ("adj_y", "?", False)]),
    "GELU": (150, 2, 116, [("approximate", "?", False)]),
}  # fmt: skip

_PREPEND = {"b": "PrependInt8Slot", "i": "PrependInt32Slot", "f": "PrependFloat32Slot", "?": "PrependBoolSlot"}
"""By name: builtin code, version that covers int8, number of the options table, its fields in slot order."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as the file has it: real = scale * (q - zero point); no scales where it is not quantised.

    data  the elements of a constant; None of one that is given or made
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...]
    zero: int
    data: np.ndarray | None


@dataclass(frozen=True)
class Step:
    """An operator by TFLite's name: numbers of the tensors that it reads and makes, and all of its options."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """What a file holds: tensors by number, operators in order, and the numbers of what is given and taken."""

    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class TfliteWriter:
    """Collects tensors and operators of one graph; `finish` gives the file, `program` what it holds."""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}  # by number of the tensor
        self._steps: list[Step] = []
        self._buffers: list[bytes] = [b""]  # buffer 0 is the empty one, by convention
        self._tensors: list[Any] = []  # (name, shape, type number, buffer number, scales, zero points, axis)
        self._operators: list[
            Any
        ] = []  # (code number, inputs, outputs, options table number, [(slot, kind, value, default)])
        self._codes: list[tuple[int, int]] = []  # (builtin code, version)

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        scale: Any = None,
        zero_point: int = 0,
        axis: int = 0,
        buffer: int = 0,
    ) -> int:
        """Declares a tensor; its number. scale: None (not quantised), a number, or one per channel of `axis`."""
        scales = [] if scale is None else [float(s) for s in np.atleast_1d(scale)]
        points = [int(z) for z in np.broadcast_to(np.atleast_1d(zero_point), (len(scales),))]
        self._tensors.append((name, tuple(map(int, shape)), TYPES[str(dtype)], buffer, scales, points, axis))
        return len(self._tensors) - 1

    def constant(self, name: str, array: np.ndarray, scale: Any = None, zero_point: int = 0, axis: int = 0) -> int:
        """Declares a tensor with fixed elements; its number."""
        array = np.ascontiguousarray(array)
        self._buffers.append(array.tobytes())
        number = self.tensor(name, array.shape, str(array.dtype), scale, zero_point, axis, len(self._buffers) - 1)
        self._arrays[number] = array
        return number

    def operator(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> None:
        """Appends an operator; `inputs` may hold -1 for an absent optional one."""
        builtin, default_version, table, fields = OPERATORS[kind]
        code = (builtin, default_version)
        if code not in self._codes:
            self._codes.append(code)
        values = []
        for slot, field in enumerate(fields):
            if field is not None:
                default = field[2] if len(field) > 2 else 0
                values.append((slot, field[1], options.pop(field[0], default), default))
        if options:
            raise TypeError(f"{kind} has no option {', '.join(options)}")
        names = (field[0] for field in fields if field is not None)
        stated = dict(zip(names, (value for _, _, value, _ in values), strict=True))
        self._steps.append(Step(kind, tuple(inputs), tuple(outputs), stated))
        self._operators.append((self._codes.index(code), list(inputs), list(outputs), table, values))

    def program(self, inputs: Sequence[int], outputs: Sequence[int]) -> Program:
        """What `finish` writes."""
        dtypes = {number: name for name, number in TYPES.items()}
        tensors = tuple(
            Tensor(name, shape, dtypes[dtype], tuple(scales), next(iter(points), 0), self._arrays.get(number))
            for number, (name, shape, dtype, _, scales, points, _) in enumerate(self._tensors)
        )
        return Program(tensors, tuple(self._steps), tuple(inputs), tuple(outputs))

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file, of which these tensors are given and taken."""
        b = import_module("flatbuffers").Builder(1024 + sum(map(len, self._buffers)))
        buffers = [self._buffer(b, data) for data in self._buffers]
        tensors = [self._tensor(b, *tensor) for tensor in self._tensors]
        operators = [self._operator(b, *operator) for operator in self._operators]
        codes = [put_table(b, [(0, "Int8", min(c, 127)), (2, "Int32", v), (3, "Int32", c)], 4) for c, v in self._codes]
        parts = [
            put_offsets(b, tensors), self._ints(b, inputs), self._ints(b, outputs), put_offsets(b, operators),
            b.CreateString("main"),
        ]  # fmt: skip
        graph = put_table(b, [(slot, "Offset", part) for slot, part in enumerate(parts)], 5)
        model = [
            (1, "Offset", put_offsets(b, codes)),
            (2, "Offset", put_offsets(b, [graph])),
            (3, "Offset", b.CreateString("tilewright")),
            (4, "Offset", put_offsets(b, buffers)),
        ]
        b.Finish(put_table(b, [(0, "Uint32", 3), *model], 5), file_identifier=b"TFL3")
        return bytes(b.Output())

    @staticmethod
    def _custom(b: Any, code: int) -> list[Any]:
        return [(1, "Offset", b.CreateString("TABLE"))] if code == CUSTOM else []

    @staticmethod
    def _ints(b: Any, values: Sequence[int]) -> Any:
        return b.CreateNumpyVector(np.asarray(values, "<i4"))

    def _buffer(self, b: Any, data: bytes) -> Any:
        if not data:
            return put_table(b, [], 1)
        b.StartVector(1, len(data), 16)  # the schema asks for 16-byte alignment of weights
        b.head -= len(data)
        b.Bytes[b.head : b.head + len(data)] = data
        return put_table(b, [(0, "Offset", b.EndVector())], 1)

    def _tensor(
        self,
        b: Any,
        name: str,
        shape: Sequence[int],
        dtype: int,
        buffer: int,
        scales: list[float],
        points: list[int],
        axis: int,
    ) -> Any:
        fields: list[Any] = []
        if scales:
            vectors = b.CreateNumpyVector(np.asarray(scales, "<f4")), b.CreateNumpyVector(np.asarray(points, "<i8"))
            fields = [(2, "Offset", vectors[0]), (3, "Offset", vectors[1]), (6, "Int32", axis)]
        quantisation = put_table(b, fields, 7)
        fields = [(0, "Offset", self._ints(b, shape)), (3, "Offset", b.CreateString(name)), (4, "Offset", quantisation)]
        return put_table(b, [*fields, (1, "Int8", dtype), (2, "Uint32", buffer)], 9)

    def _operator(
        self, b: Any, code: int, inputs: list[int], outputs: list[int], table: int, values: Sequence[Any]
    ) -> Any:
        options = None
        if table:
            b.StartObject(max((slot for slot, *_ in values), default=0) + 1)
            for slot, kind, value, default in values:
                # flatbuffers leaves out what equals the schema's default
                getattr(b, _PREPEND[kind])(slot, value, default)
            options = b.EndObject()
        fields = [(1, "Offset", self._ints(b, inputs)), (2, "Offset", self._ints(b, outputs)), (0, "Uint32", code)]
        if options is not None:
            fields += [(4, "Offset", options), (3, "Uint8", table)]
        return put_table(b, fields, 9)


def put_table(b: Any, fields: Sequence[Any], slots: int) -> Any:
    """Writes a table of so many fields, of which these (slot, kind, value) are not their defaults; its offset."""
    b.StartObject(slots)
    for slot, kind, value in fields:
        if kind == "Offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            getattr(b, f"Prepend{kind}Slot")(slot, value, 0)
    return b.EndObject()


def put_offsets(b: Any, made: Sequence[Any]) -> Any:
    """Writes a vector of offsets; its own."""
    b.StartVector(4, len(made), 4)
    for one in reversed(made):
        b.PrependUOffsetTRelative(one)
    return b.EndVector()
