from __future__ import annotations

import numpy as np

from compiler.encodings.encoding import Use
from compiler.encodings.int24 import INT24, MAX_PEAK, MIN_BYTES


def large(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(512, MIN_BYTES // 2048)).astype(np.float32)


def test_a_matrix_with_a_lonely_peak_in_any_line_is_not_even() -> None:
    rng = np.random.default_rng(3)
    assert INT24.find(large(rng), Use.ONCE) == (INT24,)
    for line in (np.s_[3, :], np.s_[:, 5]):
        matrix = large(rng)
        matrix[line] *= 1e-3
        matrix[3, 5] = 4 * MAX_PEAK
        assert INT24.find(matrix, Use.ONCE) == ()


def test_small_matrices_other_types_and_numbers_that_are_not_finite_are_not_even() -> None:
    rng = np.random.default_rng(4)
    assert INT24.find(large(rng)[:100], Use.ONCE) == ()
    assert INT24.find(large(rng).astype(np.float64), Use.ONCE) == ()
    assert INT24.find(large(rng).reshape(-1), Use.ONCE) == ()
    for number in (np.inf, np.nan):
        matrix = large(rng)
        matrix[0, 0] = number
        assert INT24.find(matrix, Use.ONCE) == ()
