"""Which token is taken: the most probable one, or one that is drawn.

Temperature divides the logits. `top_k` leaves the k most probable tokens (Fan, Lewis and Dauphin 2018, Hierarchical
Neural Story Generation); of these `top_p` leaves the fewest most probable ones that together reach p (Holtzman et al.
2020, The Curious Case of Neural Text Degeneration).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """How tokens are taken. `temperature` 0: the most probable one; `top_k` 0 and `top_p` 1: among all.

    Raises `UsageError` for what makes no sense.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "0 or more; 0 takes the likeliest"),
            ("top_k", self.top_k, self.top_k >= 0, "0 or more; 0 leaves all tokens"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("seed", self.seed, self.seed >= 0, "0 or more"),
        )
        for name, value, is_fit, fix in checks:
            if not is_fit:
                raise UsageError(f"{name} is {value}", fix=f"give {fix}")


class Sampler:
    """Takes tokens; those that are drawn follow from the seed."""

    def __init__(self, sampling: Sampling) -> None:
        self._how = sampling
        self._random = np.random.default_rng(sampling.seed)

    def take(self, logits: NDArray[Any]) -> int:
        """A token by its logits [words]. Raises `UsageError` where one is NaN."""
        most = int(np.argmax(logits))  # of NaN, where there is one
        if np.isnan(logits[most]):
            raise UsageError("the model's logits are not numbers", fix="check its inputs, or compile it in fp32")
        if self._how.temperature == 0:
            return most
        kept = self._kept(logits)
        scaled = (logits[kept].astype(np.float64) - float(logits[most])) / self._how.temperature
        shares = np.exp(scaled)
        shares /= shares.sum()
        if self._how.top_p < 1:
            order = np.argsort(-shares, kind="stable")
            enough = int(np.searchsorted(np.cumsum(shares[order]), self._how.top_p)) + 1
            order = order[:enough]
            kept, shares = kept[order], shares[order]
        ends = np.cumsum(shares)
        drawn = int(np.searchsorted(ends, self._random.random() * ends[-1], side="right"))
        return int(kept[min(drawn, len(kept) - 1)])

    def _kept(self, logits: NDArray[Any]) -> NDArray[np.intp]:
        """The `top_k` tokens, in their order; of equal logits those that come first."""
        count = self._how.top_k
        if not 0 < count < len(logits):
            return np.arange(len(logits))
        least = np.partition(logits, len(logits) - count)[len(logits) - count]
        above, equal = np.flatnonzero(logits > least), np.flatnonzero(logits == least)
        return np.sort(np.concatenate([above, equal[: count - len(above)]]))
