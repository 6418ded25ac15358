from __future__ import annotations

import numpy as np

from compiler.encodings.encoding import DENSE
from compiler.encodings.int24 import INT24, MAX_PEAK, MIN_BYTES, encodings_of


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
