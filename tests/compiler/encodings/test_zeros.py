from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.encodings.encoding import Use
from compiler.encodings.sparse import Sparse
from compiler.encodings.zeros import Zeros, entries_of, fill_of, is_grouped, order_of


def weights(*shape: int, seed: int = 1) -> np.ndarray:
    """Float32, none of them zero."""
    return np.random.default_rng(seed).uniform(0.1, 1, shape).astype(np.float32)


def pruned(array: np.ndarray, high: int, wide: int, share: float = 0.2) -> np.ndarray:
    """Blocks of lines x inputs, at each tap, kept or not as a whole."""
    random = np.random.default_rng(5)
    lines, inputs, *taps = array.shape
    mask = random.random((lines // high, inputs // wide, *taps)) < share
    return np.asarray(array * mask.repeat(high, 0).repeat(wide, 1))


def two_of_four(array: np.ndarray) -> np.ndarray:
    groups = array.reshape(len(array), -1, 4).copy()
    place = np.argsort(np.random.default_rng(2).random(groups.shape), 2)
    np.put_along_axis(groups, place[:, :, :2], 0, 2)
    return groups.reshape(array.shape)


def without(array: np.ndarray, lines: slice, inputs: slice) -> np.ndarray:
    array = array.copy()
    array[lines] = 0
    array[:, inputs] = 0
    return array


def in_patterns(array: np.ndarray, kinds: int, few: int) -> np.ndarray:
    """Each window by one of so many masks of `few` weights, or left out."""
    random = np.random.default_rng(8)
    lines, inputs, *taps = array.shape
    count = int(np.prod(taps))
    masks = np.zeros((kinds + 1, count), bool)
    for mask in masks[:kinds]:
        mask[random.permutation(count)[:few]] = True
    return np.asarray(array * masks[random.integers(0, kinds + 1, (lines, inputs))].reshape(array.shape))


FORMS: tuple[tuple[str, Callable[[], np.ndarray]], ...] = (
    ("unstructured", lambda: pruned(weights(32, 32, 3, 3), 1, 1)),
    ("4x1 vectors", lambda: pruned(weights(32, 32, 3, 3), 4, 1)),
    ("1x8 vectors", lambda: pruned(weights(32, 32), 1, 8)),
    ("16x1 vectors", lambda: pruned(weights(64, 64), 16, 1)),
    ("4x4 blocks", lambda: pruned(weights(32, 32), 4, 4)),
    ("8x8 blocks", lambda: pruned(weights(64, 64, 3, 3), 8, 8)),
    ("6 patterns of 4 of 9", lambda: in_patterns(weights(32, 32, 3, 3), 6, 4)),
    ("unstructured", lambda: in_patterns(weights(32, 32, 3, 3), 100, 4)),
    ("unstructured", lambda: pruned(weights(32, 32, 3, 3), 1, 1, 0.04)),
    ("2:4", lambda: two_of_four(weights(32, 64))),
    ("2:4", lambda: two_of_four(weights(32, 64)).T),
    ("lines", lambda: without(weights(32, 32, 3, 3), slice(0, 20), slice(0))),
    ("inputs", lambda: without(weights(32, 32, 3, 3), slice(0), slice(3, 23))),
    ("lines and inputs", lambda: without(weights(32, 64), slice(0, 16), slice(0, 32))),
    ("lines and unstructured", lambda: without(pruned(weights(32, 32), 1, 1), slice(0, 8), slice(0))),
)


@pytest.mark.parametrize(("form", "array"), FORMS, ids=[form for form, _ in FORMS])
def test_zeros_are_told_by_the_strongest_form_that_they_keep_to(form: str, array: Callable[[], np.ndarray]) -> None:
    found = Zeros.of(array())
    assert found is not None
    assert found.form == form
    assert found.share == pytest.approx(float((array() == 0).mean()))


def test_lines_that_are_zero_or_like_others_and_inputs_that_nothing_reads_are_counted() -> None:
    array = without(pruned(weights(32, 64), 1, 1, 0.4), slice(4, 9), slice(60, 64))
    array[20] = array[21] = array[2]
    found = Zeros.of(array)
    assert found is not None
    assert (found.lines, found.zero_lines, found.equal_lines, found.zero_inputs) == (32, 5, 2, 4)
    assert str(found).endswith("5 of 32 lines zero; 2 lines equal to others; 4 inputs unread")


@pytest.mark.parametrize(
    "array",
    [
        weights(64, 64),
        np.zeros((64, 64), np.float32),
        np.zeros(4096, np.float32),
        pruned(weights(8, 8), 1, 1),
        np.zeros((64, 64), np.bool_),
    ],
    ids=["dense", "nothing else", "one dimension", "few elements", "no numbers"],
)
def test_of_other_tensors_nothing_is_told(array: np.ndarray) -> None:
    assert Zeros.of(array) is None


def test_blocks_along_a_diagonal_are_groups_unless_they_have_zeros_inside() -> None:
    blocks = np.zeros((32, 48, 3, 3), np.float32)
    for group in range(4):
        blocks[8 * group : 8 * group + 8, 12 * group : 12 * group + 12] = weights(8, 12, 3, 3)
    assert is_grouped(blocks)
    assert Sparse.find(blocks, Use.PRODUCT) == ()
    holed, beside = blocks.copy(), blocks.copy()
    holed[3, 4, 1, 1] = 0
    beside[3, 40] = 1
    assert not is_grouped(holed)
    assert not is_grouped(beside)
    assert Sparse.find(holed, Use.PRODUCT)
    assert not is_grouped(pruned(weights(32, 32), 1, 1))
    assert not is_grouped(weights(32, 32))


def test_a_nan_is_no_zero_and_a_negative_zero_is_one() -> None:
    array = pruned(weights(32, 32), 1, 1)
    (first, *_), (second, *_) = np.nonzero(array == 0)
    array[first, second] = np.nan
    plain = Zeros.of(np.where(array == 0, np.float32(-0.0), array))
    assert plain is not None
    assert plain.share == pytest.approx(float((array == 0).mean()))


def test_lines_alike_are_brought_together_where_that_keeps_less_whatever_the_order_of_places() -> None:
    random = np.random.default_rng(3)
    kinds = random.random((8, 200)) < 0.1
    mask = kinds[random.permutation(np.arange(8).repeat(4))]
    order = order_of(mask, 4)
    assert sorted(order) == [*range(32)]
    assert entries_of(mask[order], 4) == kinds.sum() < entries_of(mask, 4)
    np.testing.assert_array_equal(order_of(mask[:, random.permutation(200)], 4), order)
    assert fill_of(mask, 4) == -(-int(kinds.sum()) * 64 // (8 * 200))
    other = random.random((32, 200)) < 0.1
    np.testing.assert_array_equal(order_of(other, 4), np.arange(32))
