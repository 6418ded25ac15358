"""What an array is: element types, sizes that may be open, and memory for one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Of the outputs allocated here: a cache line, so that no vector store touches two."""
Array = NDArray[Any]
_TYPES = {
    "bool": (6, 8),
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "string": (0, 64),
}
"""DLPack's code and bits of each element type but the small ones, which are carried as uint8; strings as numbers."""
_SMALL = {
    "float8_e4m3fn": (0x00, 0x40, 0x80),
    "float8_e4m3fnuz": (0x00, 0x48, 0x80),
    "float8_e5m2": (0x00, 0x40, 0x80),
    "float8_e5m2fnuz": (0x00, 0x44, 0x80),
    "float8_e8m0fnu": (0x77, 0x87, 0x00),
    "float6_e2m3fn": (0x00, 0x20, 0x20),
    "float6_e3m2fn": (0x00, 0x20, 0x20),
    "float4_e2m1fn": (0x0, 0x8, 0x8),
    "int4": (0x0, 0x10, 0x0),
    "uint4": (0x0, 0x10, 0x0),
    "int2": (0x0, 0x4, 0x0),
    "uint2": (0x0, 0x4, 0x0),
}
"""Of each type of 8 bits and less, by ml_dtypes' name: the codes that random inputs have, from the first to before the
second (integers, floats below 2 or up to the greatest), and the bit of the sign, which is drawn apart."""


class TensorSpec(NamedTuple):
    """An input or output.

    A `bfloat16` tensor is given and returned as its bits, in uint16, and one of a type of 8 bits and less (float8_...,
    float6_..., float4_e2m1fn, int4, uint4, int2, uint2) as its codes in uint8, one to a byte, in the lowest bits.
    ml_dtypes' own arrays, which are that, are accepted. A `string` tensor is an array of str, and in the program the
    number of each string.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of the arrays that carry it."""
        return np.dtype(self.carrier)

    @property
    def carrier(self) -> str:
        """The name of that dtype, and of tensors elsewhere."""
        others = {"bfloat16": "uint16", "string": "int64"}
        return "uint8" if self.dtype in _SMALL else others.get(self.dtype, self.dtype)

    @property
    def axes(self) -> tuple[Size | None, ...]:
        """Of each axis the sizes that it may have; None where that is the one in `shape`."""
        return (None,) * len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Size(NamedTuple):
    """Of an axis that is open: `low` <= size <= `high`, a multiple of `step`, most usually `opt`.

    Axes of one `name` have one size.
    """

    name: str
    low: int
    opt: int
    high: int
    step: int = 1

    def has(self, size: int) -> bool:
        """Whether it may be this one."""
        return self.low <= size <= self.high and not size % self.step

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (f" by {self.step}" if self.step > 1 else "")


class OpenSpec(TensorSpec):
    """An input or output of which some `axes` have a size that each run chooses; `shape` has the largest.

    An output's sizes have no name: the run says them.
    """

    _axes: tuple[Size | None, ...]

    def __new__(cls, name: str, dtype: str, shape: tuple[int, ...], axes: tuple[Size | None, ...]) -> OpenSpec:
        """A spec of which each of `axes` is a named size or None for one that is fixed."""
        made = super().__new__(cls, name, dtype, shape)
        made._axes = axes
        return made

    @property
    def axes(self) -> tuple[Size | None, ...]:
        """The named size of each axis, None for one that is fixed."""
        return self._axes

    def __str__(self) -> str:
        shown = [
            str(dim) if axis is None else f"{axis.name}={axis}" if axis.name else str(axis)
            for dim, axis in zip(self.shape, self.axes, strict=True)
        ]
        return f"{self.dtype}[{', '.join(shown)}]"

    def at(self, sizes: Mapping[str, int]) -> TensorSpec:
        """An input at sizes of its dimensions, by name; at their opt where none is given."""
        shape = (
            dim if axis is None else sizes.get(axis.name, axis.opt)
            for dim, axis in zip(self.shape, self.axes, strict=True)
        )
        return TensorSpec(self.name, self.dtype, tuple(shape))

    def misfit(self, shape: tuple[int, ...]) -> str:
        """Why an input cannot have this shape; empty where it can."""
        if len(shape) != len(self.shape):
            return f"input {self.name!r} has shape {shape}. Fix: give {self}"
        for at, (size, most, axis) in enumerate(zip(shape, self.shape, self.axes, strict=True)):
            if axis is None and size != most:
                return f"input {self.name!r} has {size} along axis {at}. Fix: give {most}, or compile for that shape"
            if axis is not None and not axis.has(size):
                multiple = f", a multiple of {axis.step}" if axis.step > 1 else ""
                return (
                    f"input {self.name!r} has {size} along axis {at}, and its dimension {axis.name!r} has {axis}. "
                    f"Fix: give {axis.low} to {axis.high}{multiple}, or compile for a range that holds {size}"
                )
        return ""


def _is_open(axis: Size | None) -> bool:
    return axis is not None


def _beginning(whole: Array, shape: tuple[int, ...]) -> Array:
    """The part of an array that has this shape, in its memory."""
    places: Any = (*map(slice, shape), ...)
    part: Array = whole[places]
    return part


def _nothing(spec: TensorSpec) -> Array:
    """The smallest array of a spec."""
    return np.zeros(
        [0 if _is_open(axis) else extent for axis, extent in zip(spec.axes, spec.shape, strict=True)], spec.numpy
    )


def _aligned(spec: TensorSpec, make: Callable[..., Array] = np.empty) -> Array:
    size = math.prod(spec.shape) * spec.numpy.itemsize
    memory = make(size + ALIGNMENT, np.uint8)
    begin = -memory.__array_interface__["data"][0] % ALIGNMENT
    return np.ndarray(spec.shape, spec.numpy, memory, begin)


def _filled(array: Array, byte: int) -> Array:
    """A row-major array, once each of its bytes is this one."""
    array.reshape(-1).view(np.uint8)[...] = byte
    return array
