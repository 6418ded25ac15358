"""What lies between a caller and a program: strings, which a program knows as numbers, and where random numbers are.

A string that the model itself holds has as its number the place in `words`; any other one a number of its own for one
run, from -1 down, so that strings are equal where their numbers are. A program only compares them and moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

RANDOM_STATE = "random:state"
"""The name of the input that random operators read: i64 [2], a key and the number of the run."""


@dataclass(frozen=True)
class Border:
    """The strings and the randomness of one program.

    words    the strings of the model, each at its number
    inputs   names of the inputs that are strings, and of the outputs that are
    random   whether the last of the model's own inputs in the graph is RANDOM_STATE, which no caller knows of
    """

    words: tuple[str, ...] = ()
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    random: bool = False

    def coded(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Inputs by name, those that are strings as their numbers (i64)."""
        numbers = {word: number for number, word in enumerate(self.words)}
        found = dict(arrays)
        for name in self.inputs & arrays.keys():
            flat = [numbers.setdefault(str(item), len(self.words) - len(numbers) - 1) for item in arrays[name].flat]
            found[name] = np.array(flat, np.int64).reshape(arrays[name].shape)
        return found


PLAIN = Border()
"""Of a program without either."""
