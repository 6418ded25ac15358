"""How the elements of a constant may be kept in memory, which is for its values to say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Encoding:
    """One way to keep a constant's elements.

    `word` is what the text of a workload calls a constant that may be kept so.
    """

    name: str
    word: str

    def __str__(self) -> str:
        return self.name

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """A constant with its elements changed as the encoding asks; the same where it may hold any elements."""
        return constant


DENSE = Encoding("dense", "")
"""Each element in its own dtype."""
Encodings = tuple[Encoding, ...]
"""In which a tensor may be kept. DENSE is always among them."""


def pruned(array: np.ndarray, encodings: Encodings) -> np.ndarray:
    """An array with zeros, and few values, where encodings of a constant ask for it: it stands in trials of kernels."""
    for one in encodings:
        array = one.pruned(array)
    return array
