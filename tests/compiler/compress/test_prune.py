from __future__ import annotations

import numpy as np
import pytest

from compiler.compress.forms import LEVELS, levels_of, mask_of, obstacle
from compiler.compress.prune import Pruner, inverse_factor
from compiler.encodings.combined import combined


def correlated(columns: int = 64, rows: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Weights, and the Gram matrix of inputs that are mixtures of few sources."""
    random = np.random.default_rng(5)
    sources = random.normal(size=(512, columns // 4))
    inputs = sources @ random.normal(size=(columns // 4, columns)) + 0.3 * random.normal(size=(512, columns))
    return random.normal(size=(rows, columns)), inputs.T @ inputs / len(inputs)


@pytest.mark.parametrize("form", ["unstructured", "1x4", "4x16", "2:4", "combined"])
def test_moving_what_remains_beats_leaving_it_on_correlated_inputs(form: str) -> None:
    weights, gram = correlated()
    error: dict[str, float] = {}
    for method in ("obs", "wanda", "magnitude"):
        pruner = Pruner(weights, gram, method, form)  # type: ignore[arg-type]
        error[method] = pruner.error(pruner.at(0.5))
    assert error["obs"] < 0.6 * error["wanda"]
    assert error["obs"] < 0.6 * error["magnitude"]


def test_a_single_zero_is_made_up_for_as_least_squares_would() -> None:
    weights, gram = correlated(columns=8, rows=1)
    pruner = Pruner(weights, gram, "obs", "unstructured")
    found = pruner.at(1 / 8)
    (gone,) = np.flatnonzero(found[0] == 0)
    damped = gram + 0.01 * np.diag(gram).mean() * np.eye(8)
    behind = np.arange(gone + 1, 8)
    best = weights[0].copy()
    best[gone] = 0
    best[behind] += weights[0, gone] * np.linalg.solve(damped[np.ix_(behind, behind)], damped[behind, gone])
    assert np.allclose(found[0], best)


def test_the_factor_is_that_of_the_inverse() -> None:
    _, gram = correlated(columns=12)
    factor = inverse_factor(gram)
    damped = gram + 0.01 * np.diag(gram).mean() * np.eye(12)
    assert np.allclose(factor.T @ factor @ damped, np.eye(12))
    assert np.array_equal(factor, np.triu(factor))


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    weights, gram = correlated()
    gram[3, :] = gram[:, 3] = 0
    found = Pruner(weights, gram, "obs", "unstructured").at(0.9)
    assert np.isfinite(found).all()
    assert np.count_nonzero(found) <= weights.size - int(0.85 * weights.size)


@pytest.mark.parametrize("method", ["obs", "wanda", "magnitude"])
@pytest.mark.parametrize("share", LEVELS[1:])
def test_four_neighbouring_results_share_their_zeros(method: str, share: float) -> None:
    weights, gram = correlated()
    kept = Pruner(weights, gram, method, "1x4").at(share) != 0  # type: ignore[arg-type]
    groups = kept.reshape(4, 4, -1)
    assert np.array_equal(groups.any(1), groups.all(1))
    assert 1 - kept.mean() == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("method", ["obs", "wanda", "magnitude"])
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_four_inputs_of_sixteen_results_share_their_zeros(method: str, share: float) -> None:
    weights, gram = correlated(rows=32)
    kept = Pruner(weights, gram, method, "4x16").at(share) != 0  # type: ignore[arg-type]
    blocks = kept.reshape(2, 16, 16, 4)
    assert np.array_equal(blocks.any((1, 3)), blocks.all((1, 3)))
    assert 1 - kept.mean() == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("method", ["obs", "wanda", "magnitude"])
def test_two_of_four_neighbouring_inputs_remain(method: str) -> None:
    weights, gram = correlated()
    kept = Pruner(weights, gram, method, "2:4").at(0.5) != 0  # type: ignore[arg-type]
    assert (kept.reshape(len(kept), -1, 4).sum(2) == 2).all()
    assert levels_of("2:4") == (0.0, 0.5)


@pytest.mark.parametrize("method", ["obs", "wanda", "magnitude"])
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_columns_are_combined_so_that_results_keep_equally_many(method: str, share: float) -> None:
    weights, gram = correlated(rows=128)
    kept = Pruner(weights, gram, method, "combined").at(share) != 0  # type: ignore[arg-type]
    assert (kept.sum(1) == round((1 - share) * kept.shape[1])).all()
    found = combined(kept)
    assert found is not None
    assert found.packed <= 1.2 * (1 - share) * kept.shape[1]


def test_the_least_magnitudes_go_first_and_a_form_that_does_not_fit_is_refused() -> None:
    scores = np.array([[3.0, 1.0, 2.0, 4.0]])
    assert mask_of(scores, "unstructured", 0.5).tolist() == [[True, False, False, True]]
    assert obstacle("1x4", 6, 8) is not None
    assert obstacle("2:4", 8, 6) is not None
    assert "8 results, which are no multiple of 16" in str(obstacle("4x16", 8, 8))
    assert "6 inputs, which are no multiple of 4" in str(obstacle("4x16", 16, 6))
    with pytest.raises(ValueError, match="no form 1x4"):
        mask_of(scores, "1x4", 0.5)
