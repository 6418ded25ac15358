"""Public models whose dimensions are open, with a range and the sizes that they are timed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ranged:
    """A public model: how its dimensions are bound, the sizes to time, and what integers of its inputs are below."""

    name: str
    dims: Mapping[str, int | Mapping[str, int]]
    sizes: Sequence[Mapping[str, int]]
    below: int = 2

    def at(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Every dimension as a number."""
        fixed = {name: size for name, size in self.dims.items() if isinstance(size, int)}
        return {**fixed, **sizes}

    def drawn(self, inputs: Mapping[str, tuple[str, tuple[int, ...]]], seed: int = 0) -> dict[str, np.ndarray]:
        """Seeded inputs by name, for dtypes and shapes."""
        random = np.random.default_rng(seed)
        return {
            name: random.integers(0, self.below, shape).astype(dtype)
            if np.dtype(dtype).kind in "iu"
            else random.standard_normal(shape).astype(dtype)
            for name, (dtype, shape) in inputs.items()
        }


def _batches(name: str, dimension: str, most: int, below: int) -> Ranged:
    sizes = [{dimension: size} for size in (1, most // 4, most // 2, most)]
    return Ranged(name, {dimension: {"min": 1, "opt": 1, "max": most}}, sizes, below)


def _picture(height: int, width: int) -> dict[str, int]:
    return {"DynamicDimension.1": height, "DynamicDimension.2": width}


SIDE = {"min": 64, "opt": 320, "max": 640}
SUBJECTS: Sequence[Ranged] = (
    _batches("magika", "unk__214", 8, 256),
    _batches("g2p_bert", "unk__543", 8, 20),
    Ranged(
        "g2p_encoder",
        {"unk__66": 1, "unk__67": {"min": 1, "opt": 16, "max": 64}},
        [{"unk__67": length} for length in (4, 16, 32, 64)],
    ),
    Ranged(
        "ppocr_rec",
        {"DynamicDimension.0": 1, "DynamicDimension.1": {"min": 32, "opt": 320, "max": 640}},
        [{"DynamicDimension.1": width} for width in (64, 160, 320, 480, 640)],
    ),
    Ranged(
        "ppocr_det",
        {"DynamicDimension.0": 1, "DynamicDimension.1": SIDE, "DynamicDimension.2": SIDE},
        [_picture(*size) for size in ((128, 128), (320, 320), (320, 640), (480, 480), (640, 640))],
    ),
)
