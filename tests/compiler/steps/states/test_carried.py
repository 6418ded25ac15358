"""Which states can be carried, by names and types alone: what is refused, in which words, and what comes nearest."""

from __future__ import annotations

import pytest

from compiler.errors import OptionsError
from compiler.steps.states.carried import Pair, corrected_pairs, demand_pairs

OUTPUTS = {"next": "f32[4, 8]", "cell": "f32[4, 8]", "y": "f32[4]"}
INPUTS = {"x": "f32[9]", "h": "f32[4, 8]", "c": "f32[4, 8]"}


@pytest.mark.parametrize(
    ("pairs", "said", "fix", "corrected"),
    [
        ([("nxt", "h")], "carry names 'nxt', which is no output", "outputs of the model are 'next', ", {"next": "h"}),
        ([("next", "ch")], "carry names 'ch', which is no input", "inputs of the model are 'h', 'c'", {"next": "h"}),
        ([("next", "zz")], "carry names 'zz', which is no input", "inputs of the model are ", {}),
        ([("h", "next")], "carry names 'h', which is no output", "'next' is input 'h' of the next", {"next": "h"}),
        ([("y", "h")], "differ, f32[4] and f32[4, 8]", "outputs like this input are 'next', 'cell'", {}),
        ([("next", "x")], "'next' cannot be input 'x' of the next", "no output of the model is like this input", {}),
        ([("cell", "h"), ("next", "h")], "'h' is to be outputs 'cell' and 'next'", "each input once", {"cell": "h"}),
        ([("cel", "c"), ("next", "c")], "carry names 'cel'", "'cell', 'next', 'y'", {"next": "c"}),
    ],
)
def test_a_refusal_names_the_culprit_and_what_is_nearest(
    pairs: list[Pair], said: str, fix: str, corrected: dict[str, str]
) -> None:
    with pytest.raises(OptionsError) as refused:
        demand_pairs(pairs, OUTPUTS, INPUTS)
    assert said in refused.value.message
    assert fix in refused.value.fix
    assert corrected_pairs(pairs, OUTPUTS, INPUTS) == corrected
    demand_pairs([*corrected.items()], OUTPUTS, INPUTS)


def test_states_that_fit_are_kept_as_they_are() -> None:
    pairs = [("cell", "h"), ("next", "c")]
    demand_pairs(pairs, OUTPUTS, INPUTS)
    assert corrected_pairs(pairs, OUTPUTS, INPUTS) == dict(pairs)


def test_what_is_not_known_fits_and_is_not_offered() -> None:
    unknown = {**dict.fromkeys(OUTPUTS), "y": "f32[4]"}
    demand_pairs([("next", "h")], unknown, INPUTS)
    with pytest.raises(OptionsError) as refused:
        demand_pairs([("y", "h")], unknown, INPUTS)
    assert refused.value.fix == "no output of the model is like this input: give it to each inference"


def test_an_output_that_is_an_input_as_it_is_can_be_no_state_where_none_makes_it() -> None:
    demand_pairs([("next", "h")], OUTPUTS, INPUTS)
    with pytest.raises(OptionsError, match="'next', which is an input as it is"):
        demand_pairs([("next", "h")], OUTPUTS, INPUTS, unmade=["next"])
    assert corrected_pairs([("next", "h")], OUTPUTS, INPUTS, unmade=["next"]) == {}


def test_of_many_names_the_nearest_few_are_shown_and_long_ones_are_cut() -> None:
    layers = {f"present.{layer}.{what}": "f32[1]" for layer in range(24) for what in ("key", "value")}
    with pytest.raises(OptionsError) as refused:
        demand_pairs([("present.17.kye", "h")], layers, INPUTS)
    shown = refused.value.fix.removeprefix("outputs of the model are ").split(", ")
    assert shown[0] == "'present.17.key'"
    assert len(shown) == 6
    assert refused.value.fix.endswith(" and others")
    with pytest.raises(OptionsError) as refused:
        demand_pairs([("y" * 10**6, "h")], {"y" * 10**5: "f32[1]"}, INPUTS)
    assert len(str(refused.value)) < 500
