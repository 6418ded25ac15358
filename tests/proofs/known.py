"""Constants whose numbers are not looked at: arrays that remember how they were made of the drawn ones.

A rule computes new constants with numpy. Given `Known`s, the functions of numpy that rules use give Knowns: a shape,
of numbers or sizes, and what stands at an index, as an expression over the drawn constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where, conjunction
from compiler.ir.index import Axis, Index, flatten, unflatten
from compiler.ir.tensor import DType, broadcast
from tests.proofs.reduce import FRESH, Reduce
from tests.proofs.sizes import Poly, Ratio, Size, poly_of

At = Callable[[tuple[Index, ...]], Expr]


TINY = 2.0**-13
"""Numbers of which nothing is known are not below what a rule takes for an underflow."""
MOST_WRITTEN = 32
"""Elements of an array whose numbers are written into expressions, one by one."""


def _written(array: np.ndarray, index: tuple[Index, ...]) -> Expr:
    found: Expr | None = None
    for place in np.ndindex(array.shape):
        number = Const(float(array[place]), DType.F64)
        here = [
            Apply("eq", (Position(i), Const(p, DType.I64)))
            for i, p in zip(index, place, strict=True)
            if not (i.is_const and i.const == p)
        ]
        if any(i.is_const and i.const != p for i, p in zip(index, place, strict=True)):
            continue
        condition = conjunction(list(here))
        found = number if found is None or condition is None else Where(condition, number, found)
    assert found is not None
    return found


class Claim:
    """What a rule asks of constants, which is taken to be so: (name, relation, number) of those that matter."""

    def __init__(self, facts: tuple[tuple[str, str, float], ...], answer: bool) -> None:
        self.facts, self.answer = facts, answer

    def all(self) -> bool:
        """The answer, which is then assumed."""
        if self.answer:
            ASSUMED.extend(self.facts)
        return self.answer

    any = all

    def __and__(self, other: Any) -> Claim:
        if not isinstance(other, Claim):
            other = Claim((), bool(np.all(other)))
        return Claim((*self.facts, *other.facts), self.answer and other.answer)

    def __or__(self, other: Any) -> Claim:
        answer = other.answer if isinstance(other, Claim) else bool(np.all(other))
        return Claim((), self.answer or answer)

    def __rand__(self, other: Any) -> Claim:
        return self if bool(other) else Claim((), False)

    __ror__ = __or__

    def __invert__(self) -> Claim:
        return Claim((), not self.answer)


ASSUMED: list[tuple[str, str, float]] = []
"""What was assumed of drawn constants since this was emptied; without a name, of what was made of them."""


class Known:
    """An array by what stands at each index."""

    __array_priority__ = 1000

    def __init__(
        self, shape: tuple[int, ...], at: At, dtype: Any, name: str = "", quotient: float | None = None
    ) -> None:
        self.shape, self.at, self.dtype, self.name = tuple(shape), at, np.dtype(dtype), name
        self.quotient = quotient
        self.finite_if: tuple[tuple[str, str, float], ...] = ()
        """The number that all elements are, if that is known: a quotient of sizes perhaps."""

    @staticmethod
    def of_sizes(number: Ratio, dtype: DType) -> Known:
        """A quotient of sizes."""
        return Known((), lambda index: Const(number, dtype), dtype.numpy, quotient=number)

    @staticmethod
    def drawn(name: str, shape: tuple[int, ...], dtype: DType) -> Known:
        """Any numbers, under a name."""
        return Known(shape, lambda index: Load(name, index, dtype), dtype.numpy, name)

    @staticmethod
    def of(value: Any) -> Known:
        """A number or an array of one number as a Known."""
        if isinstance(value, Known):
            return value
        array = np.asarray(value)
        if array.size and len({repr(item) for item in array.reshape(-1).tolist()}) == 1:
            number = array.reshape(-1)[0].item()
            number = float(number) if array.dtype.kind not in "iub" else number
            return Known(array.shape, lambda index: Const(number, DType.F64), array.dtype)
        if array.size <= MOST_WRITTEN and array.dtype.kind not in "iub":
            return Known(array.shape, lambda index: _written(array, index), array.dtype)
        raise TypeError(f"an array of shape {array.shape} that nothing is known of")

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Large: constants are shared by content only when they are small."""
        return 2**40

    @property
    def T(self) -> Known:
        """Its axes in reverse."""
        return self.transpose()

    __iter__ = None

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("constants that may be any numbers are made an array of numbers")

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = list(key if isinstance(key, tuple) else (key,))
        keys += [slice(None)] * (self.ndim - len(keys))
        before, part, shape = self.at, Known.of(value), self.shape
        whole: list[tuple[int, int, int]] = []  # where each axis begins and ends, and its step
        kept: list[int] = []
        for axis, (one, extent) in enumerate(zip(keys, shape, strict=True)):
            if isinstance(one, slice):
                begin = 0 if one.start is None else one.start
                past = extent if one.stop is None else one.stop if one.stop >= 0 else extent + one.stop
                step = 1 if one.step is None else one.step
                whole.append((begin, past, step))
                kept.append(axis)
            elif isinstance(one, int | np.integer):
                place = one if isinstance(one, int) else int(one)
                whole.append((place, place + 1, 1))
            else:
                raise TypeError(f"constants stored at {one!r}")

        def at(index: tuple[Index, ...]) -> Expr:
            inner: list[Index] = []
            conditions: list[Expr] = []
            for axis, (begin, past, step) in enumerate(whole):
                place = index[axis] - begin
                if (keys[axis] if isinstance(keys[axis], slice) else None) != slice(None):
                    conditions.append(Apply("ge", (Position(place), Const(0, DType.I64))))
                    conditions.append(Apply("lt", (Position(index[axis]), Const(past, DType.I64))))
                if step != 1:
                    conditions.append(Apply("eq", (Position(place % step), Const(0, DType.I64))))
                    place = place // step
                if axis in kept:
                    inner.append(place)
            value = part.at(own(tuple(inner), part.shape))
            condition = conjunction(conditions)
            return value if condition is None else Where(condition, _double(value), _double(before(index)))

        self.at = at

    def astype(self, dtype: Any, **_: Any) -> Known:
        """The same numbers: over the reals a conversion between floats changes nothing."""
        if np.dtype(dtype).kind in "iub" and self.dtype.kind not in "iub":
            raise TypeError("constants that may be any numbers are made integers")
        same = Known(self.shape, self.at, dtype, self.name, self.quotient)
        same.finite_if = self.finite_if
        return same

    def take(self, places: Any, axis: int | None = None) -> Known:
        """Elements at places that are known, along an axis."""
        return _take(self, places, axis)

    def copy(self) -> Known:
        """Itself."""
        return self

    def reshape(self, *shape: Any, **_: Any) -> Known:
        """The same elements in the same order."""
        wanted = list(shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)
        if -1 in [dim for dim in wanted if type(dim) is int]:
            place = next(i for i, dim in enumerate(wanted) if type(dim) is int and dim == -1)
            wanted[place] = 1
            wanted[place] = self.size // math.prod(wanted)
        dims = tuple(wanted)
        if math.prod(dims) != self.size:
            raise ValueError(f"cannot reshape {self.shape} to {dims}")
        at = self.at if self.quotient else lambda index: self.at(unflatten(flatten(index, dims), self.shape))
        return Known(dims, at, self.dtype, quotient=self.quotient)

    def ravel(self) -> Known:
        """One axis."""
        return self.reshape(-1)

    flatten = ravel

    def transpose(self, *perm: Any) -> Known:
        """Axes in another order."""
        order = list(perm[0] if len(perm) == 1 and isinstance(perm[0], tuple | list) else perm)
        order = order or list(reversed(range(self.ndim)))

        def at(index: tuple[Index, ...]) -> Expr:
            return self.at(tuple(index[order.index(axis)] for axis in range(self.ndim)))

        return Known(tuple(self.shape[axis] for axis in order), at, self.dtype)

    def swapaxes(self, one: int, two: int) -> Known:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        order[one], order[two] = order[two], order[one]
        return self.transpose(order)

    def __getitem__(self, key: Any) -> Known:
        keys = list(key if isinstance(key, tuple) else (key,))
        if Ellipsis in [k for k in keys if k is Ellipsis]:
            place = next(i for i, k in enumerate(keys) if k is Ellipsis)
            given = sum(1 for k in keys if k is not None and k is not Ellipsis)
            keys[place : place + 1] = [slice(None)] * (self.ndim - given)
        keys += [slice(None)] * (self.ndim - sum(1 for k in keys if k is not None))
        shape: list[int] = []
        how: list[Callable[[tuple[Index, ...]], Index]] = []
        axis = 0
        for k in keys:
            if k is None:
                shape.append(1)
                continue
            extent = self.shape[axis]
            axis += 1
            if isinstance(k, slice):
                start, stop, step = k.start, k.stop, 1 if k.step is None else k.step
                if step == 1:
                    start = 0 if start is None else start if start >= 0 else extent + start
                    stop = extent if stop is None else stop if stop >= 0 else extent + stop
                    stop = extent if stop > extent else stop
                    shape.append(stop - start)
                    how.append(_shifted(len(shape) - 1, start, 1))
                elif step == -1 and start is None and stop is None:
                    shape.append(extent)
                    how.append(_shifted(len(shape) - 1, extent - 1, -1))
                else:
                    raise TypeError(f"a slice {k} of constants")
            elif isinstance(k, int | np.integer):
                how.append(_fixed(k if k >= 0 else extent + k))
            else:
                raise TypeError(f"an index {k!r} of constants")
        at = self.at if self.quotient else lambda index: self.at(tuple(one(index) for one in how))
        return Known(tuple(shape), at, self.dtype, quotient=self.quotient)

    def any(self) -> bool:
        """Numbers of which nothing is known are not all zeros."""
        return True

    def __eq__(self, other: object) -> Any:
        return Claim((), self._is(other))

    def __ne__(self, other: object) -> Any:
        return Claim((), not self._is(other))

    def _is(self, other: object) -> bool:
        return other is self or (isinstance(other, Known) and self.quotient is other.quotient is not None)

    __hash__ = object.__hash__

    def __gt__(self, other: Any) -> Claim:
        return self._claim("gt", other)

    def __ge__(self, other: Any) -> Claim:
        return self._claim("ge", other)

    def __lt__(self, other: Any) -> Claim:
        return self._claim("lt", other)

    def __le__(self, other: Any) -> Claim:
        return self._claim("le", other)

    def _claim(self, relation: str, other: Any) -> Claim:
        if self.name and not isinstance(other, Known) and np.asarray(other).size == 1:
            return Claim(((self.name, relation, float(other)),), True)
        if relation == "lt" and not isinstance(other, Known) and 0 < float(other) < TINY:
            return Claim((), False)
        return Claim((("", relation, 0.0),), True)

    def __float__(self) -> float:
        raise TypeError("a constant that may be any number is read as one")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = "matmul" if ufunc is np.matmul else MAPS.get(ufunc)
        if method != "__call__" or name is None:
            raise TypeError(f"{ufunc.__name__}.{method} of constants")
        if name == "never":
            return Claim((), False)
        if ufunc is np.matmul:
            return _einsum("ab,bc->ac", *inputs)
        if name == "finite":
            return Claim(inputs[0].finite_if, True)
        args = tuple(Known.of(value) for value in inputs)
        dims = broadcast(*(arg.shape for arg in args))
        if dims is None:
            raise ValueError(f"shapes {[arg.shape for arg in args]} do not broadcast")

        def at(index: tuple[Index, ...]) -> Expr:
            parts = tuple(arg.at(own(index, arg.shape)) for arg in args)
            return Apply(name, tuple(_double(part) for part in parts))

        made = Known(tuple(dims), at, np.float64)  # type: ignore[arg-type]
        if name == "div" and args[1].name:
            made.finite_if = ((args[1].name, "ne", 0.0),)
        return made

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        made = FUNCTIONS.get(function)
        if made is None:
            raise TypeError(f"{function.__name__} of constants")
        return made(*args, **kwargs)

    def __add__(self, other: Any) -> Any:
        return np.add(self, other)

    def __sub__(self, other: Any) -> Any:
        return np.subtract(self, other)

    def __mul__(self, other: Any) -> Any:
        return np.multiply(self, other)

    def __truediv__(self, other: Any) -> Any:
        return np.true_divide(self, other)

    def __neg__(self) -> Any:
        return np.negative(self)

    def __radd__(self, other: Any) -> Any:
        return np.add(other, self)

    def __rsub__(self, other: Any) -> Any:
        return np.subtract(other, self)

    def __rmul__(self, other: Any) -> Any:
        return np.multiply(other, self)

    def __rtruediv__(self, other: Any) -> Any:
        return np.true_divide(other, self)


