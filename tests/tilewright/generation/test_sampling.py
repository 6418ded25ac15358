from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import UsageError
from tilewright.generation.sampling import Sampler, Sampling

LOGITS = np.log(np.array([0.05, 0.3, 0.1, 0.3, 0.25], np.float32))


def drawn(count: int, **options: float) -> np.ndarray:
    """How often each token was taken."""
    sampler = Sampler(Sampling(**options))  # type: ignore[arg-type]
    return np.bincount([sampler.take(LOGITS) for _ in range(count)], minlength=len(LOGITS)) / count


def test_without_temperature_the_first_of_the_most_probable_tokens_is_taken() -> None:
    assert drawn(3, top_k=2, top_p=0.1).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_with_their_probabilities(temperature: float) -> None:
    wanted = np.exp(LOGITS.astype(np.float64) / temperature)
    wanted /= wanted.sum()
    count = 20000
    # Four standard deviations of a share.
    np.testing.assert_array_less(
        np.abs(drawn(count, temperature=temperature) - wanted), 4 * np.sqrt(wanted / count) + 1e-9
    )


def test_equal_seeds_draw_equal_tokens_and_others_do_not() -> None:
    one, same, other = (Sampler(Sampling(1.0, seed=seed)) for seed in (3, 3, 4))
    rows = [[sampler.take(LOGITS) for _ in range(40)] for sampler in (one, same, other)]
    assert rows[0] == rows[1] != rows[2]


def test_top_k_leaves_the_most_probable_and_of_equal_ones_the_first() -> None:
    assert np.flatnonzero(drawn(2000, temperature=1, top_k=1)).tolist() == [1]
    assert np.flatnonzero(drawn(2000, temperature=1, top_k=2)).tolist() == [1, 3]
    assert np.flatnonzero(drawn(2000, temperature=1, top_k=4)).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(drawn(2000, temperature=1, top_k=9)).tolist() == [0, 1, 2, 3, 4]


def test_top_p_leaves_the_fewest_that_reach_it() -> None:
    assert np.flatnonzero(drawn(2000, temperature=1, top_p=0.2)).tolist() == [1]
    assert np.flatnonzero(drawn(2000, temperature=1, top_p=0.59)).tolist() == [1, 3]
    assert np.flatnonzero(drawn(2000, temperature=1, top_p=0.61)).tolist() == [1, 3, 4]
    assert np.flatnonzero(drawn(2000, temperature=1, top_p=1.0)).tolist() == [0, 1, 2, 3, 4]


def test_top_p_counts_among_what_top_k_has_left() -> None:
    # Two tokens of three tenths each are left: the first alone has half.
    assert np.flatnonzero(drawn(2000, temperature=1, top_k=2, top_p=0.45)).tolist() == [1]
    assert np.flatnonzero(drawn(2000, temperature=1, top_k=2, top_p=0.55)).tolist() == [1, 3]


def test_a_logit_of_minus_infinity_is_never_drawn_and_a_huge_one_always() -> None:
    logits = np.array([0, -np.inf, 3e38, -3e38], np.float32)
    sampler = Sampler(Sampling(1.0))
    assert {sampler.take(logits) for _ in range(50)} == {2}


def test_logits_that_are_no_numbers_are_refused() -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(UsageError, match="the model's logits are not numbers"):
            Sampler(Sampling(temperature)).take(np.array([0, np.nan, 1], np.float32))
