"""Arithmetic on values that hold sizes: what shapes are computed from, done while the model is read.

Elements are ints, Extents, or (in floating point) extents times a fraction. What cannot be decided for all sizes alike,
or is no arithmetic of shapes, is left to be computed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from compiler.frontend.open.extent import Extent, Scaled, Undecided, divided, greatest, is_equal, is_less, least
from compiler.frontend.reading.tensors import DTYPES
from compiler.ir.graph import Attr
from compiler.ir.tensor import DType

LARGEST = 4096
"""Elements of a value that is looked at."""
LARGEST_DENOMINATOR = 4096


Element = Any
"""int, float, bool, Extent or Scaled."""
Arrays = Sequence[np.ndarray]
Attrs = Mapping[str, Attr]


def evaluated(op: str, attrs: Attrs, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The result as an array of objects; None for what is left to run time. `arrays` has one for each input."""
    if op not in RULES or any(array is not None and array.size > LARGEST for array in arrays):
        return None
    try:
        found = RULES[op](attrs, [None if array is None else array.astype(object) for array in arrays])
    except (Undecided, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError):
        return None
    return np.asarray(found, object)


def _each(function: Callable[..., Element]) -> Callable[[Attrs, Arrays], np.ndarray]:
    """A function of elements, broadcast by numpy's rules."""
    return lambda attrs, arrays: np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


def _times(one: Element, other: Element) -> Element:
    if isinstance(one, float | Fraction | Scaled):
        one, other = other, one
    if isinstance(one, Scaled):
        raise Undecided("a product of two that are scaled")
    if isinstance(other, Scaled):
        if isinstance(one, Extent):
            raise Undecided("a product of sizes that are scaled")
        share = _fraction(float(one))
        if not _is_exact(other.factor) and not (_is_exact(share) and _is_exact(1 / share)):
            raise Undecided("a rounded quotient times what is no power of two")
        return _scaled(other.extent, other.factor * share)
    if isinstance(other, float) and isinstance(one, Extent):
        return _scaled(one, _fraction(other))
    return one * other


def _fraction(number: float) -> Fraction:
    """A number by which floating point multiplies sizes without rounding: whole multiples of a power of a half.

    Raises Undecided for another: what rounding makes of a product by 0.29 may be another whole number.
    """
    found = Fraction(number)
    if found.denominator > LARGEST_DENOMINATOR or abs(found.numerator) > LARGEST_DENOMINATOR:
        raise Undecided(f"products by {number} are rounded")
    return found


def _is_exact(factor: Fraction) -> bool:
    """Whether products by it are not rounded: its denominator is a power of two."""
    return factor != 0 and factor.denominator & (factor.denominator - 1) == 0


def _scaled(extent: Extent, factor: Fraction) -> Element:
    return extent * factor.numerator if factor.denominator == 1 else Scaled(extent, factor)


def _over(one: Element, other: Element) -> Element:
    """Whole numbers truncate, as what is divided is not negative."""
    if isinstance(other, float):
        if not isinstance(one, Extent | Scaled):
            return one / other
        if isinstance(one, Scaled) or not other.is_integer():
            return _times(one, 1 / other)
        # A quotient of whole numbers that is none itself is further from the next one than rounding leads.
        return _scaled(one, 1 / Fraction(other))
    if isinstance(one, float):
        return one / other
    if isinstance(one, Extent | int) and isinstance(other, Extent | int):
        if not isinstance(one, Extent) and not isinstance(other, Extent):
            return int(one / other) if abs(one) < 2**52 else one // other
        if isinstance(one, Extent) and one.low < 0:
            raise Undecided(f"{one} may be negative")
        return divided(one, other) if isinstance(other, Extent) else one // other
    raise Undecided("a quotient of sizes that are scaled")


def _to_int(item: Element) -> Element:
    if isinstance(item, Scaled):
        return item.floor()
    return item if isinstance(item, Extent) else int(item)


def _int(attrs: Attrs, name: str) -> int:
    value = attrs.get(name, 0)
    return value if isinstance(value, int) else 0


