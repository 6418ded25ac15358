"""Strings as the numbers that a program computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.pack.loader.errors import InputError
from compiler.pack.loader.specs import Array, TensorSpec


class _Strings:
    """The numbers of strings during one run: those of the model, and from -1 down one for each other that is met."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._numbers = {word: number for number, word in enumerate(words)}
        self._others: list[str] = []

    def numbers(self, spec: TensorSpec, value: Any) -> Array:
        """An input as numbers. Raises InputError for what is no array of strings."""
        array = np.asarray(value)
        if array.dtype.kind not in "OSUT" or not all(isinstance(item, (str, bytes)) for item in array.flat):
            raise InputError(f"input {spec.name!r} is no array of strings. Fix: give it as {spec}, of str")
        flat = [item.decode() if isinstance(item, bytes) else str(item) for item in array.flat]
        return np.array([self._number(item) for item in flat], np.int64).reshape(array.shape)

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            self._others.append(word)
            number = self._numbers[word] = -len(self._others)
        return number

    def of(self, numbers: Array) -> Array:
        """Strings of their numbers, as an array of objects."""
        found = np.empty(numbers.size, object)
        found[:] = [self._words[number] if number >= 0 else self._others[-1 - number] for number in numbers.flat]
        return found.reshape(numbers.shape)
