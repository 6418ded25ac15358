from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from compiler.encodings.blocks import WIDTHS, Blocks, block_encodings_of
from compiler.encodings.encoding import Use
from compiler.encodings.zeros import CLASSES


def in_blocks(shape: tuple[int, int], lines: int, group: int, kept: np.ndarray, dtype: type = np.int8) -> np.ndarray:
    """A matrix that is one where blocks of so many lines and neighbours are kept, bool[lines, groups]."""
    mask = kept.repeat(lines, 0).repeat(group, 1)[: shape[0], : shape[1]]
    return np.asarray(np.ones(shape, dtype) * mask)


def test_what_blocks_of_each_width_keep_is_told() -> None:
    kept = np.zeros((4, 16), bool)
    kept[0, :4], kept[1, 4:8] = True, True
    matrix = in_blocks((64, 64), 16, 4, kept)
    (first, second) = block_encodings_of(matrix, 4)
    assert isinstance(first, Blocks)
    assert (first.lines, first.along, first.group) == (0, 1, 4)
    assert [first.fill(width) for width in WIDTHS] == [CLASSES // 8, CLASSES // 8, CLASSES // 4]
    assert isinstance(second, Blocks)
    assert (second.lines, second.along) == (1, 0)
    halves = in_blocks((64, 64), 16, 4, kept, np.float32)
    assert [one.group for one in block_encodings_of(halves, 2) if isinstance(one, Blocks)] == [2, 2]


def test_filters_have_a_block_at_each_tap() -> None:
    filters = np.zeros((32, 16, 3, 3), np.int8)
    filters[:, 4:8, 1, 2] = 1
    lines, columns = block_encodings_of(filters, 4)
    assert isinstance(lines, Blocks)
    assert lines.fill(32) == -(-CLASSES // 36)
    assert (columns.name, lines.name) == ("blocks_1_0_4_4_8_8", "blocks_0_1_4_2_2_2")


def test_a_matrix_among_axes_of_one_keeps_its_dimensions() -> None:
    matrix = np.zeros((1, 64, 64), np.int8)
    matrix[0, :4, :16] = 1
    assert [(one.lines, one.along) for one in block_encodings_of(matrix, 4) if isinstance(one, Blocks)] == [
        (1, 2),
        (2, 1),
    ]


@pytest.mark.parametrize(
    "constant",
    [
        np.ones((64, 64), np.int8),
        (np.random.default_rng(0).random((64, 64)) < 0.3).astype(np.int8),
        np.zeros((8, 8), np.int8),
        np.zeros(4096, np.int8),
        np.zeros((63, 33), np.int8),
    ],
    ids=["dense", "scattered", "small", "vector", "no groups"],
)
def test_nothing_is_told_of_what_has_no_blocks(constant: np.ndarray) -> None:
    assert block_encodings_of(constant, 4) == ()


@pytest.mark.parametrize(
    "word", ["blocks", "blocks_0_1_4_1_1", "blocks_0_0_4_1_1_1", "blocks_0_1_3_1_1_1", "blocks_0_1_4_1_1_65"]
)
def test_no_other_word_is_an_encoding_of_blocks(word: str) -> None:
    with pytest.raises(ValueError, match="no encoding of blocks"):
        Blocks.read(word)
    one = Blocks.of(1, 0, 2, (3, 4, 5))
    assert Blocks.read(one.word) == one
    assert one.fits((4, 8))
    assert not one.fits((3, 8))
    assert not one.fits((4,))


def test_vectors_are_told_of_in_every_group_that_keeps_less_than_a_larger_one() -> None:
    mask = np.random.default_rng(3).random((8, 8)) < 0.2
    pairs = in_blocks((128, 64), 16, 2, np.random.default_rng(4).random((8, 32)) < 0.2, np.float32)
    wide = in_blocks((128, 64), 16, 8, mask, np.float32)
    assert [one.group for one in Blocks.find(wide, Use.TENSOR_CORES) if one.lines == 0] == [8]
    found = [one for one in Blocks.find(pairs, Use.TENSOR_CORES) if one.lines == 0]
    assert [one.group for one in found] == [8, 4, 2]
    assert found[0].fills > found[1].fills > found[2].fills
    assert Blocks.find(pairs.astype(np.float16), Use.TENSOR_CORES) == Blocks.find(pairs, Use.TENSOR_CORES)
    assert Blocks.find((100 * pairs).astype(np.int8), Use.TENSOR_CORES) == Blocks.find(pairs, Use.TENSOR_CORES)
    assert Blocks.find((100 * pairs).astype(np.uint8), Use.TENSOR_CORES) == ()
    assert Blocks.find(np.ones((128, 64), np.float32), Use.TENSOR_CORES) == ()


@pytest.mark.parametrize("shape", [(64, 64), (200, 72, 3, 3), (40, 136), (48, 88)])
@pytest.mark.parametrize("fills", [(16, 24, 32), (9, 10, 20)])
def test_what_is_pruned_by_encodings_keeps_no_more_than_each_says(
    shape: tuple[int, ...], fills: tuple[int, ...]
) -> None:
    encodings = [Blocks.of(lines, 1 - lines, group, fills) for lines in (0, 1) for group in (1, 2, 8)]
    pruned = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    for one in encodings:
        pruned = one.pruned(pruned)
    assert np.count_nonzero(pruned) > 0.3 * fills[0] / CLASSES * pruned.size
    for one in encodings:
        mask = np.moveaxis(pruned != 0, (one.lines, one.along), (0, 1))
        groups = mask.reshape(len(mask), -1, one.group, mask[0, 0].size).any(2).reshape(len(mask), -1)
        for width, fill in zip(WIDTHS, fills, strict=True):
            panels = [groups[at : at + width].any(0).mean() for at in range(0, len(groups), width)]
            assert np.mean(panels) <= fill / CLASSES


def test_weights_of_recurrent_layers_have_blocks_of_one_input() -> None:
    weights = np.zeros((2, 64, 64), np.float32)
    weights[0, :16, ::4], weights[1, 20:24, :8] = 1, 1
    (one,) = Blocks.find(weights, Use.RECURRENCE)
    assert isinstance(one, Blocks)
    assert (one.lines, one.along, one.group) == (1, 2, 1)
    shares = 40 / (2 * 8 * 64), 24 / (2 * 4 * 64), 24 / (2 * 2 * 64)
    assert [one.fill(width) for width in WIDTHS] == [ceil(CLASSES * share) for share in shares]
    assert Blocks.read(one.word) == one


@pytest.mark.parametrize(
    "constant",
    [
        np.ones((1, 64, 64), np.float32),
        (np.random.default_rng(0).random((1, 64, 64)) < 0.3).astype(np.float32),
        np.zeros((1, 64, 64), np.int8),
        np.zeros((1, 8, 8), np.float32),
        np.zeros(4096, np.float32),
    ],
    ids=["dense", "scattered", "bytes", "small", "vector"],
)
def test_nothing_is_told_of_recurrent_weights_without_blocks(constant: np.ndarray) -> None:
    assert Blocks.find(constant, Use.RECURRENCE) == ()
