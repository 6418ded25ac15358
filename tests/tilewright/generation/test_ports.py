from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.tilewright.generation.decoders import (
    FILLED,
    KEPT,
    LOGITS,
    OUTPUTS,
    Binding,
    Pair,
    Size,
    Spec,
    Summing,
    fixed,
    growing,
)
from tilewright.errors import UsageError
from tilewright.generation.ports import Ports, ports

IDS = Spec("input_ids", "int64", (1, 1))


def of(model: Summing) -> Ports:
    return ports(model)  # type: ignore[arg-type]


def test_a_cache_of_one_size_has_its_capacity_from_the_beginning() -> None:
    found = of(fixed(1, 4))
    assert (found.capacity, found.room, found.words, found.steps) == (12, 12, 11, ((1, 1, 1), (4, 4, 1)))
    (cache,) = found.caches
    assert (cache.shape, cache.grows, cache.present) == ((1, 1, 12, 1), False, "present.0.key")


def test_a_cache_that_grows_begins_empty_and_takes_one_token_more_than_it_holds() -> None:
    found = of(growing())
    assert (found.capacity, found.room) == (12, None)
    (cache,) = found.caches
    assert (cache.shape, cache.grows) == ((1, 1, 0, 1), True)


def test_a_range_whose_largest_size_has_a_binding_of_its_own_grows_too() -> None:
    model = growing()
    inputs = model.bindings[0].inputs
    exact = Binding((*inputs[:-1], replace(inputs[-1], axes=())), model.bindings[0].outputs)
    found = of(Summing([exact, *model.bindings]))
    assert found.caches[0].shape == (1, 1, 0, 1)
    assert found.capacity == 12


def test_steps_are_as_long_as_a_binding_takes() -> None:
    found = of(fixed(1, 4))
    assert [found.step(left) for left in (1, 3, 4, 5, 9)] == [1, 1, 4, 4, 4]
    ranged = of(growing())
    assert [ranged.step(left) for left in (1, 3, 4, 9)] == [1, 3, 4, 4]
    by_four = Spec("input_ids", "int64", (1, 16), (None, Size("seq", 4, 4, 16, 4)))
    stepped = of(Summing([Binding((IDS, KEPT), (LOGITS, FILLED)), Binding((by_four, KEPT), (LOGITS, FILLED))]))
    assert [stepped.step(left) for left in (1, 3, 4, 7, 8, 17, 40)] == [1, 1, 4, 4, 8, 16, 16]


def test_the_least_step_that_holds_some_tokens_is_found() -> None:
    found = of(fixed(1, 4, 8))
    assert [found.wider(left, 12) for left in (1, 2, 4, 5, 8, 9)] == [1, 4, 4, 8, 8, None]
    assert [found.wider(3, most) for most in (3, 4)] == [None, 4]
    by_four = Spec("input_ids", "int64", (1, 16), (None, Size("seq", 4, 4, 16, 4)))
    stepped = of(Summing([Binding((IDS, KEPT), OUTPUTS), Binding((by_four, KEPT), OUTPUTS)]))
    assert [stepped.wider(left, 15) for left in (1, 2, 4, 5, 12, 13)] == [1, 4, 4, 8, 12, None]


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.0.key", "present_key_values.0.key"),
        ("past_key_self_0", "present_key_self_0"),
        ("l0_past_k", "l0_present_k"),
    ],
)
def test_pairs_of_caches_are_found_by_their_names(past: str, present: str) -> None:
    other = Spec("present.of.something", "float32", (1,))
    model = Summing([Binding((IDS, replace(KEPT, name=past)), (LOGITS, other, replace(FILLED, name=present)))])
    (cache,) = of(model).caches
    assert (cache.past.name, cache.present) == (past, present)


@dataclass
class Saying(Summing):
    """An artifact that says what becomes of its caches."""

    carried: Sequence[Pair] = ()


@pytest.mark.parametrize("past", ["past_key_values.0.key", "key_cache"])
def test_an_artifact_with_states_says_what_becomes_of_its_caches_whatever_names_say(past: str) -> None:
    """By name `present.0.key` would be the one, and of `key_cache` there would be none."""
    kept, written = replace(KEPT, name=past), replace(FILLED, name="written")
    bindings = [Binding((IDS, kept), (LOGITS, FILLED, written))]
    (cache,) = of(Saying(bindings, carried=[Pair(written, kept)])).caches
    assert (cache.past.name, cache.present, cache.kept, cache.grows) == (past, "written", True, False)
    if past == KEPT.name:
        (cache,) = of(Saying(bindings)).caches
        assert (cache.present, cache.kept) == (FILLED.name, False)
    else:
        with pytest.raises(UsageError, match="keeps no caches"):
            of(Saying(bindings))


def test_what_is_carried_and_no_cache_by_name_is_refused() -> None:
    """A text is taken back by what its cache holds of it; what a state of another kind holds cannot be."""
    hidden = replace(KEPT, name="hidden")
    bindings = [Binding((IDS, KEPT, hidden), (LOGITS, FILLED, replace(FILLED, name="hidden_next")))]
    with pytest.raises(UsageError, match="unknown what inputs 'hidden' are to be given"):
        of(Saying(bindings, carried=[Pair(bindings[0].outputs[-1], hidden)]))


def without(name: str) -> Callable[[], Summing]:
    def made() -> Summing:
        (binding,) = fixed(1).bindings
        return Summing(
            [
                Binding(
                    tuple(one for one in binding.inputs if one.name != name),
                    tuple(one for one in binding.outputs if one.name != name),
                )
            ]
        )

    return made


@pytest.mark.parametrize(
    ("model", "said", "fix"),
    [
        (without("input_ids"), "has no input of tokens: it takes 'attention_mask', 'past_key", "input_ids"),
        (without("past_key_values.0.key"), "keeps no caches: no input has 'past' in its name", "past_key_values.N.key"),
        (without("present.0.key"), "gives no output 'present.0.key', which input 'past_key_values", "present.N.key"),
        (without("logits"), "gives no logits: beside its caches it gives nothing", "an output called logits"),
        (lambda: fixed(4, 8), "a step of the model has 4, 8 tokens, and text comes one by one", "sequence_length=1,64"),
        (lambda: growing(low=1), "has 1 tokens or more, and a text begins with none", "past_sequence_length=0:1023"),
        (
            lambda: fixed(1, others=[Spec("encoder_hidden_states", "float32", (1, 4, 8))]),
            "unknown what inputs 'encoder_hidden_states' are to be given",
            "tilewright.load",
        ),
        (
            lambda: Summing([Binding((replace(IDS, shape=(4, 1)), KEPT), (LOGITS, FILLED))]),
            "the model takes 4 texts at once",
            "a batch of 1",
        ),
        (
            lambda: Summing([Binding((IDS, replace(KEPT, shape=(12,))), (LOGITS, FILLED))]),
            r"has shape \[12\], and is no cache of tokens",
            "past_key_values.N.key",
        ),
        (
            lambda: Summing([Binding((IDS, KEPT), (LOGITS, replace(FILLED, shape=(1, 1, 13, 1))))]),
            "has 12 tokens or more, and a text begins with none",
            "past_sequence_length=0:1023",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_would_mend_it(model: Callable[[], Summing], said: str, fix: str) -> None:
    with pytest.raises(UsageError, match=said) as refusal:
        of(model())
    assert fix in refusal.value.fix
