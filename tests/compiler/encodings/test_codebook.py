from __future__ import annotations

from math import prod

import numpy as np
import pytest

from compiler.encodings.codebook import MOST_VALUES, Codebook, SharedValues, values_of
from compiler.encodings.encoding import Use


def shared(rng: np.random.Generator, dims: tuple[int, ...], values: int) -> np.ndarray:
    """Elements of so many values, each of which is there."""
    indices = rng.permutation(np.resize(np.arange(values), prod(dims))).reshape(dims)
    return np.asarray(rng.permutation(np.linspace(-1, 2, values)).astype(np.float32)[indices])


def by_rows(rng: np.random.Generator, rows: int, columns: int, values: int) -> np.ndarray:
    return np.stack([(row + 1) * shared(rng, (columns,), values) for row in range(rows)])


@pytest.mark.parametrize(("values", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 4), (16, 4), (17, 8), (256, 8)])
def test_indices_have_the_fewest_bits_that_tell_all_values_apart(values: int, bits: int) -> None:
    matrix = shared(np.random.default_rng(values), (64, 96), values)
    assert Codebook.find(matrix, Use.GEMV) == (Codebook.of(bits),)
    found = SharedValues.of(matrix)
    assert found is not None
    assert (found.values, found.codebooks, found.saved_bytes) == (
        values,
        1,
        4 * matrix.size - matrix.size * bits // 8 - 4 * values,
    )


def test_one_value_too_many_anywhere_is_no_codebook() -> None:
    matrix = shared(np.random.default_rng(1), (300, 400), MOST_VALUES)
    assert Codebook.find(matrix, Use.GEMV) == (Codebook.of(8),)
    for place in ((0, 0), (299, 399), (150, 7)):
        other = matrix.copy()
        other[place] = 7
        assert Codebook.find(other, Use.GEMV) == ()


def test_lines_of_either_axis_may_have_codebooks_of_their_own() -> None:
    rows = by_rows(np.random.default_rng(2), 32, 512, 16)
    assert Codebook.find(rows, Use.GEMV) == (Codebook.of(4, 0),)
    assert Codebook.find(rows.T, Use.GEMV) == (Codebook.of(4, 1),)
    filters = np.ascontiguousarray(rows.reshape(32, 32, 4, 4))
    assert Codebook.find(filters, Use.GEMV) == (Codebook.of(4, 0),)
    found = SharedValues.of(rows)
    assert found is not None
    assert str(found) == "16 values, 6.2 % zeros; indices of 4 bits, a codebook for each index of axis 0"
    assert Codebook.find(by_rows(np.random.default_rng(2), 32, 512, 17), Use.GEMV) == ()
    short = by_rows(np.random.default_rng(2), 512, 32, 16)
    assert Codebook.find(short, Use.GEMV) == (), "codebooks of short lines take more than they save"


def test_both_are_told_where_one_codebook_takes_more_bits() -> None:
    matrix = np.concatenate([shared(np.random.default_rng(3), (16, 256), 16) + part for part in (0, 1)])
    assert Codebook.find(matrix, Use.GEMV) == (Codebook.of(8), Codebook.of(4, 0))
    found = SharedValues.of(matrix)
    assert found is not None
    assert found.encoding == Codebook.of(4, 0)


def test_zeros_are_values_of_either_sign() -> None:
    matrix = np.where(np.random.default_rng(4).random((64, 64)) < 0.25, 1.0, 0.0).astype(np.float32)
    matrix[::2] *= -1
    found = SharedValues.of(matrix)
    assert found is not None
    assert (found.values, found.encoding.bits) == (4, 2)
    assert found.zeros == np.count_nonzero(matrix == 0)
    assert "4 values, 7" in str(found)


def test_small_constants_other_types_and_numbers_that_are_not_finite_have_none() -> None:
    matrix = shared(np.random.default_rng(5), (64, 64), 4)
    assert Codebook.find(matrix, Use.GEMV) == (Codebook.of(2),)
    assert Codebook.find(matrix[:8], Use.GEMV) == ()
    assert Codebook.find(matrix.reshape(-1), Use.GEMV) == ()
    assert Codebook.find(matrix.astype(np.float64), Use.GEMV) == ()
    for number in (np.inf, -np.inf, np.nan):
        other = matrix.copy()
        other[63, 63] = number
        assert Codebook.find(other, Use.GEMV) == ()
        assert SharedValues.of(other) is None


@pytest.mark.parametrize("word", ["codebook", "codebook_3", "codebook_4_8", "codebook_4_1_1", "codebook_x", "book_4"])
def test_no_other_word_is_a_codebook(word: str) -> None:
    with pytest.raises(ValueError, match="is no codebook"):
        Codebook.read(word)


@pytest.mark.parametrize("codebook", [Codebook.of(1), Codebook.of(4), Codebook.of(8), Codebook.of(4, 1)])
def test_a_codebook_is_read_from_its_word_and_gives_arrays_of_so_many_values(codebook: Codebook) -> None:
    assert Codebook.read(codebook.word) == codebook
    for low in (-1.0, 0.1):
        array = np.random.default_rng(6).uniform(low, 1, (100, 70)).astype(np.float32)
        near = codebook.pruned(array)
        found = values_of(near, 1 << codebook.bits)
        assert found is not None
        assert len(found) > (1 << codebook.bits) // 2
        assert np.abs(near - array).max() <= 2 / (1 << codebook.bits)
