from __future__ import annotations

import numpy as np
import pytest

from compiler.encodings.encoding import Use
from compiler.encodings.two_of_four import TwoOfFour


def test_two_of_four_is_found_along_the_dimensions_that_have_it() -> None:
    rng = np.random.default_rng(6)
    filters = rng.normal(size=(16, 32, 3, 3)).astype(np.float32)
    assert TwoOfFour.find(filters, Use.TENSOR_CORES) == ()
    along_inputs = TwoOfFour.of(1).pruned(filters)
    assert TwoOfFour.find(along_inputs, Use.TENSOR_CORES) == (TwoOfFour.of(1),)
    np.testing.assert_array_equal(along_inputs[along_inputs != 0], filters[along_inputs != 0])
    assert ((along_inputs != 0).reshape(16, 8, 4, 9).sum(2) == 2).all()
    assert (
        TwoOfFour.find(along_inputs[:, :, 0, 0][:, :30], Use.TENSOR_CORES) == ()
    )  # too few elements, and no whole groups
    both = TwoOfFour.of(0).pruned(along_inputs)
    assert TwoOfFour.find(both, Use.TENSOR_CORES) == (TwoOfFour.of(0), TwoOfFour.of(1))
    one_more = along_inputs.copy()
    one_more[3, 4:8, 1, 2] = 1
    assert TwoOfFour.find(one_more, Use.TENSOR_CORES) == ()
    assert TwoOfFour.find(along_inputs.astype(np.float16), Use.TENSOR_CORES) == (TwoOfFour.of(1),)


def test_two_of_four_is_found_among_signed_bytes_and_no_other_integers() -> None:
    octets = np.random.default_rng(7).integers(-128, 128, (32, 64)).astype(np.int8)
    octets[:, ::4] = -128
    assert TwoOfFour.find(octets, Use.TENSOR_CORES) == ()
    along_rows = TwoOfFour.of(1).pruned(octets)
    assert along_rows.dtype == np.int8
    assert (along_rows[:, ::4] == -128).all()  # the largest of its four
    assert TwoOfFour.find(along_rows, Use.TENSOR_CORES) == (TwoOfFour.of(1),)
    assert TwoOfFour.find(along_rows.view(np.uint8), Use.TENSOR_CORES) == ()
    assert TwoOfFour.find(along_rows.astype(np.int32), Use.TENSOR_CORES) == ()


def test_a_number_that_is_none_counts_as_a_weight() -> None:
    matrix = np.zeros((64, 64), np.float32)
    matrix[0, :2] = np.nan
    assert TwoOfFour.find(matrix, Use.TENSOR_CORES) == (TwoOfFour.of(0), TwoOfFour.of(1))
    matrix[0, 2] = np.nan
    assert TwoOfFour.find(matrix, Use.TENSOR_CORES) == (TwoOfFour.of(0),)


@pytest.mark.parametrize("word", ["two_of_four", "two_of_four_", "two_of_four_8", "two_of_four_x", "two_of_five_1"])
def test_no_other_word_is_an_encoding_of_two_of_four(word: str) -> None:
    with pytest.raises(ValueError, match="no encoding of two elements of four"):
        TwoOfFour.read(word)
    assert TwoOfFour.read(TwoOfFour.of(3).word) == TwoOfFour.of(3)
