"""How near a runtime's tokens and logits are to the float64 reference over the same codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.generate.reference import reference_logits
from bench.generate.weights import Parts


@dataclass(frozen=True)
class Exactness:
    """Of a text that a runtime has generated, always taking the likeliest token.

    count       its tokens
    equal       how many of them, from the first on, are those of the reference
    divergence  from the reference's distribution to the runtime's (Kullback and Leibler 1951), in nats, the mean over
                all tokens; None without logits
    largest     of any token
    error       the largest difference of a logit over the reference's largest
    """

    count: int
    equal: int
    divergence: float | None = None
    largest: float | None = None
    error: float | None = None


def exactness(
    parts: Parts, prompt: Sequence[int], tokens: Sequence[int], logits: NDArray[np.float32] | None
) -> Exactness:
    """Of the tokens after a prompt, and the logits [tokens, words] that each was taken by.

    The reference reads the runtime's own text: while all tokens before are equal that is what it would have generated.
    """
    wanted = reference_logits(parts, [*prompt, *tokens[:-1]], len(prompt) - 1)
    same = wanted.argmax(1) == np.asarray(tokens)
    equal = len(tokens) if same.all() else int(same.argmin())
    if logits is None:
        return Exactness(len(tokens), equal)
    found = logits.astype(np.float64)
    apart = divergence(wanted, found)
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    return Exactness(len(tokens), equal, float(apart.mean()), float(apart.max()), float(error))


def divergence(wanted: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """[rows] of the distributions that logits [rows, words] stand for."""
    log_p, log_q = (one - _log_sum(one) for one in (wanted, found))
    apart: NDArray[np.float64] = (np.exp(log_p) * (log_p - log_q)).sum(1)
    return apart


def _log_sum(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = logits.max(1, keepdims=True)
    total: NDArray[np.float64] = largest + np.log(np.exp(logits - largest).sum(1, keepdims=True))
    return total
