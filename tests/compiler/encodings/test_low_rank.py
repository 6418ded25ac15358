from __future__ import annotations

import numpy as np
import pytest

from compiler.encodings.low_rank import CLOSE, factors_of, most_rank


def product(rows: int, rank: int, columns: int) -> np.ndarray:
    """Float32 of a rank, as training leaves factors that are multiplied out."""
    random = np.random.default_rng(rank)
    u, v = random.normal(size=(rows, rank)), random.normal(size=(rank, columns))
    return np.asarray((u.astype(np.float32) @ v.astype(np.float32)).astype(np.float32))


@pytest.mark.parametrize(("rows", "rank", "columns"), [(96, 1, 40), (200, 24, 300), (128, 32, 128), (5, 1, 5)])
def test_factors_of_a_low_rank_are_near_to_the_matrix_and_have_half_of_its_elements(
    rows: int, rank: int, columns: int
) -> None:
    matrix = product(rows, rank, columns)
    found = factors_of(matrix)
    assert found is not None
    assert rank <= found.rank <= rank + 2
    assert found.elements <= matrix.size // 2
    wide = matrix.astype(np.float64)
    u, v = (each.astype(np.float32).astype(np.float64) for each in (found.u, found.v))
    assert np.linalg.norm(u @ v - wide) <= CLOSE * np.linalg.norm(wide)


def test_matrices_of_higher_rank_of_noise_and_of_nothing_have_no_factors() -> None:
    assert most_rank(128, 128) == 32
    assert factors_of(product(128, 40, 128)) is None
    noisy = product(128, 8, 128) + np.random.default_rng(0).normal(0, 1e-3, (128, 128))
    assert factors_of(noisy) is None
    assert factors_of(np.zeros((64, 64), np.float32)) is None
    assert factors_of(np.full((64, 64), np.nan, np.float32)) is None
    assert factors_of(np.ones((64, 64), np.int8)) is None
    corner = np.zeros((128, 128), np.float32)
    corner[1:60, 1:60] = np.random.default_rng(1).normal(size=(59, 59))
    assert factors_of(corner) is None


def test_rows_of_zeros_and_repeated_rows_do_not_matter() -> None:
    matrix = np.repeat(product(30, 6, 120), 4, axis=0)
    matrix[::3] = 0
    found = factors_of(matrix)
    assert found is not None
    assert found.rank == 6
