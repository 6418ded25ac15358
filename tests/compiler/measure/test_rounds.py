from __future__ import annotations

from compiler.measure.rounds import LEAST_ROUNDS, LOSER, losers


def test_a_trial_loses_to_the_best_of_its_rivals_once_both_were_sampled_often_enough() -> None:
    often = LEAST_ROUNDS
    trials = [
        ("a", [1.0] * often),
        ("a", [LOSER + 0.01] * often),
        ("a", [LOSER - 0.01] * often),
        ("a", [9.0] * (often - 1)),  # not yet
        ("b", [5.0] * often),  # another kernel
        ("a", [0.1] * (often - 1)),  # beats nobody yet
    ]
    assert losers(trials) == {1}


def test_the_median_decides_not_a_single_disturbed_sample() -> None:
    assert losers([("a", [1.0, 1.0, 1.0]), ("a", [1.1, 50.0, 1.1])]) == frozenset()


def test_nobody_loses_without_samples() -> None:
    assert losers([]) == losers([("a", []), ("a", [])]) == frozenset()
