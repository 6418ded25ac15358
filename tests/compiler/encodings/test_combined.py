from __future__ import annotations

import numpy as np
import pytest

from compiler.encodings.combined import MOST_COLUMNS, MOST_WORK, combined, groups_of, largest_of_each
from compiler.encodings.zeros import Zeros


def scores(*shape: int, seed: int = 3) -> np.ndarray:
    return np.square(np.random.default_rng(seed).standard_normal(shape))


def packable(lines: int, columns: int, count: int) -> np.ndarray:
    """bool[lines, columns] in which each line has one element of each of so many groups, drawn anyhow."""
    drawn = scores(lines, columns)
    group = np.random.default_rng(4).permutation(columns) % count
    return largest_of_each(drawn, group)


@pytest.mark.parametrize(("lines", "columns", "count"), [(512, 640, 128), (130, 300, 60), (64, 400, 100)])
def test_columns_that_were_combined_are_found_again(lines: int, columns: int, count: int) -> None:
    mask = packable(lines, columns, count)
    found = combined(mask)
    assert found is not None
    assert (found.columns, found.group.shape) == (columns, (columns,))
    assert count <= found.packed <= 1.2 * count
    assert found.filled == pytest.approx(mask.sum() / (lines * found.packed))
    for group in range(found.packed):
        members = mask[:, found.group == group]
        assert members.sum(1).max() == 1, "no line has two elements in a group"
        assert members.shape[1] <= MOST_COLUMNS


def test_columns_of_nothing_are_in_no_group() -> None:
    mask = packable(256, 320, 64)
    mask[:, 7] = False
    found = combined(mask)
    assert found is not None
    assert np.flatnonzero(found.group < 0).tolist() == [7]


def test_zeros_anywhere_few_lines_and_matrices_too_large_are_not_combined() -> None:
    random = np.random.default_rng(5)
    assert combined(random.random((512, 1024)) < 0.1) is None
    assert combined(packable(32, 320, 64)) is None
    assert combined(np.zeros((256, 64), bool)) is None
    wide = np.broadcast_to(np.zeros(1, bool), (64, 1 << 15))
    assert wide.shape[1] ** 2 >= MOST_WORK
    assert combined(wide) is None


def test_lines_keep_the_greatest_of_each_group_and_of_equals_the_first() -> None:
    kept = largest_of_each(np.array([[1.0, 5.0, 2.0, 5.0], [4.0, 0.0, 3.0, 0.0]]), np.array([0, 1, 0, 1]))
    assert kept.tolist() == [[False, True, True, False], [True, True, False, False]]


def test_groups_lose_less_than_groups_drawn_anyhow_and_none_is_large() -> None:
    drawn = scores(96, 400) * np.exp(np.random.default_rng(6).standard_normal(400))
    count = 80
    group = groups_of(drawn, count)
    assert np.bincount(group, minlength=count).max() <= 10
    anyhow = np.random.default_rng(7).permutation(400) % count
    found, others = (drawn[largest_of_each(drawn, one)].sum() / drawn.sum() for one in (group, anyhow))
    assert found > others + 0.05


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_are_named_combined_with_how_they_pack(transposed: bool) -> None:
    mask = packable(256, 320, 64)
    found = Zeros.of((mask.T if transposed else mask).astype(np.float32))
    assert found is not None
    assert found.form == "combined"
    assert str(found) == "80.0 % zeros, combined; 320 columns combined in 64, 100 % filled"


def test_windows_are_combined_over_channels_and_taps() -> None:
    mask = packable(256, 9 * 40, 72).reshape(256, 40, 3, 3)
    for weights in (mask.astype(np.float32), mask.astype(np.int8)):
        found = Zeros.of(weights)
        assert found is not None
        assert found.form == "combined"
        assert found.combined is not None
        assert (found.combined.columns, found.combined.packed) == (360, 72)
