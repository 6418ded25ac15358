from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.encoding import (
    DENSE,
    INT24,
    MAX_PEAK,
    MIN_BYTES,
    Int24Panels,
    TwoOfFour,
    encodings_of,
    two_of_four_encodings_of,
)
from compiler.ir.packing import Panels


def unpacked(packing: Int24Panels, octets: np.ndarray) -> np.ndarray:
    """float64[panels, depth, panel]: what packed bytes stand for."""
    depth, panel = packing.panels.depth, packing.panels.panel
    found = []
    for piece in octets.reshape(-1, packing.panel_bytes):
        numbers = np.zeros((depth, panel, 4), np.uint8)
        numbers[:, :, 1:] = piece[: 3 * depth * panel].reshape(depth, panel, 3)
        factors = piece[3 * depth * panel :].view("<f4").astype(np.float64)
        found.append(numbers.view("<i4")[:, :, 0] * 2.0**-31 * factors)
    return np.stack(found)


def packing_of(depth: int, columns: int, panel: int) -> Int24Panels:
    return Int24Panels(Panels((0,), depth, columns, panel, ((depth, columns), (columns, 1))))


def test_elements_are_off_by_at_most_two_to_the_minus_23_of_the_largest_of_their_column() -> None:
    rng = np.random.default_rng(1)
    matrix = (rng.normal(size=(50, 40)) * np.exp2(rng.integers(-40, 40, 40))).astype(np.float32)
    packing = packing_of(50, 40, 16)
    packed = packing.pack(matrix)
    assert packed.dtype == np.uint8
    assert packed.size == packing.elements
    got = unpacked(packing, packed).transpose(1, 0, 2).reshape(50, -1)
    assert (got[:, 40:] == 0).all()
    assert (np.abs(got[:, :40] - matrix) <= 2.0**-23 * np.abs(matrix).max(0)).all()


def test_elements_that_came_from_a_half_type_are_kept_as_they_are() -> None:
    rng = np.random.default_rng(2)
    matrix = rng.uniform(-1, 1, (64, 16)).astype(np.float16).astype(np.float32)
    matrix[np.abs(matrix) < 2.0**-12] = 0
    packing = packing_of(64, 16, 16)
    np.testing.assert_array_equal(unpacked(packing, packing.pack(matrix))[0], matrix)


def test_the_largest_of_both_signs_zeros_and_subnormals_are_kept() -> None:
    matrix = np.array([[1.0, -1.0, 0.0, 1e-40], [-1.0, 0.5, -0.0, -1e-40]], np.float32)
    packing = packing_of(2, 4, 4)
    got = unpacked(packing, packing.pack(matrix))[0]
    np.testing.assert_allclose(got[:, :3], matrix[:, :3], rtol=2.0**-23)
    np.testing.assert_allclose(got[:, 3], matrix[:, 3], rtol=1e-4)


def large(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(512, MIN_BYTES // 2048)).astype(np.float32)


def test_a_matrix_with_a_lonely_peak_in_any_line_is_not_even() -> None:
    rng = np.random.default_rng(3)
    assert encodings_of(large(rng)) == (DENSE, INT24)
    for line in (np.s_[3, :], np.s_[:, 5]):
        matrix = large(rng)
        matrix[line] *= 1e-3
        matrix[3, 5] = 4 * MAX_PEAK
        assert encodings_of(matrix) == (DENSE,)


def test_small_matrices_other_types_and_numbers_that_are_not_finite_are_not_even() -> None:
    rng = np.random.default_rng(4)
    assert encodings_of(large(rng)[:100]) == (DENSE,)
    assert encodings_of(large(rng).astype(np.float64)) == (DENSE,)
    assert encodings_of(large(rng).reshape(-1)) == (DENSE,)
    for number in (np.inf, np.nan):
        matrix = large(rng)
        matrix[0, 0] = number
        assert encodings_of(matrix) == (DENSE,)


def test_two_of_four_is_found_along_the_dimensions_that_have_it() -> None:
    rng = np.random.default_rng(6)
    filters = rng.normal(size=(16, 32, 3, 3)).astype(np.float32)
    assert two_of_four_encodings_of(filters) == ()
    along_inputs = TwoOfFour.of(1).pruned(filters)
    assert two_of_four_encodings_of(along_inputs) == (TwoOfFour.of(1),)
    np.testing.assert_array_equal(along_inputs[along_inputs != 0], filters[along_inputs != 0])
    assert ((along_inputs != 0).reshape(16, 8, 4, 9).sum(2) == 2).all()
    assert two_of_four_encodings_of(along_inputs[:, :, 0, 0][:, :30]) == ()  # too few elements, and no whole groups
    both = TwoOfFour.of(0).pruned(along_inputs)
    assert two_of_four_encodings_of(both) == (TwoOfFour.of(0), TwoOfFour.of(1))
    one_more = along_inputs.copy()
    one_more[3, 4:8, 1, 2] = 1
    assert two_of_four_encodings_of(one_more) == ()
    assert two_of_four_encodings_of(along_inputs.astype(np.float16)) == (TwoOfFour.of(1),)


def test_two_of_four_is_found_among_signed_bytes_and_no_other_integers() -> None:
    octets = np.random.default_rng(7).integers(-128, 128, (32, 64)).astype(np.int8)
    octets[:, ::4] = -128
    assert two_of_four_encodings_of(octets) == ()
    along_rows = TwoOfFour.of(1).pruned(octets)
    assert along_rows.dtype == np.int8
    assert (along_rows[:, ::4] == -128).all()  # the largest of its four
    assert two_of_four_encodings_of(along_rows) == (TwoOfFour.of(1),)
    assert two_of_four_encodings_of(along_rows.view(np.uint8)) == ()
    assert two_of_four_encodings_of(along_rows.astype(np.int32)) == ()


def test_a_number_that_is_none_counts_as_a_weight() -> None:
    matrix = np.zeros((64, 64), np.float32)
    matrix[0, :2] = np.nan
    assert two_of_four_encodings_of(matrix) == (TwoOfFour.of(0), TwoOfFour.of(1))
    matrix[0, 2] = np.nan
    assert two_of_four_encodings_of(matrix) == (TwoOfFour.of(0),)


@pytest.mark.parametrize("word", ["two_of_four", "two_of_four_", "two_of_four_8", "two_of_four_x", "two_of_five_1"])
def test_no_other_word_is_an_encoding_of_two_of_four(word: str) -> None:
    with pytest.raises(ValueError, match="no encoding of two elements of four"):
        TwoOfFour.read(word)
    assert TwoOfFour.read(TwoOfFour.of(3).word) == TwoOfFour.of(3)
