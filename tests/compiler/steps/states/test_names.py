"""Which states the names of a model say."""

from __future__ import annotations

import pytest

from compiler.steps.states.names import suggested_pairs


@pytest.mark.parametrize(
    ("pairs", "others"),
    [
        ({"present.0.key": "past_key_values.0.key", "present.0.value": "past_key_values.0.value"}, ("logits", "ids")),
        ({"present_key_values.1.key": "past_key_values.1.key"}, ("logits", "attention_mask")),
        ({"present_0": "past_0", "present_10": "past_10"}, ("y", "x")),
        ({"l3_present_k": "l3_past_k"}, ("y", "x")),
        ({"stateN": "state"}, ("output", "input")),
        ({"hn": "h", "cn": "c"}, ("output", "input")),
        ({"hn": "h0", "cn": "c0"}, ("output", "input")),
        ({"h_n": "h_0"}, ("output", "input")),
        ({"next_h": "h", "next_c": "c"}, ("y", "x")),
        ({"cache_0_out": "cache_0", "cache_1_out": "cache_1"}, ("y_out", "y")),
        ({"out_cache0": "in_cache0"}, ("logits", "speech")),
        ({"new_cached_len_0": "cached_len_0", "new_cached_avg_1": "cached_avg_1"}, ("encoder_out", "x")),
        ({"state_out": "state_in"}, ("y", "x")),
        ({"new_states": "prev_states"}, ("y", "x")),
        ({"rnn_hidden_new": "rnn_hidden"}, ("y", "x")),
    ],
    ids=lambda given: ", ".join(given) if isinstance(given, dict) else "",
)
def test_names_of_exporters_say_states(pairs: dict[str, str], others: tuple[str, str]) -> None:
    outputs = dict.fromkeys((others[0], *pairs), "f32[4]")
    inputs = dict.fromkeys((others[1], *pairs.values()), "f32[4]")
    assert suggested_pairs(outputs, inputs) == pairs


@pytest.mark.parametrize(
    ("outputs", "inputs"),
    [
        ({"image_out": 1}, {"image": 1}),  # no word of a state
        ({"x_next": 1, "token": 1}, {"x": 1, "toke": 1}),
        ({"stateN": 1}, {"state": 2}),  # another type
        ({"stateN": None}, {"state": None}),  # types are not known
        ({"h_out": 1, "next_h": 1}, {"h": 1}),  # which of them
        ({"hn": 1}, {"h": 1, "h0": 1}),
        ({"state": 1}, {"state": 1}),  # an output that is the input as it is
        ({}, {"h": 1}),
    ],
)
def test_other_names_say_none(outputs: dict[str, object], inputs: dict[str, object]) -> None:
    assert suggested_pairs(outputs, inputs) == {}
