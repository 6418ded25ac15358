"""What is found in the values of weights and told to users: before a compilation, and in its report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from compiler.encodings.encoding import Use

MEGABYTE = 1e6


class Finding(ABC):
    """Of one weight tensor, for preflight. Classes are in `FINDINGS`.

    key       what preflight calls it
    computed  whether it is also looked for in tensors that are computed of the file's alone
    """

    key: ClassVar[str]
    computed: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of(cls, constant: np.ndarray, use: Use = Use.PRODUCT) -> Self | None:
        """What there is to tell of a constant that a product or a recurrence reads; None for nothing."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What preflight tells beside name and shape."""


class Reported(Finding):
    """One that reports of compilations tell too, with what became of it.

    title  of its section
    """

    title: ClassVar[str]

    @property
    @abstractmethod
    def words(self) -> str:
        """Of what kind it is: weights of one shape and kind are one entry."""

    @property
    @abstractmethod
    def gain(self) -> int:
        """Entries with the most of it come first."""

    @classmethod
    @abstractmethod
    def summary(cls, each: Sequence[Self]) -> str:
        """Of tensors of one shape and kind together."""

    @staticmethod
    @abstractmethod
    def is_used_by(algorithm: str) -> bool:
        """Whether kernels of an algorithm read less for it."""

    @staticmethod
    @abstractmethod
    def note(used: bool) -> str:
        """What became of the tensors."""

    @staticmethod
    def notices(algorithms: Sequence[str]) -> list[str]:
        """What a user should know of kernels by these algorithms."""
        return []
