"""Where a reference may be evaluated beside numpy: a module whose arrays follow numpy's protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.ops.arrays import is_numpy

TYPES = "?bhilqBHILQefd"
"""Characters of the types of arrays, as numpy has them."""


@dataclass
class ArrayModule:
    """One module, and what was evaluated in it.

    name      for people
    upload    an array of numpy's, copied to one of the module's
    download  the other way
    free      gives back the memory that the module keeps for later arrays
    there     how many nodes were evaluated in it, by operator
    here      how many it refused and numpy evaluated
    reasons   the latest reason, by operator
    """

    name: str
    upload: Callable[[np.ndarray], Any]
    download: Callable[[Any], np.ndarray]
    free: Callable[[], None] = lambda: None
    there: Counter[str] = field(default_factory=Counter)
    here: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)

    def uploaded(self, array: np.ndarray) -> np.ndarray:
        """An array as the module's. Raises TypeError for elements that it has no type for."""
        if not is_numpy(array):
            return array
        if not self.takes(array.dtype):
            raise TypeError(f"{self.name} has no {array.dtype}")
        found: np.ndarray = self.upload(array)
        return found

    def downloaded(self, array: np.ndarray) -> np.ndarray:
        """An array as numpy's."""
        return array if is_numpy(array) else self.download(array)

    def takes(self, dtype: np.dtype) -> bool:
        """Whether there are arrays of such elements."""
        return dtype.char in TYPES and dtype.isbuiltin == 1

    def refused(self, operator: str, reason: str) -> None:
        """Counts a node that numpy has to evaluate."""
        self.here[operator] += 1
        self.reasons[operator] = reason

    def __str__(self) -> str:
        """What was evaluated where."""
        counts = f"{self.there.total()} nodes by {self.name}"
        if not self.here:
            return counts
        each = (f"{count} {op} ({self.reasons[op]:.120})" for op, count in sorted(self.here.items()))
        return f"{counts}, {self.here.total()} by numpy: {', '.join(each)}"
