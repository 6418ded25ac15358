"""What scalar functions, casts and monoids mean, in numpy.

Everything is done in the dtype of the arguments. F16 and BF16 are computed in F32 and rounded back, which gives the
correctly rounded sum, product, quotient and root (F32 has more than twice their precision). Small types
(`compiler.ir.small`) are brought to the type that holds their values, and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from compiler.ir.small import BITWISE, FLOATS, wide
from compiler.ir.tensor import DType

Array = np.ndarray
_HALVES = (DType.F16, DType.BF16)


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.true_divide(a, b))
    floor = np.floor_divide(a, b)
    short = (floor < 0) & (np.remainder(a, b) != 0)
    return np.asarray(floor + short.astype(a.dtype))


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind != "i":
        return np.asarray(np.power(a, b))
    power = np.power(a, np.maximum(b, 0))
    one = a.dtype.type(1)
    odd = np.where(b % 2 == 0, one, -one)
    inverse = np.where(a == 1, one, np.where(a == -1, odd, a.dtype.type(0)))
    return np.asarray(np.where(b < 0, inverse, power))


def _erf(a: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(a.astype(np.float64)), dtype=np.float64)


def _sigmoid(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def _on_floats(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Rounding functions leave integers as they are."""
    return lambda a: function(a) if a.dtype.kind not in "iub" else a


_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "min": np.minimum,
    "max": np.maximum,
    "pow": _pow,
    "mod": np.remainder,
    "fmod": np.fmod,
    "neg": np.negative,
    "abs": np.absolute,
    "sign": np.sign,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "reciprocal": lambda a: _div(np.ones_like(a), a),
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "floor": _on_floats(np.floor),
    "ceil": _on_floats(np.ceil),
    "round": _on_floats(np.rint),
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bit_not": np.invert,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
}


def apply(function: str, args: tuple[Array, ...], of: DType, returns: DType) -> Array:
    """A function of `compiler.ir.expr.FUNCTIONS` on broadcastable arrays of dtype `of`; the result has dtype `returns`.

    An integer divided by zero gives 0; an integer to a negative power truncates the real result.
    """
    if of in _HALVES or of.is_small:
        args = tuple(arg.astype(np.float32 if of in _HALVES else wide(of).numpy) for arg in args)
    return np.asarray(_FUNCTIONS[function](*args)).astype(returns.numpy, copy=False)


def cast(array: Array, to: DType, saturate: bool = False, rounding: str = "nearest") -> Array:
    """Conversion: to bool by `!= 0`, float to integer by truncation, to a shorter float by rounding half to even.

    `saturate` clamps to the target's (finite) range first and turns NaN into 0 where the target is an integer. Without
    it, integers wrap, and a float that does not fit an integer gives some value. What becomes a small float is an F32
    before, as in ONNX's own reference; `rounding` is that of F8E8M0, or BITWISE.
    """
    source = DType.of(array.dtype)
    if source is to:
        return array
    if rounding == BITWISE:
        return np.ascontiguousarray(array).view(to.numpy).reshape(array.shape)
    if source is DType.BF16 or source.is_small:
        array = array.astype(np.float32 if source is DType.BF16 else wide(source).numpy)
    if to in FLOATS:
        array = array.astype(np.float32)
    if to is DType.F8E8M0:
        return _power_of_two(array, saturate, rounding)
    if not saturate or to is DType.BOOL or array.dtype.kind == "b":
        return (array.astype(np.int64) if to.is_small and to.is_integer else array).astype(to.numpy)
    low, high = bounds(to)
    if to.is_float:
        return np.asarray(np.clip(array.astype(np.float64), low, high).astype(to.numpy))
    if array.dtype.kind in "iu":
        own_low, own_high = bounds(DType.of(array.dtype))
        inner = (array.dtype.type(max(low, own_low)), array.dtype.type(min(high, own_high)))
        return np.asarray(np.clip(array, *inner).astype(to.numpy))
    whole = np.trunc(array.astype(np.float64))
    below, above = whole < float(low), whole >= float(high + 1)  # both bounds are exact: 0 or a power of two
    fits = np.where(below | above | np.isnan(whole), 0.0, whole).astype(to.numpy)
    return np.where(below, to.numpy.type(low), np.where(above, to.numpy.type(high), fits))


def _power_of_two(array: Array, saturate: bool, rounding: str) -> Array:
    """F32 as F8E8M0. What lies below 2^-127 becomes that where it saturates and else NaN, and so does 0.

    Numbers below zero, to which ONNX gives no meaning, become NaN.
    """
    fraction, exponent = np.frexp(array.astype(np.float64))  # fraction in [1/2, 1)
    raised = {"nearest": fraction >= 0.75, "up": fraction > 0.5, "down": np.zeros(array.shape, np.bool_)}[rounding]
    code = exponent.astype(np.int64) - 1 + FLOATS[DType.F8E8M0].bias + raised
    low, high = array < 2.0**-127, (code > FLOATS[DType.F8E8M0].most) | np.isinf(array)
    nan = FLOATS[DType.F8E8M0].nan
    code = np.where(low, 0 if saturate else nan, np.where(high, FLOATS[DType.F8E8M0].most if saturate else nan, code))
    code = np.where(np.isnan(array) | (array < 0), nan, code)
    return np.asarray(code.astype(np.uint8).view(DType.F8E8M0.numpy))


