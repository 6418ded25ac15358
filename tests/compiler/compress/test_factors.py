from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.compress.factors import Factorer, rank_of
from compiler.compress.prune import Method
from tests.compiler.compress.test_prune import correlated

METHODS: tuple[Method, ...] = ("obs", "wanda", "magnitude")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 6), st.sampled_from(METHODS), st.integers(0, 2**16))
def test_weights_of_a_rank_are_factored_exactly_at_it(
    rows: int, columns: int, rank: int, method: Method, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = random.normal(size=(rows, rank)) @ random.normal(size=(rank, columns))
    inputs = random.normal(size=(columns, 3 * columns))
    factors = Factorer(weights, inputs @ inputs.T, method).at(rank)
    assert factors.u.shape == (rows, min(rank, rows, columns))
    assert np.linalg.norm(factors.u @ factors.v - weights) <= 1e-6 * np.linalg.norm(weights)


@pytest.mark.parametrize("tall", [False, True])
def test_error_falls_with_rank_and_samples_lower_it(*, tall: bool) -> None:
    weights, gram = correlated(columns=48)
    weights = np.concatenate([weights, np.roll(weights, 1, 1) ** 2])[: 96 if tall else 32]
    ranks = (1, 4, 8, 16, 24)
    errors = {}
    for method in METHODS:
        one = Factorer(weights, gram, method)
        errors[method] = np.array([one.error(one.at(rank)) for rank in ranks])
        assert (np.diff(errors[method]) < 0).all()
    assert (errors["obs"] <= errors["magnitude"] * (1 + 1e-9)).all()
    assert errors["obs"][2] < 0.9 * errors["magnitude"][2]
    spread = np.square(np.linalg.svd(weights @ np.linalg.cholesky(gram), compute_uv=False))
    best = np.array([spread[rank:].sum() for rank in ranks]) / spread.sum()
    assert (errors["obs"] >= best * (1 - 1e-9)).all()
    assert (errors["obs"] <= 1.1 * best).all()


def test_a_rank_saves_the_share_that_is_asked_for_and_no_greater_one_does() -> None:
    for rows, columns, share in ((64, 64, 0.5), (512, 4608, 0.75), (30, 1000, 0.9)):
        rank = rank_of(rows, columns, share)
        assert rank * (rows + columns) <= (1 - share) * rows * columns < (rank + 1) * (rows + columns)
    assert rank_of(1, 2048, 0.5) == 0