def _cast(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    kind = DTYPES.get(_int(attrs, "to"))
    if kind is None or kind is DType.BOOL:
        raise Undecided("a conversion to truth values")
    convert = (lambda item: item if isinstance(item, Extent | Scaled) else float(item)) if kind.is_float else _to_int
    return np.asarray(np.frompyfunc(convert, 1, 1)(arrays[0]), object)


def _floor(item: Element) -> Element:
    return item.floor() if isinstance(item, Scaled) else item if isinstance(item, Extent) else float(np.floor(item))


def _ceil(item: Element) -> Element:
    return item.ceil() if isinstance(item, Scaled) else item if isinstance(item, Extent) else float(np.ceil(item))


def _minimum(*items: Element) -> Element:
    found = items[0]
    for item in items[1:]:
        found = least(found, item)
    return found


def _maximum(*items: Element) -> Element:
    found = items[0]
    for item in items[1:]:
        found = greatest(found, item)
    return found


def _below(one: Element, other: Element) -> bool:
    """Whether one is below another; whole numbers of floating point are what exporters compare sizes with."""
    one, other = (int(item) if isinstance(item, float) and item.is_integer() else item for item in (one, other))
    return is_less(one, other)


def _ints(array: np.ndarray | None) -> list[int]:
    if array is None:
        return []
    if any(not isinstance(item, int) for item in array.reshape(-1)):
        raise Undecided("positions that depend on sizes")
    return [int(item) for item in array.reshape(-1)]


def _slice(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    x, starts, ends = arrays[:3]
    axes, steps = (arrays[place] if place < len(arrays) else None for place in (3, 4))
    begin, past = _ints(starts), _ints(ends)
    along = _ints(axes) or list(range(len(begin)))
    stride = _ints(steps) or [1] * len(begin)
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, begin, past, stride, strict=True):
        if step < 0:
            end = None if end < -x.shape[axis] else end  # type: ignore[assignment]
        index[axis] = slice(start, end, step)
    return np.asarray(x[tuple(index)], object)


def _reduced(function: Callable[[Element, Element], Element]) -> Callable[[Attrs, Arrays], np.ndarray]:
    def rule(attrs: Attrs, arrays: Arrays) -> np.ndarray:
        x, axes = arrays[0], _ints(arrays[1]) if len(arrays) > 1 else []
        if x.ndim != 1 or axes not in ([], [0], [-1]) or not x.size:
            raise Undecided("a reduction of a matrix")
        whole = x[0]
        for item in x[1:]:
            whole = function(whole, item)
        return np.array([whole] if attrs.get("keepdims", 1) else whole, object)

    return rule


def _reshape(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    return arrays[0].reshape([arrays[0].shape[at] if dim == 0 else dim for at, dim in enumerate(_ints(arrays[1]))])


def _gather(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    positions = np.array(_ints(arrays[1]), np.int64).reshape(arrays[1].shape)
    return np.asarray(np.take(arrays[0], positions, axis=_int(attrs, "axis")), object)


def _unsqueeze(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    return np.expand_dims(arrays[0], tuple(_ints(arrays[1])))


def _squeeze(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    return np.squeeze(arrays[0], tuple(_ints(arrays[1])) if len(arrays) > 1 and arrays[1] is not None else None)


def _transpose(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    return np.transpose(arrays[0], attrs.get("perm"))  # type: ignore[arg-type]


def _expand(attrs: Attrs, arrays: Arrays) -> np.ndarray:
    return np.broadcast_to(arrays[0], np.broadcast_shapes(arrays[0].shape, tuple(_ints(arrays[1]))))


def _where(condition: Element, one: Element, other: Element) -> Element:
    return one if condition else other


def _mod(one: Element, other: Element) -> Element:
    if isinstance(one, Extent) and one.low < 0:
        raise Undecided(f"{one} may be negative")
    return one % other


RULES: Mapping[str, Callable[[Attrs, Any], np.ndarray]] = {
    "Add": _each(lambda one, other: one + other),
    "Sub": _each(lambda one, other: one - other),
    "Mul": _each(_times),
    "Div": _each(_over),
    "Mod": _each(_mod),
    "Neg": _each(lambda item: -item),
    "Abs": _each(lambda item: item if isinstance(item, Extent) and item.low >= 0 else abs(item)),
    "Min": _each(_minimum),
    "Max": _each(_maximum),
    "Floor": _each(_floor),
    "Ceil": _each(_ceil),
    "Cast": _cast,
    "Equal": _each(is_equal),
    "Less": _each(_below),
    "Greater": _each(lambda one, other: _below(other, one)),
    "LessOrEqual": _each(lambda one, other: not _below(other, one)),
    "GreaterOrEqual": _each(lambda one, other: not _below(one, other)),
    "Not": _each(lambda item: not item),
    "And": _each(lambda one, other: bool(one and other)),
    "Or": _each(lambda one, other: bool(one or other)),
    "Where": _each(_where),
    "Concat": lambda attrs, arrays: np.concatenate(arrays, axis=_int(attrs, "axis")),
    "Gather": _gather,
    "Slice": _slice,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "ReduceProd": _reduced(lambda one, other: one * other),
    "ReduceSum": _reduced(lambda one, other: one + other),
    "ReduceMax": _reduced(greatest),
    "ReduceMin": _reduced(least),
}
"""By operator in its newest form: attributes and arrays of objects to the result."""