def bounds(dtype: DType) -> tuple[int, int] | tuple[float, float]:
    """Least and greatest finite value."""
    if dtype is DType.BOOL:
        return (0, 1)
    if dtype.is_integer:
        integer: Any = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
        return (int(integer.min), int(integer.max))
    real: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return (float(real.min), float(real.max))


def identity(monoid: str, dtype: DType) -> tuple[Array, ...]:
    """What an empty reduction gives, one 0-d array for each value; the index of an `arg*` is 0 of I64."""
    low, high = (-math.inf, math.inf) if dtype.is_float else bounds(dtype)
    least, greatest = np.asarray(low, dtype.numpy), np.asarray(high, dtype.numpy)
    zero, one = np.asarray(0, dtype.numpy), np.asarray(1, dtype.numpy)
    if monoid.startswith("arg"):
        return (least if "max" in monoid else greatest, np.asarray(0, np.int64))
    if monoid == "softmax":
        return (least, zero)
    return ({"sum": zero, "prod": one, "max": least, "min": greatest, "and": one, "or": zero}[monoid],)


_REDUCERS: Mapping[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}


def reduce(monoid: str, values: tuple[Array, ...], dims: tuple[int, ...]) -> tuple[Array, ...]:
    """`values`, equal in shape, combined over `dims`, which stay with extent 1.

    `max` and `min` give NaN when a value is one. The `arg*` take the least (`first`) or greatest (`last`) index among
    equal values; there a NaN counts as beyond every number, as in numpy.
    """
    dtype = DType.of(values[0].dtype)
    if monoid.startswith("arg"):
        return _reduce_arg(monoid, values, dims)
    if monoid == "softmax":
        x, weight = values
        most = np.maximum.reduce(x, axis=dims, keepdims=True, initial=-math.inf)
        return (most, np.add.reduce(weight * _scale(x, most), axis=dims, keepdims=True, dtype=x.dtype))
    ufunc = _REDUCERS[monoid]
    if monoid in ("and", "or"):
        return (ufunc.reduce(values[0], axis=dims, keepdims=True).astype(dtype.numpy, copy=False),)
    start = identity(monoid, dtype)[0]
    return (ufunc.reduce(values[0], axis=dims, keepdims=True, dtype=dtype.numpy, initial=start),)


def _reduce_arg(monoid: str, values: tuple[Array, ...], dims: tuple[int, ...]) -> tuple[Array, ...]:
    value, index = values
    dtype = DType.of(value.dtype)
    side = np.maximum if "max" in monoid else np.minimum
    start = identity(monoid, dtype)[0]
    best = side.reduce(value, axis=dims, keepdims=True, initial=start)
    chosen = (value == best) | ((value != value) & (best != best))
    least, greatest = bounds(DType.of(index.dtype))
    pick, loser = (np.minimum, greatest) if monoid.endswith("first") else (np.maximum, least)
    at = pick.reduce(np.where(chosen, index, index.dtype.type(loser)), axis=dims, keepdims=True, initial=loser)
    return (best, np.where(np.any(chosen, axis=dims, keepdims=True), at, index.dtype.type(0)))


def combine(monoid: str, one: tuple[Array, ...], two: tuple[Array, ...]) -> tuple[Array, ...]:
    """Two partial results of equal shapes joined into one."""
    stacked = tuple(np.stack(pair) for pair in zip(one, two, strict=True))
    return tuple(part[0] for part in reduce(monoid, stacked, (0,)))


def _scale(x: Array, most: Array) -> Array:
    """exp(x - most), and 1 where both are the same infinity."""
    return np.asarray(np.where(x == most, x.dtype.type(1), np.exp(x - most)))


def contract(a: Array, b: Array, dims: tuple[int, ...]) -> Array | None:
    """sum over `dims` of a * b by matrix multiplication, `dims` staying with extent 1.

    None where both lack one of `dims`. `a` and `b` have equal rank and broadcastable shapes. The order of the additions
    is free.
    """
    if any(a.shape[dim] == 1 and b.shape[dim] == 1 for dim in dims):
        return None
    a = np.add.reduce(a, axis=tuple(dim for dim in dims if b.shape[dim] == 1), keepdims=True, dtype=a.dtype)
    b = np.add.reduce(b, axis=tuple(dim for dim in dims if a.shape[dim] == 1), keepdims=True, dtype=b.dtype)
    outer = [dim for dim in range(a.ndim) if dim not in dims]
    batch = [dim for dim in outer if a.shape[dim] != 1 and b.shape[dim] != 1]
    rows = [dim for dim in outer if dim not in batch and a.shape[dim] != 1]
    columns = [dim for dim in outer if dim not in batch and dim not in rows]
    size = [math.prod(max(a.shape[dim], b.shape[dim]) for dim in part) for part in (batch, rows, columns)]
    depth = math.prod(a.shape[dim] for dim in dims)
    left = a.transpose(*batch, *rows, *columns, *dims).reshape(size[0], size[1], depth)
    right = b.transpose(*batch, *dims, *rows, *columns).reshape(size[0], depth, size[2])
    product: Array = left @ right
    order = [*batch, *rows, *columns, *dims]
    extents = [1 if dim in dims else max(a.shape[dim], b.shape[dim]) for dim in order]
    return product.reshape(extents).transpose(np.argsort(order))
