"""Arrays that behave as CuPy's do and lie on the host: what tests evaluate the reference on where no GPU is.

They follow numpy's protocols as CuPy's arrays follow them, and refuse what those refuse: `cupy.txt` lists what there
is, with which arguments and for which types; the rest is from CuPy's page on differences from numpy.

- No array of numpy's is taken beside them, and none is made of them but by `get`.
- A reduction to one element, or an element itself, is an array without axes.
- An index that lies outside wraps around.
- Where two values are written to one element, here the first one stays.
- What does not fit an integer type becomes the type's nearest number, and NaN 0.
- There are no small floats, objects or texts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

LISTED = Path(__file__).with_name("cupy.txt")
TYPES = "?bhilqBHILQefdFD"


class Lists:
    """What CuPy has: arguments of functions, and methods and loops of ufuncs, by name; names of arrays' attributes."""

    def __init__(self) -> None:
        self.functions: dict[str, list[str]] = {}
        self.ufuncs: dict[str, tuple[list[str], list[str]]] = {}
        self.attributes: list[str] = []
        for line in LISTED.read_text().replace("\n    ", " ").splitlines():
            match line.split():
                case ["function", name, *arguments]:
                    self.functions[name] = arguments
                case ["ufunc", name, methods, *loops]:
                    self.ufuncs[name] = (methods.split(","), loops)
                case ["methods", *names]:
                    self.attributes = names


LISTS = Lists()


class DeviceArray(NDArrayOperatorsMixin):
    """One array; `get` copies it to numpy, `uploaded` makes one."""

    __array_priority__ = 100

    def __init__(self, host: Any) -> None:
        array = np.asarray(host)
        if array.dtype.char not in TYPES:
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self._host = array

    def get(self) -> np.ndarray:
        return self._host.copy()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        listed = LISTS.ufuncs.get(ufunc.__name__)
        operands = inputs if method == "__call__" else inputs[:1]
        if listed is None or not all(isinstance(one, DeviceArray | np.ndarray) or _is_scalar(one) for one in operands):
            return NotImplemented
        methods, loops = listed
        if method not in ("__call__", *methods):
            raise NotImplementedError(f"`cupy_{ufunc.__name__}.{method}` is not supported yet")
        hosts = [_host(one) for one in inputs]
        if method == "__call__" and loops != ["*"] and not _has_loop(ufunc, hosts, loops):
            raise TypeError(f"Wrong type of arguments for cupy_{ufunc.__name__}")
        if out is not None:
            named["out"] = tuple(_host(one) for one in out)
        if set(named) - {"out", "dtype", "axis", "keepdims", "casting"}:
            raise TypeError(f"cupy_{ufunc.__name__} takes no {sorted(named)}")
        found = getattr(ufunc, method)(*hosts, **named)
        return out[0] if out is not None else None if method == "at" else _device(found)

    def __array_function__(self, function: Callable[..., Any], types: Any, given: Any, named: Any) -> Any:
        name = ".".join([*function.__module__.split(".")[1:], function.__name__])
        arguments = LISTS.functions.get(name)
        if arguments is None or not all(issubclass(one, DeviceArray | np.ndarray) for one in types):
            return NotImplemented
        takes_any = any(one.startswith("**") for one in arguments)
        if not takes_any and (unknown := set(named) - set(arguments)):
            raise TypeError(f"{name}() got an unexpected keyword argument {min(unknown)!r}")
        if not any(one.startswith("*") for one in arguments) and len(given) > len(arguments):
            raise TypeError(f"{name}() takes {len(arguments)} arguments")
        if name in WRAPPING:
            return WRAPPING[name](*given, **named)
        return _device(function(*map(_host, given), **{key: _host(one) for key, one in named.items()}))

    def __getitem__(self, key: Any) -> DeviceArray:
        return DeviceArray(self._host[_wrapped(key, self.shape)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, DeviceArray) and not _is_scalar(value):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        places = np.arange(self.size).reshape(self.shape)[_wrapped(key, self.shape)]
        values = np.broadcast_to(_host(value), np.shape(places))
        _, firsts = np.unique(places, return_index=True)
        self._host.flat[np.ravel(places)[firsts]] = np.ravel(values)[firsts]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in LISTS.attributes:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        if name in METHODS:
            return functools.partial(METHODS[name], self)
        found = getattr(self._host, name)
        if not callable(found):
            return _device(found) if isinstance(found, np.ndarray) else found
        return lambda *given, **named: _device(found(*map(_host, given), **{k: _host(v) for k, v in named.items()}))

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[DeviceArray]:
        return (DeviceArray(row) for row in self._host)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def item(self) -> Any:
        return self._host.item()

    def tolist(self) -> Any:
        return self._host.tolist()


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.generic)


