"""Operators that never become nodes: their results follow from types and constants alone.

Each function returns the one result as an array, or None where an input it needs is not constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import ModelTooLarge
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import AttrValue
from compiler.frontend.reading.strings import text_array
from compiler.frontend.reading.tensors import DTYPES, check_size
from compiler.ir.tensor import DType, static
from compiler.ops.operator import Unsupported


@dataclass(frozen=True)
class Place(Site):
    """A call with the limits that hold for what it computes."""

    limits: Limits = field(default_factory=Limits)


def constant(place: Place) -> np.ndarray:
    """Constant in each of its spellings."""
    if len(place.call.attrs) != 1:
        raise Unsupported(f"it has {len(place.call.attrs)} values where it takes one", "export the model again")
    ((name, value),) = place.call.attrs.items()
    if isinstance(value, np.ndarray):
        return value
    if name in ("value_string", "value_strings"):
        words = value if isinstance(value, tuple) else (value,)
        return text_array([str(word) for word in words], (len(words),) if isinstance(value, tuple) else ())
    dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    if name not in dtypes or not isinstance(value, int | float | tuple):
        raise Unsupported(f"its value is a {name.removeprefix('value_')}", "use a tensor of type bool to double")
    try:
        with np.errstate(over="ignore"):
            return np.array(value, dtype=dtypes[name])
    except (OverflowError, ValueError, TypeError):
        raise Unsupported(f"attribute {name!r} holds no numbers", "export the model again") from None


def shape(place: Place) -> np.ndarray:
    """Shape, with `start` and `end` clamped as Python slices are."""
    end = place.call.attrs.get("end")
    asked = place.first.shape[place.integer("start", 0) : end if isinstance(end, int) else None]
    return np.array(static(asked), np.int64)


def size(place: Place) -> np.ndarray:
    """Number of elements."""
    return np.array(place.first.elements, np.int64)


def constant_of_shape(place: Place) -> np.ndarray | None:
    """One value everywhere, in no more memory than that value takes."""
    dims = place.constants[0]
    if dims is None:
        return None
    value: AttrValue = place.call.attrs.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise Unsupported("attribute 'value' is not a tensor of one element", "export the model again")
    if dims.ndim != 1 or dims.dtype != np.int64 or (dims < 0).any():
        raise Unsupported(
            f"its shape {dims.tolist()!s:.60} is not a list of sizes", "bind the inputs it is computed from"
        )
    target = tuple(dims.tolist())
    check_size(target, DType.of(value.dtype), f"ConstantOfShape {place.call.source!r:.100}", place.limits)
    return np.broadcast_to(value.reshape(()), target)


def range_(place: Place) -> np.ndarray | None:
    """start, start + delta, ... below limit; max(ceil((limit - start) / delta), 0) elements."""
    bounds = place.constants
    if any(bound is None for bound in bounds):
        return None
    arrays = [bound for bound in bounds if bound is not None]
    if any(array.size != 1 for array in arrays):
        raise Unsupported("start, limit and delta are not scalars", "export the model again")
    dtype = arrays[0].dtype
    start, limit, delta = (array.reshape(()).item() for array in arrays)
    if delta == 0 or not all(np.isfinite(bound) for bound in (start, limit, delta)):
        raise Unsupported(f"the range from {start} to {limit} by {delta} has no end", "give a delta other than 0")
    exact = isinstance(start, int)
    count = max(-((start - limit) // delta) if exact else int(np.ceil((limit - start) / delta)), 0)
    if 8 * count > place.limits.fold_bytes:
        raise ModelTooLarge(
            f"a Range has {count} elements", fix=f"bind shapes so that it has at most {place.limits.fold_bytes // 8}"
        )
    steps = np.arange(count, dtype=np.int64 if exact else np.float64)
    return np.asarray(start + steps * delta).astype(dtype)


def non_zero(place: Place) -> np.ndarray | None:
    """Indices of the elements that are not zero, one column each."""
    array = place.constants[0]
    if array is None or 8 * array.size > place.limits.fold_bytes:
        return None
    return np.array(np.nonzero(array) if array.ndim else np.nonzero(array.reshape(1)), np.int64).reshape(
        max(array.ndim, 1), -1
    )


def eye_like(place: Place) -> np.ndarray | None:
    """Ones on diagonal `k`, in the type of `dtype` or of the input."""
    if place.first.rank != 2:
        raise Unsupported(f"{place.first} is no matrix", "export the model again")
    code = place.call.attrs.get("dtype")
    dtype = place.first.dtype if code is None else DTYPES.get(code) if isinstance(code, int) else None
    if dtype is None or dtype.is_small:
        raise Unsupported(f"dtype {code} is not supported", "use a type from bool to double")
    if any(not isinstance(dim, int) for dim in place.first.shape):
        return None
    dims = place.first.dims
    if max(place.first.elements * dtype.bytes, *(8 * extent for extent in dims)) > place.limits.fold_bytes:
        return None
    columns = np.arange(dims[1]) - place.integer("k", 0)
    ones: np.ndarray = np.arange(dims[0])[:, None] == columns
    return ones.astype(dtype.numpy)


def mel_weights(place: Place) -> np.ndarray | None:
    """[dft_length // 2 + 1, num_mel_bins]: triangles between neighbouring edges, which are equally far in mel.

    An edge in Hz lies at the bin floor((dft_length + 1) edge / sample_rate).
    """
    if any(bound is None for bound in place.constants):
        return None
    if any(bound is not None and bound.size != 1 for bound in place.constants):
        raise Unsupported("its inputs are not scalars", "export the model again")
    count, length, rate, low, high = (float(bound.reshape(())) for bound in place.constants if bound is not None)
    spectrum = int(length) // 2 + 1
    if not (count >= 1 and length >= 1 and rate > 0 and -700 < low <= high <= rate / 2):
        raise Unsupported(f"edges from {low:g} to {high:g} Hz do not fit a rate of {rate:g}", "export the model again")
    if 8 * spectrum * count > place.limits.fold_bytes:
        raise ModelTooLarge(f"{count:g} mel bins of {spectrum} frequencies are too many", fix="ask for fewer")
    code = place.call.attrs.get("output_datatype", 1)
    dtype = DTYPES.get(code) if isinstance(code, int) else None
    if dtype is None or dtype.is_small:
        raise Unsupported(f"output_datatype {code!r:.40} is not supported", "use a type from bool to double")
    mel = 2595 * np.log1p(np.array([low, high]) / 700) / np.log(10)
    steps = mel[0] + np.arange(count + 2) * (mel[1] - mel[0]) / (count + 2)
    hertz = 700 * np.expm1(steps / 2595 * np.log(10))
    edges = np.floor((length + 1) * hertz / rate)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    bins = np.arange(spectrum)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(centre > left, (bins - left) / (centre - left), bins == centre)
        falling = (right - bins) / (right - centre)
    weights = np.where((bins >= left) & (bins <= centre), rising, 0.0)
    return np.where((bins >= centre) & (bins < right), falling, weights).astype(dtype.numpy)


FOLDED: dict[str, Callable[[Place], np.ndarray | None]] = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "MelWeightMatrix": mel_weights,
    "NonZero": non_zero,
    "Range": range_,
    "Shape": shape,
    "Size": size,
}
