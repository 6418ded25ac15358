from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from compiler.errors import BudgetMissed, OptionsError
from compiler.quantize.search import Fidelity, choose, fidelity

NOISE = {"a": 1e-6, "b": 1e-2, "c": 1e-4, "d": 1e-3}
"""What each layer adds to an output whose signal is 1."""


class Judge:
    def __init__(self) -> None:
        self.asked: list[frozenset[str]] = []

    def __call__(self, layers: Collection[str]) -> Fidelity:
        self.asked.append(frozenset(layers))
        return Fidelity({"y": -10 * float(np.log10(sum(NOISE[layer] for layer in layers)))})


WHOLE = Judge()(NOISE)


def test_without_a_budget_every_layer_is_quantised_and_nothing_else_is_judged() -> None:
    judge = Judge()
    chosen = choose(list(NOISE), None, judge, WHOLE, lambda part, message: None)
    assert chosen.layers == frozenset(NOISE)
    assert chosen.fidelity is WHOLE
    assert not judge.asked


@pytest.mark.parametrize(("budget", "left"), [(19.0, ""), (25.0, "b"), (35.0, "bd"), (55.0, "bcd")])
def test_only_the_most_costly_layers_are_left_until_the_budget_holds(budget: float, left: str) -> None:
    chosen = choose(list(NOISE), budget, Judge(), WHOLE, lambda part, message: None)
    assert chosen.layers == frozenset(NOISE) - frozenset(left)
    assert chosen.fidelity.least >= budget
    if left:
        assert chosen.alone["b"] == pytest.approx(20.0)


def test_a_budget_that_no_layer_keeps_is_refused_with_the_best_there_is() -> None:
    with pytest.raises(BudgetMissed, match=r"60\.0 dB") as raised:
        choose(list(NOISE), 80.0, Judge(), WHOLE, lambda part, message: None)
    assert raised.value.details["alone_db"]["b"] == 20.0


def test_a_budget_without_an_output_to_hold_it_is_refused() -> None:
    with pytest.raises(OptionsError, match="no output of the model is a float"):
        choose(["a"], 30.0, lambda layers: Fidelity({}), Fidelity({}), lambda part, message: None)


def test_elements_that_are_not_finite_count_only_where_they_differ() -> None:
    wanted, like = np.array([1.0, -np.inf, 3.0]), np.array([1.1, -np.inf, 3.0])
    assert fidelity([{"y": wanted}], [{"y": like}]).outputs["y"] == pytest.approx(30.0)
    assert fidelity([{"y": wanted}], [{"y": np.array([1.0, 5.0, 3.0])}]).least == -200.0


def test_signal_to_noise_is_of_all_samples_together() -> None:
    wanted = [{"y": np.array([3.0, 4.0])}, {"y": np.array([0.0, 5.0])}]
    found = [{"y": np.array([3.0, 4.0])}, {"y": np.array([0.5, 5.0])}]
    assert fidelity(wanted, found).outputs["y"] == pytest.approx(10 * np.log10(50 / 0.25))
    assert fidelity(wanted, wanted).outputs["y"] is None
    assert fidelity(wanted, wanted).least == float("inf")