def _host(value: Any) -> Any:
    """For numpy. Raises TypeError for an array of numpy's."""
    if isinstance(value, DeviceArray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return type(value)(map(_host, value))
    return value


def _device(found: Any) -> Any:
    """Of what numpy gave."""
    if isinstance(found, np.ndarray | np.generic):
        return DeviceArray(found)
    if isinstance(found, list | tuple):
        return tuple(map(_device, found))
    return found


def _has_loop(ufunc: np.ufunc, hosts: list[Any], loops: list[str]) -> bool:
    """Whether a loop takes the arguments without losing anything."""
    types = tuple(
        one.dtype if hasattr(one, "dtype") else {bool: np.dtype("?")}.get(type(one), type(one)) for one in hosts
    )
    resolved = ufunc.resolve_dtypes((*types, *[None] * ufunc.nout))[: ufunc.nin]
    return any(all(map(np.can_cast, resolved, loop)) for loop in loops)


def _wrapped(key: Any, shape: tuple[int, ...]) -> Any:
    """A key for numpy, with its indices within the array."""
    parts = list(key) if isinstance(key, tuple) else [key]
    taken = sum(0 if one is None or one is Ellipsis else _axes(one) for one in parts)
    axis, found = 0, []
    for one in parts:
        if one is Ellipsis:
            axis += len(shape) - taken
        elif isinstance(one, DeviceArray) and one.dtype.kind != "b":
            host = one._host
            one = host % shape[axis] if shape[axis] else host
            axis += 1
        elif isinstance(one, np.ndarray):
            raise TypeError("an index array of numpy's is copied to the device silently: say so")
        elif one is not None:
            axis += _axes(one)
            one = _host(one)
        found.append(one)
    return tuple(found)


def _axes(part: Any) -> int:
    return part.ndim if isinstance(part, DeviceArray) and part.dtype.kind == "b" else 1


def _take(array: DeviceArray, indices: Any, axis: int | None = None) -> DeviceArray:
    host = array._host
    return DeviceArray(np.take(host, np.asarray(_host(indices)), axis, mode="wrap"))


def _take_along_axis(array: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
    return DeviceArray(np.take_along_axis(array._host, _host(indices) % array.shape[axis], axis))


def _astype(array: DeviceArray, dtype: Any, *, copy: bool = True) -> DeviceArray:
    """As a GPU converts: within the type's range."""
    to, host = np.dtype(dtype), array._host
    if to.kind in "iu" and host.dtype.kind == "f":
        limits = np.iinfo(to)
        whole = np.where(np.isnan(host), 0, np.trunc(host))
        inside = np.where((whole >= limits.min) & (whole < 2.0 ** (8 * to.itemsize - (to.kind == "i"))), whole, 0)
        ends = np.where(whole < limits.min, limits.min, limits.max).astype(to)
        return DeviceArray(np.where(inside == whole, inside.astype(to), ends))
    return DeviceArray(host.astype(to, copy=copy))


def uploaded(array: np.ndarray, dtype: Any = None) -> DeviceArray:
    """A copy of an array of numpy's."""
    return DeviceArray(np.array(array, dtype))


METHODS: dict[str, Callable[..., DeviceArray]] = {"astype": _astype, "take": _take}
WRAPPING: dict[str, Callable[..., DeviceArray]] = {
    "asarray": uploaded,
    "take": _take,
    "take_along_axis": _take_along_axis,
}
"""What numpy's function of the name does not stand for."""


class Module:
    """What CuPy is as a module: functions of numpy that it has too, and make arrays of its own."""

    float32 = np.float32
    lib = SimpleNamespace(
        stride_tricks=SimpleNamespace(
            sliding_window_view=lambda x, shape, axis: DeviceArray(
                np.lib.stride_tricks.sliding_window_view(_host(x), shape, axis)
            )
        )
    )

    def __getattr__(self, name: str) -> Any:
        if name not in LISTS.functions and name not in LISTS.ufuncs:
            raise AttributeError(f"module 'cupy' has no attribute {name!r}")
        if name in ("asarray", "ones", "zeros"):
            return lambda *given, **named: uploaded(getattr(np, name)(*given, **named))
        return getattr(np, name)
