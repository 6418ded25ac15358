"""Scalar functions, casts and literals as C text: what `compiler.ir.arithmetic` means, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.ir.arithmetic import bounds
from compiler.ir.expr import FUNCTIONS, Cast, Const
from compiler.ir.small import BITS, BITWISE, FLOATS, wide
from compiler.ir.tensor import DType

C_TYPES: Mapping[DType, str] = {
    DType.BOOL: "uint8_t",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
    DType.U64: "uint64_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "_Float16",
    DType.BF16: "tw_bf16",
    **dict.fromkeys(BITS, "uint8_t"),
}
SMALL_HEADER, SMALL_PREFIX = "tw_small.h", "tw_small_"
"""The header of the functions for small types, and how the names of all that is in it begin."""

INFIX: Mapping[str, str] = {
    **{
        "add": "+",
        "sub": "-",
        "mul": "*",
        "div": "/",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
        "eq": "==",
        "ne": "!=",
    },
    **{
        "and": "&",
        "or": "|",
        "xor": "^",
        "bit_and": "&",
        "bit_or": "|",
        "bit_xor": "^",
        "shift_left": "<<",
        "shift_right": ">>",
    },
}

COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
LOGICAL = frozenset(("and", "or", "xor"))
INFIX_OF_INTEGERS = COMPARISONS | {"min", "max", "not", "bit_and", "bit_or", "bit_xor"}
"""Functions whose C form is the same for integers and floats, or is no concern of overflow."""
LIBM = frozenset(
    (
        *("exp", "log", "sqrt", "tanh", "erf", "floor", "ceil", "log1p", "expm1", "pow", "fmod"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    )
)


def literal(value: float | int | bool, dtype: DType) -> str:
    """A C literal that has exactly this value."""
    if dtype is DType.BOOL:
        return "1" if value else "0"
    if dtype.is_small:
        with np.errstate(all="ignore"):
            return f"((uint8_t){int(np.asarray(value).astype(dtype.numpy).view(np.uint8)):#04x})"
    if dtype.is_float:
        with np.errstate(over="ignore"):
            exact = np.asarray(value, dtype.numpy)
        bits = f"((tw_bf16){int(exact.view(np.uint16)):#06x})" if dtype is DType.BF16 else ""
        return bits or _float_literal(float(exact), dtype)
    number = int(value)
    if dtype is DType.I64:
        return "INT64_MIN" if number == -(2**63) else f"((int64_t){number}LL)"
    if dtype is DType.U64:
        return f"((uint64_t){number}ULL)"
    return f"(({C_TYPES[dtype]}){number}{'LL' if abs(number) >= 2**31 else ''})"


def _float_literal(number: float, dtype: DType) -> str:
    if math.isnan(number):
        return f"(({C_TYPES[dtype]})NAN)"
    if math.isinf(number):
        return f"(({C_TYPES[dtype]}){'-' if number < 0 else ''}INFINITY)"
    text = f"{number!r}" if dtype is DType.F64 else f"{number:.9g}"
    text = text if any(mark in text for mark in ".en") else f"{text}.0"
    text = text if dtype is DType.F64 else f"{text}f"
    text = f"((_Float16){text})" if dtype is DType.F16 else text
    return f"({text})" if number < 0 and dtype is not DType.F16 else text


def with_small(text: str) -> str:
    """The text of a kernel below the header that it needs if there are elements of small types in it."""
    return f'#include "{SMALL_HEADER}"\n{text}' if SMALL_PREFIX in text else text


def convert(arg: str, source: DType, target: DType) -> str:
    """A value of one dtype as another: bool is 0 or 1, integers truncate floats, shorter floats are rounded."""
    if source is target:
        return arg
    if source is DType.BF16:
        arg, source = f"tw_from_bf16({arg})", DType.F32
    if source.is_small:
        arg, source = f"tw_small_from_{source}({arg})", wide(source)
    if target is DType.BOOL:
        return f"({arg} != 0)"
    if target is DType.BF16:
        return f"tw_to_bf16((float)({arg}))"
    if target.is_small:
        return _to_small(arg, Cast(Const(0, source), target))
    return arg if source is target else f"({C_TYPES[target]})({arg})"


def _to_small(arg: str, expr: Cast) -> str:
    """A value of a type that C converts to float or int as the code of a small one, as `expr` says."""
    target = expr.type
    if target not in FLOATS:
        return f"tw_small_to_{target}((int32_t)({arg}))"
    if target is DType.F8E8M0:
        return f"tw_small_to_{target}((float)({arg}), {int(expr.saturate)}, TW_SMALL_{expr.rounding.upper()})"
    return f"tw_small_to_{target}((float)({arg}), {int(expr.saturate)})"


def cast(arg: str, expr: Cast) -> str:
    """A conversion. Saturation clamps to the target's range first; NaN becomes 0 if the target is an integer."""
    source, target = expr.arg.dtype, expr.type
    if source is target:
        return arg
    if expr.rounding == BITWISE:
        return f"((union {{ {C_TYPES[source]} from; {C_TYPES[target]} to; }}){{{arg}}}).to"
    if source is DType.BF16 or source.is_small:
        kind = DType.F32 if source is DType.BF16 else wide(source)
        return cast(convert(arg, source, kind), Cast(Const(0, kind), target, expr.saturate, expr.rounding))
    if target in FLOATS:
        return _to_small(arg, expr)
    if not expr.saturate or DType.BOOL in (source, target):
        return convert(arg, source, target)
    low, high = bounds(target)
    if target.is_float:
        return convert(f"tw_clamp({arg}, {literal(low, DType.F64)}, {literal(high, DType.F64)})", DType.F64, target)
    return convert(_clamped(arg, source, wide(target), low, high), wide(target), target)


