"""Writes `cupy.txt`: what CuPy has of numpy's functions, and with which arguments.

    python tests/device_arrays/listed.py > tests/device_arrays/cupy.txt

runs where CuPy is installed. It needs no GPU: an array on host memory is made, and what CuPy does with it before it
asks for a device shows what it refuses.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np

METHODS_OF_UFUNCS = ("at", "outer", "reduce", "accumulate")
MODULES = ("", "linalg")


def main() -> None:
    """Prints the list."""
    print(f"# What CuPy {cupy.__version__} has of NumPy {np.__version__}, by listed.py")
    for line in (*functions(), *ufuncs(), *methods()):
        print("\n".join(textwrap.wrap(line, 120, subsequent_indent="    ", break_on_hyphens=False)))


def functions() -> Iterator[str]:
    """`function NAME ARGUMENT ...`; an argument with a star takes any number of them."""
    for module in MODULES:
        ours, theirs = (getattr(one, module) if module else one for one in (np, cupy))
        for name in sorted(set(dir(ours)) & set(dir(theirs))):
            own, other = getattr(ours, name), getattr(theirs, name)
            if name.startswith("_") or isinstance(own, type | np.ufunc) or not callable(own) or own is other:
                continue
            full = f"{module}.{name}" if module else name
            yield " ".join(["function", full, *_arguments(other)])


def _arguments(function: Callable[..., Any]) -> list[str]:
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # a ufunc where numpy has a function
        return ["x", "out"]
    return [stars.get(one.kind, "") + one.name for one in found]


def ufuncs() -> Iterator[str]:
    """`ufunc NAME METHODS LOOPS`: a loop is the types of its inputs."""
    for name in sorted(set(dir(np)) & set(dir(cupy))):
        own, other = getattr(np, name), getattr(cupy, name)
        if isinstance(own, np.ufunc) and own.__name__ == name:
            loops = dict.fromkeys(loop.split("->")[0] for loop in getattr(other, "types", ("*",)))
            has = [method for method in METHODS_OF_UFUNCS if _is_there(own, method)]
            yield " ".join(["ufunc", name, ",".join(has) or "-", *loops])


def _is_there(ufunc: np.ufunc, method: str) -> bool:
    """Whether CuPy goes on until it asks for a device."""
    x = on_host_memory()
    operands = {"at": (0, *[1.0] * (ufunc.nin - 1)), "outer": (x,)}
    try:
        getattr(ufunc, method)(x, *operands.get(method, ()))
    except (cupy.cuda.runtime.CUDARuntimeError, ImportError):
        return True
    except (TypeError, NotImplementedError, ValueError, AttributeError, RuntimeError):
        return False
    return True


def on_host_memory() -> Any:
    """An array of CuPy's whose memory is the host's."""
    values = np.arange(6.0)
    memory = cupy.cuda.UnownedMemory(values.ctypes.data, values.nbytes, values, device_id=0)
    return cupy.ndarray((6,), values.dtype, cupy.cuda.MemoryPointer(memory, 0))


def methods() -> Iterator[str]:
    """`methods NAME ...`: what arrays have."""
    yield " ".join(["methods", *sorted(name for name in dir(cupy.ndarray) if hasattr(np.ndarray, name))])


if __name__ == "__main__":
    main()
