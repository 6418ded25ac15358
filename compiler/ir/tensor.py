"""Element types, dimensions, tensor types and layouts."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import ml_dtypes
import numpy as np

from compiler.errors import OpenDimension


class DType(Enum):
    """Element type. The value is the name used in text forms, records and manifests."""

    BOOL = "bool"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F6E2M3 = "f6e2m3"
    F6E3M2 = "f6e3m2"
    F4E2M1 = "f4e2m1"
    I4 = "i4"
    U4 = "u4"
    I2 = "i2"
    U2 = "u2"

    @cached_property
    def numpy(self) -> np.dtype:
        """The numpy type that holds such elements; those of the small types come from ml_dtypes."""
        return _NUMPY[self]

    @cached_property
    def bytes(self) -> int:
        """Of one element in memory, where small ones have a byte each."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers, the small types included."""
        return self in _FLOATS

    @property
    def is_small(self) -> bool:
        """Whether it only stores numbers (`compiler.ir.small`): nothing is computed in it."""
        return self in _SMALL

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; bool is none."""
        return not self.is_float and self is not DType.BOOL

    @property
    def is_signed(self) -> bool:
        """Whether elements may be negative."""
        return self.value[0] in "ifb" and self is not DType.BOOL

    @staticmethod
    def of(dtype: np.dtype | type) -> DType:
        """The DType of a numpy dtype. Raises KeyError for one that has none (strings, complex)."""
        return _FROM_NUMPY[np.dtype(dtype)]

    def __str__(self) -> str:
        return self.value


_NUMPY: dict[DType, np.dtype] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
    DType.F8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.F8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    DType.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.F8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    DType.F8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    DType.F6E2M3: np.dtype(ml_dtypes.float6_e2m3fn),
    DType.F6E3M2: np.dtype(ml_dtypes.float6_e3m2fn),
    DType.F4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    DType.I4: np.dtype(ml_dtypes.int4),
    DType.U4: np.dtype(ml_dtypes.uint4),
    DType.I2: np.dtype(ml_dtypes.int2),
    DType.U2: np.dtype(ml_dtypes.uint2),
}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items()}
_SMALL = frozenset(dtype for dtype in DType if re.match("f[468]e|[iu][24]$", dtype.value))
_FLOATS = frozenset(dtype for dtype in DType if dtype.value[0] == "f" or dtype is DType.BF16)


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, repr=False)
class Symbol:
    """A dimension known only at run time, `low <= value <= high`; `high` is the capacity that buffers reserve."""

    name: str
    low: int
    high: int

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        name = self.name if _WORD.fullmatch(self.name) else json.dumps(self.name)
        return f"{name}:{self.low}..{self.high}"


Dim = int | Symbol
Shape = tuple[Dim, ...]


def static(shape: Shape) -> tuple[int, ...]:
    """The extents of a shape, or of a part of one, that must be known.

    Raises VerifyError, which names the symbol, where one is not.
    """
    for axis, dim in enumerate(shape):
        if isinstance(dim, Symbol):
            raise OpenDimension(
                f"axis {axis} of [{', '.join(map(str, shape))}] is the symbol {dim}, where a number is needed"
            )
    return tuple(dim for dim in shape if isinstance(dim, int))


def extent(dim: Dim) -> int:
    """A dimension that must be known. Raises VerifyError, which names the symbol, where it is not."""
    return static((dim,))[0]


def at_most(one: Dim, other: Dim) -> bool:
    """Whether a dimension is no larger than another whatever the symbols are.

    A symbol is the same wherever it stands.
    """
    if one == other:
        return True
    return (one if isinstance(one, int) else one.high) <= (other if isinstance(other, int) else other.low)


def broadcast(*shapes: Shape) -> Shape | None:
    """The shape that numpy's rules give several tensors; None where they have none for every value of the symbols.

    A symbol fits itself and 1: nothing is known of it beside other numbers and other symbols.
    """
    found: list[Dim] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for place, dim in enumerate(shape, len(found) - len(shape)):
            if found[place] == 1:
                found[place] = dim
            elif dim not in (1, found[place]):
                return None
    return tuple(found)


@dataclass(frozen=True)
class TensorType:
    """Element type and logical shape.

    `shape` may hold symbols: what binds, infers, checks and prints types reads it. `dims` is for those that cannot do
    with a symbol (kernels, schedules, generated code): it refuses one, as do `elements` and `bytes`. What only has to
    be large enough for every value of the symbols, such as a limit on sizes, asks for `capacity`.
    """

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of a static type. Raises VerifyError, which names the dimension, where the type has a symbol."""
        return static(self.shape)

    @property
    def capacity(self) -> tuple[int, ...]:
        """The extents that hold the tensor whatever its symbols are: each counts as its `high`."""
        return tuple(dim if isinstance(dim, int) else dim.high for dim in self.shape)

    @property
    def elements(self) -> int:
        """How many elements a static type has. Raises VerifyError as `dims` does."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Of all elements of a static type, each in its own dtype. Raises VerifyError as `dims` does."""
        return self.elements * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Layout:
    """A map from logical to physical indices: split some axes, permute, pad.

    `dims` lists the physical dimensions, outermost first, as (axis, block): block 0 is a whole axis or the outer part
    of a split one; block b > 0 is the inner part, of extent b. NCHW16c is ((0,0), (1,0), (2,0), (3,0), (1,16)); NHWC is
    ((0,0), (2,0), (3,0), (1,0)). An axis that its block does not divide is padded up; `fill` says what the padding
    holds: "zero" may be relied on, "any" may not.
    """

    dims: tuple[tuple[int, int], ...]
    fill: str = "any"

    @staticmethod
    def plain(rank: int) -> Layout:
        """Row-major."""
        return Layout(tuple((axis, 0) for axis in range(rank)))

    @staticmethod
    def channels_last(rank: int) -> Layout:
        """N, spatial axes, C: axis 1 innermost."""
        return Layout(((0, 0), *((axis, 0) for axis in range(2, rank)), (1, 0)))

    @property
    def rank(self) -> int:
        """How many axes the logical tensor has, blocks of an axis not counted."""
        return sum(1 for _, block in self.dims if block == 0)

    @property
    def is_plain(self) -> bool:
        """Whether elements are in row-major order of the logical tensor."""
        return self.dims == Layout.plain(self.rank).dims

    def block_of(self, axis: int) -> int:
        """The inner extent of a split axis, 0 for a whole one."""
        return max(block for a, block in self.dims if a == axis)

    def physical(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Physical extents of a tensor with logical extents `dims`."""
        extents = []
        for axis, block in self.dims:
            inner = self.block_of(axis)
            extents.append(block or (-(-dims[axis] // inner) if inner else dims[axis]))
        return tuple(extents)

    def verify(self, rank: int) -> None:
        """Raises ValueError unless every axis of a rank-`rank` tensor appears whole or as an outer and inner part."""
        outer = sorted(axis for axis, block in self.dims if block == 0)
        inner = sorted(axis for axis, block in self.dims if block > 0)
        if outer != list(range(rank)) or len(set(inner)) != len(inner) or not set(inner) <= set(outer):
            raise ValueError(f"layout {self} does not cover the {rank} axes of its tensor once each")
        if self.fill not in ("any", "zero"):
            raise ValueError(f"layout {self} has unknown fill {self.fill!r}")

    def __str__(self) -> str:
        if self.is_plain and self.fill == "any":
            return "plain"
        text = " ".join(f"{axis}" if not block else f"{axis}%{block}" for axis, block in self.dims)
        return f"<{text}{' zero' if self.fill == 'zero' else ''}>"
