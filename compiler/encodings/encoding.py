"""How the elements of a constant may be kept in memory, which is for its values to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np


class Use(Enum):
    """What reads a constant: which encodings are of use depends on it (`compiler.forms.uses`)."""

    ONCE = "once"
    """A product of few rows, or each step of a recurrence: reading is most of the work."""
    PRODUCT = "product"
    """A factor of a sum of products."""
    BF16_PRODUCT = "bf16 product"
    """The same, by kernels that may take floats as bf16."""
    FEW_ROWS = "few rows"
    """A product of so few rows that columns fill the vectors."""
    GEMV = "gemv"
    """A product of even fewer rows, which reads its matrix once."""
    RECURRENCE = "recurrence"
    """Products in the steps of a recurrent layer, by a matrix [..., gates, inputs]."""
    TENSOR_CORES = "tensor cores"
    """A product on a GPU."""


REGION_USES = (Use.ONCE, Use.PRODUCT, Use.FEW_ROWS, Use.RECURRENCE, Use.GEMV)
"""By which regions tell their constants apart, in this order: keys of records are hashed from it."""


@dataclass(frozen=True)
class Encoding:
    """One way to keep a constant's elements. Its class is in `ENCODINGS`, and `find` gives those that values allow.

    `word` is what the text of a workload calls a constant that may be kept so: `begins`, then numbers.
    """

    begins: ClassVar[str] = ""
    name: str
    word: str

    def __str__(self) -> str:
        return self.name

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> Encodings:
        """Those of this class in which a constant may be kept for a use, by its dtype, size and values."""
        raise NotImplementedError

    @classmethod
    def read(cls, word: str) -> Encoding:
        """The encoding of this class that has a word. Raises ValueError for any other word."""
        raise NotImplementedError

    @classmethod
    def words(cls, *parts: object) -> str:
        """What begins as the words of this class do and goes on with these."""
        return "_".join(map(str, (cls.begins, *parts)))

    @classmethod
    def numbers(cls, word: str) -> list[int]:
        """Those of a word of this class; none of any other word."""
        parts = word.removeprefix(cls.words("")).split("_")
        return [*map(int, parts)] if word.startswith(cls.words("")) and all(map(str.isdecimal, parts)) else []

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether a constant of this shape may be kept so, whatever its values."""
        return True

    def pruned(self, constant: np.ndarray) -> np.ndarray:
        """A constant with its elements changed as the encoding asks; the same where it may hold any elements."""
        return constant


DENSE = Encoding("dense", "")
"""Each element in its own dtype."""
Encodings = tuple[Encoding, ...]
"""In which a tensor may be kept."""


def pruned(array: np.ndarray, encodings: Encodings) -> np.ndarray:
    """An array with zeros, and few values, where encodings of a constant ask for it: it stands in trials of kernels."""
    for one in encodings:
        array = one.pruned(array)
    return array


def group_of(constant: np.ndarray, use: Use) -> int:
    """Neighbours that an instruction of a CPU multiplies together; 0 where a constant is not multiplied so.

    One fp32 number where few rows are multiplied, two that are rounded to bf16, four signed bytes.
    """
    if constant.dtype == np.int8:
        return 4 if use in (Use.PRODUCT, Use.BF16_PRODUCT) else 0
    return {Use.FEW_ROWS: 1, Use.BF16_PRODUCT: 2}.get(use, 0) if constant.dtype == np.float32 else 0