def _shifted(place: int, by: int, step: int) -> Callable[[tuple[Index, ...]], Index]:
    return lambda index: index[place] * step + by


def _fixed(place: Any) -> Callable[[tuple[Index, ...]], Index]:
    return lambda _: Index.of(place)


class Numpy:
    """numpy, for modules that make arrays of named extents."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Zeros of a shape."""
        return self.full(shape, 0, dtype)

    def ones(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Ones of a shape."""
        return self.full(shape, 1, dtype)

    empty = zeros

    def full(self, shape: Any, number: Any, dtype: Any = None) -> Any:
        """One number everywhere."""
        dims = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        dtype = np.dtype(np.float64 if dtype is None else dtype)
        if isinstance(number, Ratio):
            return _broadcast_to(Known.of_sizes(number, DType.F64), dims)
        if dtype.kind in "iub" or not (len(dims) > 1 or any(isinstance(dim, Size) for dim in dims)):
            return np.full(tuple(map(int, dims)), number, dtype)
        value = float(number) if not isinstance(number, Size) else number
        return Known(dims, lambda index: Const(value, DType.of(dtype)), dtype)

    def asarray(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """The array itself where it is Known."""
        if isinstance(value, Known):
            return value
        if isinstance(value, Size | Ratio):
            return Known((), lambda index: Const(value, DType.F64), np.float64)
        return np.asarray(value, *args, **kwargs)

    array = ascontiguousarray = asarray

    def broadcast_to(self, value: Any, shape: Any) -> Any:
        """An array repeated along named extents."""
        return (
            _broadcast_to(Known.of(value), tuple(shape))
            if any(isinstance(dim, Size) for dim in shape)
            else np.broadcast_to(value, shape)
        )

    def prod(self, values: Any) -> Any:
        """The product, of extents too."""
        return math.prod(values) if isinstance(values, tuple | list) else np.prod(values)


def own(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The part of an index that an array of this shape, broadcast, is read at."""
    last = index[len(index) - len(shape) :]
    return tuple(Index.of(0) if extent == 1 else place for place, extent in zip(last, shape, strict=True))


MAPS = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.true_divide: "div",
    np.negative: "neg",
    np.sqrt: "sqrt",
    np.absolute: "abs",
    np.sign: "sign",
    np.isfinite: "finite",
    np.isnan: "never",
}


