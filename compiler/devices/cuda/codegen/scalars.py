"""Scalar functions, casts and literals as CUDA C++: as in C, but that 16-bit floats are storage only.

A function of 16-bit floats is computed in fp32 and rounded, as `compiler.ir.arithmetic` means it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compiler.codegen import scalars as c_scalar
from compiler.codegen.expressions import Emitter
from compiler.codegen.scalars import C_TYPES, COMPARISONS, INFIX, Dialect
from compiler.codegen.writer import Writer
from compiler.ir.arithmetic import bounds
from compiler.ir.expr import FUNCTIONS, Apply, Cast, Const, Expr, Load, Position
from compiler.ir.index import Atom, Index, Indirect
from compiler.ir.small import BITWISE
from compiler.ir.tensor import DType

HALVES = (DType.F16, DType.BF16)
MOST_INT = 2**31 - 1
CUDA_TYPES: Mapping[DType, str] = {**C_TYPES, DType.F16: "tw_f16", DType.BF16: "tw_bf16"}


def literal(value: float | int | bool, dtype: DType) -> str:
    """A literal that has exactly this value; of a 16-bit float, its bits."""
    if dtype not in HALVES:
        return c_scalar.literal(value, dtype)
    with np.errstate(over="ignore"):
        bits = np.asarray(value, dtype.numpy).view(np.uint16)
    return f"{CUDA_TYPES[dtype]}{{{int(bits):#06x}}}"


def convert(arg: str, source: DType, target: DType) -> str:
    """A value of one dtype as another.

    bool is 0 or 1, floats are truncated to integers and rounded to shorter floats.
    """
    if source is target:
        return arg
    if source in HALVES:
        arg, source = f"tw_to_float({arg})", DType.F32
    if target in HALVES:
        arg = c_scalar.convert(arg, source, DType.F32) if source.is_small else arg
        return f"{CUDA_TYPES[target].replace('tw_', 'tw_to_')}((float)({arg}))"
    return c_scalar.convert(arg, source, target)


def cast(arg: str, expr: Cast) -> str:
    """A conversion; see `c_scalar.cast`."""
    source, target = expr.arg.dtype, expr.type
    if expr.rounding == BITWISE:
        return f"__builtin_bit_cast({CUDA_TYPES[target]}, {arg})"
    if source in HALVES and target.is_small:
        return c_scalar.cast(
            convert(arg, source, DType.F32), Cast(Const(0, DType.F32), target, expr.saturate, expr.rounding)
        )
    if source.is_small and target in HALVES and expr.saturate:
        return cast(convert(arg, source, DType.F32), Cast(Const(0, DType.F32), target, True))
    if source not in HALVES and target not in HALVES:
        return c_scalar.cast(arg, expr)
    if not expr.saturate or source is target or DType.BOOL in (source, target):
        return convert(arg, source, target)
    if source in HALVES:
        arg = convert(arg, source, DType.F32)
        source = DType.F32
    low, high = bounds(target)
    if target.is_float:
        limits = (c_scalar.literal(low, DType.F64), c_scalar.literal(high, DType.F64))
        return convert(f"tw_clamp({arg}, {', '.join(limits)})", DType.F64, target)
    ends = [c_scalar.literal(end, of) for of in (source, target) for end in (low, high)]
    return f"tw_saturate({CUDA_TYPES[target]}, {arg}, {', '.join(ends)})"


def apply(function: str, args: list[str], dtype: DType) -> str:
    """A scalar function on arguments of one dtype."""
    if function == "sigmoid" and dtype not in HALVES:
        return f"tw_sigmoid({args[0]})"
    if dtype not in HALVES:
        return c_scalar.apply(function, args, dtype)
    wide = apply(function, [convert(arg, dtype, DType.F32) for arg in args], DType.F32)
    return wide if FUNCTIONS[function].returns == "bool" else convert(wide, DType.F32, dtype)


class CudaEmitter(Emitter):
    """Writes expressions of one thread as CUDA C++; it has no vectors.

    `elements` are the dtypes in memory of slots whose elements are kept in another dtype than they are computed with:
    they are converted where they are loaded and stored. What is `held` is in the dtype of the arithmetic.

    Positions are computed in the integers that their axes are declared with; an index that is data in `int` if it fits.
    """

    dialect = Dialect(CUDA_TYPES, literal, convert, cast, apply)

    def __init__(
        self,
        writer: Writer,
        address: Callable[[str, tuple[Index, ...]], tuple[str, Index]],
        elements: Mapping[str, DType] | None = None,
    ) -> None:
        super().__init__(writer, address)
        self.elements = elements or {}
        self._is_wide = False

    def index(self, index: Index) -> str:
        """An index, in 64 bits wherever data decides in it and `int` does not hold all that is computed on the way."""
        outside, self._is_wide = self._is_wide, self._is_wide or index.magnitude > MOST_INT
        text = super().index(index)
        self._is_wide = outside
        return text

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Indirect) and not self._is_wide:
            return f"(int)({self.scalar(atom.expr)})"
        return super()._atom(atom)

    def condition(self, expr: Expr) -> str:
        """A condition as C; comparisons of positions as such, without values of a name and a dtype."""
        return self._comparison(expr) or self.scalar(expr)

    def _comparison(self, expr: Expr) -> str:
        """A comparison of positions and integer constants; "" for anything else."""
        if not isinstance(expr, Apply) or expr.function not in COMPARISONS:
            return ""
        sides = [self._number(arg) for arg in expr.args]
        return f"{sides[0]} {INFIX[expr.function]} {sides[1]}" if all(sides) else ""

    def _number(self, arg: Expr) -> str:
        if isinstance(arg, Position) and arg.dtype.is_integer:
            low, high = bounds(arg.dtype)
            return self.index(arg.index) if low <= arg.index.range[0] and arg.index.range[1] <= high else ""
        if isinstance(arg, Const) and arg.dtype.is_integer and abs(arg.value) <= MOST_INT:
            return str(int(arg.value))
        return ""

    def _scalar(self, expr: Expr) -> str:
        if isinstance(expr, Load) and self.elements.get(expr.slot, expr.dtype) is not expr.dtype:
            pointer, offset = self.address(expr.slot, expr.index)
            element = f"{pointer}[{self.index(offset)}]"
            return self._define(expr, CUDA_TYPES[expr.dtype], convert(element, self.elements[expr.slot], expr.dtype))
        if comparison := self._comparison(expr):
            return self._define(expr, CUDA_TYPES[expr.dtype], f"({comparison})")
        return super()._scalar(expr)

    def store(self, slot: str, index: tuple[Index, ...], value: str, dtype: DType = DType.F32) -> None:
        """Writes a value of `dtype` to an element of a slot, in the dtype that the slot has in memory."""
        super().store(slot, index, convert(value, dtype, self.elements.get(slot, dtype)), dtype)
