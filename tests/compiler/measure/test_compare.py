from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.measure.compare import (
    CONFIDENCE,
    RESOLUTION,
    Comparison,
    _outer_averages,
    compare,
    difference,
    stored_difference,
)

SITTINGS = [8] * 12


def measured(random: np.random.Generator, ratio: float, noise: float = 0.03) -> tuple[list[float], list[float]]:
    """Rounds of two models on a machine whose speed drifts, with a disturbed round now and then.

    Each sitting has another placement.
    """
    rounds = sum(SITTINGS)
    drift = np.exp(np.cumsum(random.normal(0, 0.02, rounds)))
    placed = np.repeat(random.normal(0, 0.01, (2, len(SITTINGS))), SITTINGS, axis=1)
    disturbed = np.where(random.random((2, rounds)) < 0.1, random.uniform(1, 3, (2, rounds)), 1)
    a, b = 1e-3 * drift * np.exp(random.normal(0, noise, (2, rounds)) + placed) * disturbed
    return a.tolist(), (b * ratio).tolist()


@pytest.mark.parametrize("ratio", [0.5, 0.85, 1.15, 1.23, 4.0])
def test_a_known_ratio_is_found_and_lies_in_the_interval(ratio: float) -> None:
    inside = 0
    for seed in range(100):
        found = compare(*measured(np.random.default_rng(seed), ratio), SITTINGS)
        assert found.ratio == pytest.approx(ratio, rel=0.03)
        assert found.faster == ("a" if ratio > 1 else "b")
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= ratio <= found.high
    assert inside >= 90


def test_of_equal_models_nothing_can_be_told_nearly_always() -> None:
    reported = [compare(*measured(np.random.default_rng(seed), 1.0), SITTINGS).faster for seed in range(400)]
    assert sum(one is not None for one in reported) <= 400 * (1 - CONFIDENCE)


def test_rounds_of_one_sitting_do_not_count_as_evidence_of_their_own() -> None:
    """A placement that lasts for a sitting looks like a sure difference in each round of it."""
    random = np.random.default_rng(0)
    placed = np.repeat(random.normal(0, 0.05, 8), 50)
    a = np.full(400, 1e-3)
    assert compare(a.tolist(), (a * np.exp(placed)).tolist(), [50] * 8).faster is None


positive = st.floats(1e-6, 1e3)


@given(st.lists(st.tuples(positive, positive), min_size=6, max_size=30), st.floats(0.01, 100))
@settings(deadline=None)
def test_swapping_two_models_turns_the_answer_round_and_a_unit_changes_nothing(
    rounds: list[tuple[float, float]], unit: float
) -> None:
    a, b = (list(column) for column in zip(*rounds, strict=True))
    sittings = [1] * len(rounds)
    one, two = compare(a, b, sittings), compare(b, a, sittings)
    assert one.ratio == pytest.approx(1 / two.ratio)
    assert one.low is not None
    assert two.high is not None
    assert one.low == pytest.approx(1 / two.high)
    assert one.low < one.ratio * (1 + 1e-9)
    scaled = compare([unit * x for x in a], [unit * x for x in b], sittings)
    assert scaled.ratio == pytest.approx(one.ratio)


@pytest.mark.parametrize(("n", "critical"), [(6, 0), (7, 2), (8, 3), (10, 8), (12, 13), (20, 52), (25, 89)])
def test_the_interval_is_that_of_the_published_tables(n: int, critical: int) -> None:
    """Critical values of Wilcoxon's signed ranks, two-sided, 5%."""
    assert _outer_averages(n) == critical


def test_too_few_sittings_tell_nothing() -> None:
    found = compare([1.0] * 5, [2.0] * 5, [1] * 5)
    assert (found.ratio, found.low, found.high, found.verdict) == (2.0, None, None, "cannot tell")


def test_a_difference_below_what_can_be_resolved_is_not_told() -> None:
    assert compare([1.0] * 12, [1 + 0.9 * RESOLUTION] * 12, [1] * 12).verdict == "cannot tell"
    assert compare([1.0] * 12, [1 + 1.2 * RESOLUTION] * 12, [1] * 12).faster == "a"


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (Comparison(1.234, 1.21, 1.25), "a is faster by 1.234x ± 0.024"),
        (Comparison(1.25, 1.05, 1.6), "a is faster by 1.25x ± 0.35"),
        (Comparison(0.5, 0.4, 0.625), "b is faster by 2.00x ± 0.50"),
        (Comparison(1.0201, 1.02, 1.02022), "a is faster by 1.02010x ± 0.00012"),
        (Comparison(1.01, 0.99, 1.02), "cannot tell"),
        (Comparison(1.01, None, None), "cannot tell"),
    ],
)
def test_the_verdict_gives_as_many_digits_as_are_known(comparison: Comparison, words: str) -> None:
    assert comparison.verdict == words


def test_rounds_that_are_no_pairs_are_refused() -> None:
    for a, b, sittings in ((1, 2, [1]), (0, 0, []), (2, 2, [1]), (2, 2, [2, 0])):
        with pytest.raises(ValueError, match="cannot be paired"):
            compare([1.0] * a, [1.0] * b, sittings)


def test_outputs_differ_relative_to_the_largest_and_in_kind() -> None:
    a = np.array([1, -4, np.nan, np.inf, np.inf], np.float32)
    assert difference(a, a) == (0.0, 0)
    assert difference(a, np.array([2, -4, 1, np.inf, -np.inf], np.float32)) == (0.25, 2)
    assert difference(np.array([True, False]), np.array([True, True])) == (1.0, 0)
    assert difference(np.empty((0, 3)), np.empty((0, 3))) == (0.0, 0)
    assert difference(np.zeros(2), np.array([0, 1e-3])) == (1e-3, 0)
    assert math.isfinite(difference(np.array([2**62, 1]), np.array([-(2**62), 1]))[0])


def test_bfloat16_outputs_are_compared_as_numbers() -> None:
    a, b = (np.array([4, last], ml_dtypes.bfloat16).view(np.uint16) for last in (1, 2))
    assert stored_difference("bfloat16", a, b) == {"max_relative": 0.25, "unlike": 0}