def below_always(index: Index, end: int) -> bool | None:
    """Whether an index is below a size for all sizes, or for none; None where that is not seen."""
    path = next(
        (size.path for size in (end, index.const, *(f for _, f in index.terms)) if isinstance(size, Size)), None
    )
    low, high = map(poly_of, index.range)
    lows = {} if path is None else path.lows
    if (poly_of(end) - Poly.number(1) - high).never_negative(lows):
        return True
    return False if (low - poly_of(end)).never_negative(lows) else None


def _concatenate(parts: Sequence[Any], axis: int = 0, **_: Any) -> Known:
    knowns = [Known.of(part) for part in parts]
    axis %= knowns[0].ndim
    ends = [0]
    for known in knowns:
        ends.append(ends[-1] + known.shape[axis])

    def at(index: tuple[Index, ...]) -> Expr:
        found: Expr | None = None
        for known, begin, end in reversed(list(zip(knowns, ends, ends[1:], strict=False))):
            decided = below_always(index[axis], end)
            if decided is False and found is not None:
                continue
            here = known.at((*index[:axis], index[axis] - begin, *index[axis + 1 :]))
            below = Apply("lt", (Position(index[axis]), Const(end, DType.I64)))
            found = here if found is None or decided else Where(below, here, found)
        assert found is not None
        return found

    return Known((*knowns[0].shape[:axis], ends[-1], *knowns[0].shape[axis + 1 :]), at, knowns[0].dtype)


