from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.tilewright.generation.decoders import (
    Binding,
    Keeping,
    Refused,
    Size,
    Spec,
    Summing,
    fixed,
    following,
    growing,
)
from tilewright.errors import UsageError
from tilewright.generation.ports import ports
from tilewright.generation.text import Text

PROMPT = [3, 1, 4, 1, 5]
POSITIONS = Spec("position_ids", "int64", (1, 1))
WAYS: Any = {
    "mask": lambda: fixed(1, 4),
    "positions": lambda: fixed(1, others=[POSITIONS]),
    "positions in a row": lambda: fixed(
        1, 2, others=[Spec("cache_position", "int64", (1,)), Spec("position_ids", "int32", (1, 1))]
    ),
    "lengths": lambda: fixed(
        1, 3, others=[Spec("seqlens_k", "int32", (1,)), Spec("total_sequence_length", "int32", ())]
    ),
    "a mask of floats": lambda: fixed(1, others=[Spec("attention_mask", "float32", (1, 12))]),
    "growing": growing,
}


def generated(model: Summing, ids: Sequence[int], **options: Any) -> list[int]:
    return list(tilewright.generate(model, ids, **options))  # type: ignore[arg-type]


def ranged() -> Summing:
    """Steps of 1 to 4 tokens by one program, on caches of one size."""
    ids = Spec("input_ids", "int64", (1, 4), (None, Size("seq", 1, 1, 4)))
    (binding,) = fixed(1).bindings
    return Summing([Binding((ids, *binding.inputs[1:]), binding.outputs)])


def keeping(*steps: int) -> Keeping:
    """Caches of 12 tokens that the artifact keeps."""
    return Keeping(fixed(*steps).bindings)


WAYS["a range of steps"] = ranged
WAYS["a state"] = lambda: keeping(1, 4)


@pytest.mark.parametrize("way", WAYS)
def test_each_token_follows_from_all_before_it(way: str) -> None:
    assert generated(WAYS[way](), PROMPT, max_tokens=6) == following(PROMPT, 6)


@pytest.mark.parametrize("way", WAYS)
def test_the_last_token_is_that_for_which_there_is_no_more_room(way: str) -> None:
    assert generated(WAYS[way](), PROMPT) == following(PROMPT, 12 - 5 + 1)
    whole = [*range(1, 11), 7, 2]
    assert generated(WAYS[way](), whole) == following(whole, 1)


def test_a_prompt_is_read_in_the_largest_steps_and_text_one_by_one() -> None:
    model = fixed(1, 4)
    generated(model, [1] * 9, max_tokens=3)
    assert model.taken == [4, 4, 1, 1, 1]


def test_where_small_steps_would_be_left_tokens_before_them_are_read_again() -> None:
    model = fixed(1, 4)
    text = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    assert generated(model, text, max_tokens=3) == following(text, 3)
    assert model.taken == [4, 4, 4, 1, 1]
    short = fixed(1, 4)
    assert generated(short, text[:3], max_tokens=1) == following(text[:3], 1)
    assert short.taken == [1, 1, 1]
    long = fixed(1, 12)
    assert generated(long, text[:2], max_tokens=8) == following(text[:2], 8)
    assert long.taken == [1] * 9


@pytest.mark.parametrize(
    ("count", "taken"), [(3, [1, 1, 1]), (4, [4]), (5, [4, 1]), (7, [4, 4]), (8, [4, 4]), (11, [4, 4, 4]), (12, [12])]
)
def test_steps_of_several_sizes_are_those_that_cost_least(count: int, taken: list[int]) -> None:
    model = fixed(1, 4, 12)
    prompt = [7, *range(10), 3][:count]
    assert generated(model, prompt, max_tokens=1) == following(prompt, 1)
    assert model.taken == taken


def test_a_step_reads_all_that_is_left_again_where_the_small_ones_before_it_would_cost_more() -> None:
    model = fixed(1, 2, 6)
    prompt = [7, *range(1, 11)]
    assert generated(model, prompt, max_tokens=1) == following(prompt, 1)
    assert model.taken == [6, 6]


def test_a_wide_step_for_few_tokens_is_not_worth_it() -> None:
    model = fixed(1, 9)
    prompt = [*range(1, 11), 3]
    assert generated(model, prompt, max_tokens=1) == following(prompt, 1)
    assert model.taken == [9, 1, 1]


def test_caches_that_grow_read_nothing_again() -> None:
    model = growing()
    (binding,) = model.bindings
    four, one = (Spec("input_ids", "int64", (1, count)) for count in (4, 1))
    both = Summing([Binding((ids, *binding.inputs[1:]), binding.outputs, at) for at, ids in enumerate((one, four), 1)])
    prompt = [3, 1, 4, 1, 5, 9, 2]
    assert generated(both, prompt, max_tokens=1) == following(prompt, 1)
    assert both.taken == [4, 1, 1, 1]


