from __future__ import annotations

import numpy as np
import pytest

from bench.generate.codes import BLOCK, Codes, Coding, coded, packed
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded

MATRIX = np.random.default_rng(5).standard_normal((6, 3 * BLOCK)).astype(np.float32)


@pytest.mark.parametrize("coding", list(Coding))
@pytest.mark.parametrize("is_head", [True, False])
def test_a_weight_is_at_most_half_a_step_from_its_code(coding: Coding, is_head: bool) -> None:
    found = coded(MATRIX, coding, is_head=is_head)
    assert found.size == MATRIX.shape
    steps = np.repeat(found.scales, MATRIX.shape[1] // found.scales.shape[1], 1)
    limit = 0.0 if coding is Coding.FP32 else 0.5001
    # Of codes between the least and the greatest weight the zero point is rounded too.
    limit *= 2 if coding in (Coding.NBITS4, Coding.HALVES) else 1
    assert (np.abs(found.values() - MATRIX) <= limit * steps).all()


def test_a_block_of_zeros_stays_zero_and_one_of_one_sign_keeps_its_zero() -> None:
    matrix = np.concatenate([np.zeros((1, BLOCK)), np.linspace(1, 2, BLOCK)[None]]).astype(np.float32)
    for coding in Coding:
        found = coded(matrix, coding)
        assert not found.values()[0].any()
        assert found.values()[1].min() > 0.8
        assert np.isfinite(found.scales).all()


def test_scales_of_halves_are_numbers_of_fp16_and_others_are_not() -> None:
    for coding, held in ((Coding.HALVES, True), (Coding.NBITS4, False)):
        scales = coded(MATRIX, coding).scales
        assert bool((scales.astype(np.float16) == scales).all()) is held


def test_what_is_no_multiple_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="33 inputs are no multiple of a block of 32"):
        coded(np.ones((2, BLOCK + 1), np.float32), Coding.NBITS4)


def test_codes_are_packed_with_the_first_in_the_lower_bits() -> None:
    assert packed(np.array([[1, 2, 15]], np.uint8)).tolist() == [[0x21, 0x0F]]


def test_values_are_of_codes_less_zeros_times_scales() -> None:
    codes = Codes(
        np.array([[[0, 3], [15, 8]]], np.uint8), np.array([[0.5, 2]], np.float32), np.array([[3, 8]], np.uint8), 4
    )
    assert codes.values().tolist() == [[-1.5, 0.0, 14.0, 0.0]]


def test_a_seeded_array_depends_on_seed_and_name_alone() -> None:
    tiny = SHAPES["tiny"]
    first = Seeded(tiny).array("blk.0.attn_q")
    np.testing.assert_array_equal(first, Seeded(tiny).array("blk.0.attn_q"))
    assert first.shape == tiny.matrices["blk.0.attn_q"]
    for other in (Seeded(tiny, 1).array("blk.0.attn_q"), Seeded(tiny).array("blk.1.attn_q")):
        assert np.abs(first - other).max() > 0.1
    assert Seeded(tiny).array("output_norm").shape == (tiny.width,)