def _pad(array: Known, widths: Any, *_: Any, **__: Any) -> Known:
    def at(index: tuple[Index, ...]) -> Expr:
        inner = tuple(place - before for place, (before, _) in zip(index, widths, strict=True))
        value = array.at(inner)
        for place, extent, (before, after) in zip(inner, array.shape, widths, strict=True):
            zero = Const(0.0, value.dtype)
            if not (type(before) is int and before == 0):
                value = Where(Apply("ge", (Position(place), Const(0, DType.I64))), value, zero)
            if not (type(after) is int and after == 0):
                value = Where(Apply("lt", (Position(place), Const(extent, DType.I64))), value, zero)
        return value

    shape = tuple(extent + before + after for extent, (before, after) in zip(array.shape, widths, strict=True))
    return Known(shape, at, array.dtype)


def _take(array: Known, places: Any, axis: int | None = None) -> Known:
    numbers = [int(place) for place in np.asarray(places).reshape(-1)]
    if axis is None or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise TypeError("elements taken of constants, which are not one after another")
    return array[
        tuple(
            slice(numbers[0], numbers[0] + len(numbers)) if a == axis % array.ndim else slice(None)
            for a in range(array.ndim)
        )
    ]


def _split(array: Known, parts: Any, axis: int = 0) -> list[Known]:
    if not isinstance(parts, int):
        raise TypeError("constants split into parts of given extents")
    each = array.shape[axis] // parts
    cuts = [slice(each * place, each * (place + 1)) for place in range(parts)]
    return [array[tuple(cut if a == axis % array.ndim else slice(None) for a in range(array.ndim))] for cut in cuts]


