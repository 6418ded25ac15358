"""What was found in the values of an array, which nobody changes: looked for once, as long as the array is there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Found(Generic[T]):
    """By array, which is told by itself and not by its values, and by the kind of what is looked for.

    Graphs that are made of one another hold the same arrays. Two threads may both look for one.
    """

    def __init__(self) -> None:
        self._by_array: dict[int, tuple[weakref.ref[np.ndarray], dict[str, T]]] = {}

    def of(self, array: np.ndarray, kind: str, find: Callable[[np.ndarray], T]) -> T:
        """What `find` gives, or gave before; one kind means one function."""
        found = self._of(array)
        if kind not in found:
            found[kind] = find(array)
        return found[kind]

    def __len__(self) -> int:
        """Arrays of which something is known."""
        return len(self._by_array)

    def _of(self, array: np.ndarray) -> dict[str, T]:
        key = id(array)
        if key not in self._by_array or self._by_array[key][0]() is not array:
            self._by_array[key] = weakref.ref(array, lambda gone: self._forget(key, gone)), {}
        return self._by_array[key][1]

    def _forget(self, key: int, gone: weakref.ref[np.ndarray]) -> None:
        """Unless another array has taken its place."""
        if key in self._by_array and self._by_array[key][0] is gone:
            del self._by_array[key]
