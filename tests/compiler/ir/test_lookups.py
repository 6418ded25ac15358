from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.lookups import Lookups, lookup_encodings_of, order_of
from compiler.ir.picks import in_panels, steps_of
from compiler.ir.zeros import CLASSES
from tests.compiler.ir.test_combined import packable


def matrix(mask: np.ndarray) -> np.ndarray:
    return np.asarray(mask * np.random.default_rng(1).uniform(0.1, 1, mask.shape), np.float32)


def anywhere(share: float) -> np.ndarray:
    return np.random.default_rng(2).random((160, 256)) >= share


@pytest.mark.parametrize("transposed", [False, True])
def test_combined_columns_are_brought_together_so_that_a_step_takes_a_packed_one(transposed: bool) -> None:
    mask = packable(160, 256, 64)
    found = lookup_encodings_of(matrix(mask.T if transposed else mask))
    (one,) = (each for each in found if isinstance(each, Lookups) and each.lines == int(transposed))
    assert one.ordered
    assert one.fill(16) == CLASSES // 4
    assert steps_of(in_panels(mask, 16), 1, 16).counts.sum() > 1.15 * 64 * 10, "in the order as it is there are more"
    order = order_of(mask)
    assert order is not None
    assert np.array_equal(np.sort(order), np.arange(256))


def test_zeros_anywhere_are_told_in_the_order_as_it_is_and_dense_matrices_and_windows_not_at_all() -> None:
    found = lookup_encodings_of(matrix(anywhere(0.9)))
    assert [(one.lines, one.ordered) for one in found if isinstance(one, Lookups)] == [(0, False), (1, False)]
    assert lookup_encodings_of(matrix(anywhere(0.4))) == ()
    assert lookup_encodings_of(matrix(anywhere(0.9)).reshape(160, 64, 2, 2)) == ()
    assert lookup_encodings_of(matrix(anywhere(0.9)).reshape(160, 256, 1, 1)) != ()
    assert lookup_encodings_of(matrix(anywhere(0.9)).astype(np.float64)) == ()


def test_words_are_read_back_and_others_refused() -> None:
    one = Lookups.of(1, True, (12, 9))
    assert Lookups.read(one.word) == one
    for word in ("lookups_1_1_12", "lookups_1_2_12_9", "lookups_1_0_0_9", "lookups_1_0_65_9", "picks_1_0_1_1"):
        with pytest.raises(ValueError, match="no encoding of lookups"):
            Lookups.read(word)
    assert one.fits((64, 32))
    assert one.fits((64, 32, 1, 1))
    for dims in ((64,), (8, 32), (64, 1), (64, 32, 3)):
        assert not one.fits(dims)