def _repeat(array: Known, count: int, axis: int | None = None) -> Known:
    if axis is None:
        array, axis = array.reshape(-1), 0
    place = axis % array.ndim

    def at(index: tuple[Index, ...]) -> Expr:
        return array.at((*index[:place], index[place] // count, *index[place + 1 :]))

    return Known((*array.shape[:place], array.shape[place] * count, *array.shape[place + 1 :]), at, array.dtype)


def _einsum(form: str, *operands: Any, **_: Any) -> Known:
    inputs, result = form.split("->")
    knowns = [Known.of(one) for one in operands]
    extents = {
        letter: e
        for part, known in zip(inputs.split(","), knowns, strict=True)
        for letter, e in zip(part, known.shape, strict=True)
    }
    summed = [letter for letter in extents if letter not in result]

    def at(index: tuple[Index, ...]) -> Expr:
        axes = {letter: Axis(f"r{next(FRESH)}", extents[letter]) for letter in summed}
        places = {**dict(zip(result, index, strict=True)), **{letter: Index.of(axis) for letter, axis in axes.items()}}
        parts = [
            _double(known.at(own(tuple(places[letter] for letter in part), known.shape)))
            for part, known in zip(inputs.split(","), knowns, strict=True)
        ]
        value = parts[0]
        for part in parts[1:]:
            value = Apply("mul", (value, part))
        return Reduce("sum", tuple(axes.values()), (value,), 0, DType.F64) if axes else value

    return Known(tuple(extents[letter] for letter in result), at, np.float64)


def _double(expr: Expr) -> Expr:
    return expr if expr.dtype is DType.F64 else Cast(expr, DType.F64)


def _broadcast_to(array: Known, shape: tuple[int, ...], **_: Any) -> Known:
    return Known(tuple(shape), lambda index: array.at(own(index, array.shape)), array.dtype)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: _concatenate,
    np.pad: _pad,
    np.take: _take,
    np.split: _split,
    np.einsum: _einsum,
    np.repeat: _repeat,
    np.broadcast_to: _broadcast_to,
    np.transpose: lambda array, axes=None: array.transpose(*(axes or ())),
    np.reshape: lambda array, shape, **_: array.reshape(shape),
    np.moveaxis: lambda array, a, b: array.transpose(_moved(array.ndim, a, b)),
    np.expand_dims: lambda array, axis: array.reshape(*array.shape[:axis], 1, *array.shape[axis:]),
    np.flip: lambda array, axis: array[
        tuple(slice(None, None, -1) if a in _axes(axis) else slice(None) for a in range(array.ndim))
    ],
    np.all: lambda array, **_: array.all(),
    np.zeros_like: lambda array, **_: Known(array.shape, lambda index: Const(0.0, DType.F64), array.dtype),
    np.ones_like: lambda array, **_: Known(array.shape, lambda index: Const(1.0, DType.F64), array.dtype),
}
"""The functions of numpy that are followed, beside the maps of elements."""


def _axes(axis: Any) -> tuple[int, ...]:
    return tuple(axis) if isinstance(axis, tuple | list) else (axis,)


def _moved(rank: int, one: int, two: int) -> tuple[int, ...]:
    order = [axis for axis in range(rank) if axis != one % rank]
    order.insert(two % rank, one % rank)
    return tuple(order)
