"""Where a decoder's weights come from, and all of them as the codes of one coding."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.generate.codes import Codes, Coding, coded
from bench.generate.shapes import Shape

TABLE = "token_embd"


class Weights(Protocol):
    """Weights of a decoder by the names that GGUF gives them, without the suffix `.weight`."""

    @property
    def shape(self) -> Shape:
        """What it is the weights of."""
        ...

    def array(self, name: str) -> NDArray[np.float32]:
        """A matrix [outputs, inputs], the table [words, width], or the weights of a norm."""
        ...


@dataclass(frozen=True)
class Seeded:
    """Random weights: each array depends on the seed and on its name only."""

    shape: Shape
    seed: int = 0

    def array(self, name: str) -> NDArray[np.float32]:
        """Of a norm values about 1, of a matrix such that its outputs are about as large as its inputs."""
        chance = np.random.default_rng((self.seed, zlib.crc32(name.encode())))
        if length := self.shape.vectors.get(name):
            return chance.uniform(0.8, 1.2, length).astype(np.float32)
        size = self.shape.matrices.get(name, (self.shape.words, self.shape.width))
        spread = 1.0 if name == TABLE else size[1] ** -0.5
        return chance.standard_normal(size, np.float32) * np.float32(spread)


@dataclass(frozen=True)
class Parts:
    """A decoder's weights as a model holds them.

    table     [words, width], fp32
    vectors   of the norms, fp32
    matrices  in codes
    """

    shape: Shape
    coding: Coding
    table: NDArray[np.float32]
    vectors: Mapping[str, NDArray[np.float32]]
    matrices: Mapping[str, Codes]


@dataclass(frozen=True)
class Rounded(Mapping[str, Codes]):
    """The matrices of some weights, each rounded to codes when it is asked for."""

    weights: Weights
    coding: Coding

    def __getitem__(self, name: str) -> Codes:
        return coded(self.weights.array(name), self.coding, is_head=name == "output")

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights.shape.matrices)

    def __len__(self) -> int:
        return len(self.weights.shape.matrices)


def parts(weights: Weights, coding: Coding, *, at_once: bool = True) -> Parts:
    """All weights, the matrices rounded to codes: at once, or each when it is asked for."""
    shape, rounded = weights.shape, Rounded(weights, coding)
    vectors = {name: weights.array(name) for name in shape.vectors}
    return Parts(shape, coding, weights.array(TABLE), vectors, dict(rounded) if at_once else rounded)