def test_a_stop_token_is_the_last_one() -> None:
    wanted = following(PROMPT, 6)
    assert len(set(wanted[:3])) == 3
    assert generated(fixed(1), PROMPT, stop=[wanted[2], 99]) == wanted[:3]


def test_tokens_come_one_by_one() -> None:
    model = fixed(1, 4)
    coming = tilewright.generate(model, PROMPT)  # type: ignore[arg-type]
    assert model.taken == []
    next(coming)
    assert model.taken == [4, 1]
    next(coming)
    assert model.taken == [4, 1, 1]


@pytest.mark.parametrize(
    ("ids", "options", "said", "fix"),
    [
        ([], {}, "the prompt has no tokens", "at least one"),
        ([1] * 13, {}, "has 13 tokens, and the model's caches have room for 12", "larger capacity"),
        ([1, 11], {}, "token 11 is not among the 11", "0 to 10"),
        ([-1], {}, "token -1 is not among the 11", "0 to 10"),
        ([1], {"max_tokens": 0}, "max_tokens is 0", "1 or more"),
        ([1], {"temperature": -0.5}, "temperature is -0.5", "0 or more"),
        ([1], {"temperature": float("nan")}, "temperature is nan", "0 or more"),
        ([1], {"top_k": -1}, "top_k is -1", "0 or more"),
        ([1], {"top_p": 0.0}, "top_p is 0.0", "at most 1"),
        ([1], {"top_p": 1.5}, "top_p is 1.5", "at most 1"),
        ([1], {"seed": -1}, "seed is -1", "0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    ids: list[int], options: dict[str, Any], said: str, fix: str
) -> None:
    model = fixed(1)
    with pytest.raises(UsageError, match=said) as refusal:
        tilewright.generate(model, ids, **options)  # type: ignore[arg-type]
    assert fix in refusal.value.fix
    assert model.taken == []


def test_a_text_of_caches_that_stay_is_taken_back_to_any_token() -> None:
    model = fixed(1, 4)
    text = Text(model, ports(model))  # type: ignore[arg-type]
    first = text.read(PROMPT).copy()
    text.read([7, 8, 9])
    text.rewind(5)
    np.testing.assert_array_equal(text.read([2]), Text(fixed(1, 4), ports(fixed(1, 4))).read([*PROMPT, 2]))  # type: ignore[arg-type]
    text.rewind(0)
    np.testing.assert_array_equal(text.read(PROMPT), first)
    with pytest.raises(ValueError, match="a text of 5 tokens cannot be taken back to 6"):
        text.rewind(6)


def test_a_text_of_caches_that_grow_is_only_taken_back_to_its_beginning() -> None:
    model = growing()
    text = Text(model, ports(model))  # type: ignore[arg-type]
    first = text.read(PROMPT).copy()
    with pytest.raises(ValueError, match="cannot be taken back to 2"):
        text.rewind(2)
    text.rewind(0)
    np.testing.assert_array_equal(text.read(PROMPT), first)
    assert text.length == 5


def test_a_binding_that_takes_multiples_reads_what_it_can() -> None:
    model = growing()
    (binding,) = model.bindings
    ids = Spec("input_ids", "int64", (1, 4), (None, Size("seq", 2, 2, 4, 2)))
    one = Spec("input_ids", "int64", (1, 1))
    twice = [Binding((first, *binding.inputs[1:]), binding.outputs, at) for at, first in enumerate((one, ids), 1)]
    both = Summing(twice)
    assert generated(both, PROMPT, max_tokens=2) == following(PROMPT, 2)
    assert both.taken == [4, 1, 1]


def test_texts_of_an_artifact_with_states_have_one_each_and_are_given_no_caches() -> None:
    model = keeping(1, 4)
    one, other = (tilewright.generate(model, ids) for ids in (PROMPT, PROMPT[::-1]))  # type: ignore[arg-type]
    found = [(next(one), next(other)) for _ in range(5)]
    assert [*zip(*found, strict=True)] == [tuple(following(ids, 5)) for ids in (PROMPT, PROMPT[::-1])]
    assert len(model.states) == 2
    assert model.taken[:4] == [4, 1, 4, 1]


def test_a_text_of_a_state_is_taken_back_to_any_token_and_begins_anew_after_an_interruption() -> None:
    model = keeping(1, 4)
    text = Text(model, ports(model))  # type: ignore[arg-type]
    first = text.read(PROMPT).copy()
    text.read([7, 8, 9])
    text.rewind(5)
    wanted = Text(fixed(1, 4), ports(fixed(1, 4))).read([*PROMPT, 2])  # type: ignore[arg-type]
    np.testing.assert_array_equal(text.read([2]), wanted)
    (state,) = model.states
    state.is_void = True
    text.rewind(5)
    with pytest.raises(Refused):
        text.read([2])
    text.rewind(0)
    assert not state.cache.any()
    np.testing.assert_array_equal(text.read(PROMPT), first)