def _clamped(arg: str, source: DType, target: DType, low: float, high: float) -> str:
    """A number as an integer between two ends, which the type that it becomes holds."""
    if source.is_float:
        limits = (literal(low, source), literal(high, source), literal(low, target), literal(high, target))
        return f"tw_saturate({C_TYPES[target]}, {arg}, {', '.join(limits)})"
    own_low, own_high = bounds(source)
    below = f"{arg} < {literal(low, source)} ? {literal(low, target)} : " if own_low < low else ""
    above = f"{arg} > {literal(high, source)} ? {literal(high, target)} : " if own_high > high else ""
    return f"({C_TYPES[target]})({below}{above}({C_TYPES[target]}){arg})"


def apply(function: str, args: list[str], dtype: DType) -> str:
    """A scalar function in C, on arguments of one dtype."""
    if dtype is DType.BF16 or dtype.is_small:
        kind = DType.F32 if dtype is DType.BF16 else wide(dtype)
        computed = apply(function, [convert(arg, dtype, kind) for arg in args], kind)
        return computed if FUNCTIONS[function].returns == "bool" else convert(computed, kind, dtype)
    if function in LOGICAL and dtype is not DType.BOOL:
        return f"(({args[0]} != 0) {INFIX[function]} ({args[1]} != 0))"
    if dtype.is_integer and function not in INFIX_OF_INTEGERS:
        return _integer_function(function, args, dtype)
    if function in INFIX:
        text = f"({args[0]} {INFIX[function]} {args[1]})"
        return text if dtype.bytes >= 4 or function in COMPARISONS else f"({C_TYPES[dtype]}){text}"
    if function == "not":
        return f"(!{args[0]})"
    if function in ("min", "max"):
        return f"tw_{function}1({args[0]}, {args[1]})"
    return _float_function(function, args, dtype)


def _float_function(function: str, args: list[str], dtype: DType) -> str:
    f = "" if dtype is DType.F64 else "f"
    x = args[0]
    if function in LIBM:
        return f"{function}{f}({', '.join(args)})"
    return {
        "mod": f"tw_mod{f}({', '.join(args)})",
        "neg": f"({C_TYPES[dtype]})(-{x})",
        "abs": f"fabs{f}({x})",
        "round": f"nearbyint{f}({x})",
        "rsqrt": f"(1 / sqrt{f}({x}))",
        "reciprocal": f"(1 / {x})",
        "sigmoid": f"({x} < 0 ? exp{f}({x}) / (1 + exp{f}({x})) : 1 / (1 + exp{f}(-({x}))))",
        "sign": f"(({C_TYPES[dtype]})({x} > 0 ? 1 : {x} < 0 ? -1 : {x}))",
        "isnan": f"({x} != {x})",
        "isinf": f"(isinf({x}) != 0)",
    }[function]


def _integer_function(function: str, args: list[str], dtype: DType) -> str:
    """Integers wrap around, which C grants to unsigned ones only."""
    ctype, x = C_TYPES[dtype], args[0]
    wide = "uint64_t" if dtype.bytes == 8 else "uint32_t"
    if len(args) == 2:
        y, bits, kind = args[1], 8 * dtype.bytes, "" if dtype.is_signed else "_u"
        if function in ("add", "sub", "mul"):
            return f"({ctype})(({wide}){x} {INFIX[function]} ({wide}){y})"
        if function == "shift_left":
            return f"({ctype})({y} < {bits} ? ({wide}){x} << {y} : 0)"
        if function == "shift_right":
            return f"({ctype})({y} < {bits} ? {x} >> {y} : {f'-({x} < 0)' if dtype.is_signed else '0'})"
        name = {"div": "quotient", "mod": "floored", "fmod": "remainder", "pow": "power"}[function]
        return f"({ctype})tw_{name}{kind}({x}, {y})"
    return {
        "neg": f"({ctype})(0 - ({wide}){x})",
        "abs": f"({ctype})({x} < 0 ? 0 - ({wide}){x} : ({wide}){x})" if dtype.is_signed else x,
        "sign": f"({ctype})(({x} > 0) - ({x} < 0))" if dtype.is_signed else f"({ctype})({x} > 0)",
        "bit_not": f"({ctype})(~{x})",
        "floor": x,
        "ceil": x,
        "round": x,
        "isnan": "0",
        "isinf": "0",
        "sqrt": f"({ctype})sqrt((double){x})",
        "exp": f"({ctype})exp((double){x})",
        "reciprocal": f"({ctype})({x} == 0 ? 0 : 1 / {x})",
    }[function]


@dataclass(frozen=True)
class Dialect:
    """How a language of the C family writes scalars: the functions of this file, or others of the same signatures."""

    types: Mapping[DType, str]
    literal: Callable[[float | int | bool, DType], str]
    convert: Callable[[str, DType, DType], str]
    cast: Callable[[str, Cast], str]
    apply: Callable[[str, list[str], DType], str]


C = Dialect(C_TYPES, literal, convert, cast, apply)
