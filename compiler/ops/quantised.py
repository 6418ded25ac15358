"""Arithmetic of quantised tensors: subtracting zero points, and scaling integer sums back to bytes."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Expr, Load
from compiler.ir.index import Index
from compiler.ir.tensor import DType
from compiler.ops.arrays import as_array
from compiler.ops.build import call, cast
from compiler.ops.operator import Types, Unsupported


def scalar_or_along(types: Types, names: tuple[str, ...], position: int, along: Index) -> Expr | None:
    """A scale or zero point: of the whole tensor when it has one element, else the one at `along`; None when absent."""
    type = types[position] if position < len(types) else None
    if type is None:
        return None
    if type.elements == 1:
        return Load(names[position], (Index.of(0),) * type.rank, type.dtype)
    if type.rank != 1:
        raise Unsupported(f"a scale or zero point has shape {list(type.dims)}", "give a scalar or a vector")
    return Load(names[position], (along,), type.dtype)


def parameter(types: Types, names: tuple[str, ...], position: int, along: Index) -> Expr:
    """The same for one that must be there. Raises Unsupported when it is absent."""
    found = scalar_or_along(types, names, position, along)
    if found is None:
        raise Unsupported(f"input {position} is absent but required", "export the model again")
    return found


def zeroed(value: Expr, zero: Expr | None) -> Expr:
    """value - zero in i32."""
    wide = cast(value, DType.I32)
    return wide if zero is None else call("sub", wide, cast(zero, DType.I32))


def requantise(total: Expr, x_scale: Expr, w_scale: Expr, y_scale: Expr, y_zero: Expr) -> Expr:
    """saturate(round(total * (x_scale * w_scale / y_scale)) + y_zero) in the dtype of y_zero; computed in f32."""
    scales = [cast(scale, DType.F32) for scale in (x_scale, w_scale, y_scale)]
    factor = call("div", call("mul", scales[0], scales[1]), scales[2])
    rounded = call("round", call("mul", cast(total, DType.F32), factor))
    return cast(call("add", rounded, cast(y_zero, DType.F32)), y_zero.dtype, saturate=True)


def spread(array: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """For references: a scale or zero point in float64 with its elements along `axis`."""
    wide = array.astype(np.float64)
    if wide.size == 1:
        return wide.reshape(())
    shape = [1] * rank
    shape[axis] = wide.size
    return wide.reshape(shape)


def requantised(
    total: np.ndarray, x_scale: np.ndarray, w_scale: np.ndarray, y_scale: np.ndarray, zero: np.ndarray
) -> np.ndarray:
    """For references: scaling, rounding half to even, then saturation in the dtype of `zero`.

    In f32 whatever the scales were widened to: a finer product would fall on the other side of some ties.
    """
    x_scale, w_scale, y_scale = (scale.astype(np.float32) for scale in (x_scale, w_scale, y_scale))
    limits = np.iinfo(zero.dtype)
    shifted = np.rint(total.astype(np.float32) * (x_scale * w_scale / y_scale)) + zero.astype(np.float32)
    return as_array(np.clip(shifted, limits.min, limits.max)).astype(zero.dtype)
