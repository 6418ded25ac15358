from __future__ import annotations

import numpy as np
import pytest

from compiler.encodings import ENCODINGS, find, find_once, is_word, read
from compiler.encodings.encoding import Use
from tests.compiler.encodings.test_encoded_keys import anywhere, blocks, clustered, floats, octets, two_of_four

CONSTANTS = [make() for make in (floats, anywhere, octets, blocks, clustered, two_of_four)]


def test_every_encoding_of_the_list_is_found_for_a_use_and_read_from_its_word() -> None:
    found = {one for constant in CONSTANTS for use in Use for one in find(constant, use)}
    assert {type(one) for one in found} == {*ENCODINGS}
    for one in found:
        assert is_word(one.word)
        assert read(one.word) == one
        assert type(one).read(one.word) == one


@pytest.mark.parametrize("use", Use)
def test_every_use_finds_encodings_in_the_order_of_the_list_and_only_once(use: Use) -> None:
    kinds = [[type(one) for one in find(constant, use)] for constant in CONSTANTS]
    assert any(kinds)
    assert all(each == sorted(each, key=ENCODINGS.index) for each in kinds)
    assert find_once(CONSTANTS[1], use) is find_once(CONSTANTS[1], use)


def test_no_word_of_an_encoding_begins_as_one_of_another() -> None:
    begins = [kind.begins for kind in ENCODINGS]
    assert all(begins)
    assert not any(one.startswith(other) for one in begins for other in begins if one is not other)


@pytest.mark.parametrize("text", ["input", "constant", "output", "narrower", "sparsely", ""])
def test_other_words_stand_for_no_encoding(text: str) -> None:
    assert not is_word(text)


@pytest.mark.parametrize("word", ["narrow_1", *(f"{kind.begins}_x" for kind in ENCODINGS), "codebook"])
def test_a_word_that_only_begins_so_is_refused(word: str) -> None:
    assert is_word(word)
    with pytest.raises(ValueError, match=f"`{word}` is no "):
        read(word)


def test_nothing_is_found_in_ones() -> None:
    ones = np.ones((64, 64), np.float64)
    assert not any(find(ones, use) for use in Use)
