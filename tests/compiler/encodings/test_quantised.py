from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from compiler.encodings import quantised as quantised_blocks
from compiler.encodings.encoding import Use
from compiler.encodings.quantised import BITS, Quantised, QuantisedWeights, blocks_of, grid_of, scales_of

DIMS = (192, 80)


def quantised(
    rng: np.random.Generator, dims: tuple[int, ...], encoding: Quantised, scales: Sequence[float] = ()
) -> np.ndarray:
    """A constant of codes, drawn, with a scale (one of `scales`, if given) and perhaps a zero point for each block."""
    extent, top = dims[encoding.axis], (1 << encoding.bits) - 1
    lines = [dim for axis, dim in enumerate(dims) if axis != encoding.axis]
    blocks = -(-extent // encoding.block)
    codes = rng.integers(0, top + 1, (*lines, blocks, encoding.block))
    zeros = (top + 1) // 2 if encoding.centred else rng.integers(0, top + 1, (*lines, blocks, 1))
    drawn = rng.choice(scales, (*lines, blocks, 1)) if scales else 0.001 + 0.004 * rng.random((*lines, blocks, 1))
    drawn = scales_of(drawn, encoding.scale)
    values = ((codes - zeros).astype(np.float32) * drawn).reshape(*lines, -1)[..., :extent]
    return np.ascontiguousarray(np.moveaxis(values, -1, encoding.axis))


FORMS = [
    Quantised.of(bits, axis, block or DIMS[axis], centred=centred, scale=scale)
    for bits in BITS
    for axis in (0, 1)
    for block, scale in ((16, 32), (32, 16), (32, 32), (64, 16), (0, 32))
    for centred in (True, False)
]


@pytest.mark.parametrize("encoding", FORMS, ids=str)
def test_what_was_quantised_is_found_and_gives_every_value_back_to_the_bit(encoding: Quantised) -> None:
    constant = quantised(np.random.default_rng(len(str(encoding))), DIMS, encoding)
    found = [one for one in Quantised.find(constant, Use.PRODUCT) if one.axis == encoding.axis]
    assert [(one.bits, one.block, one.scale) for one in found] == [(encoding.bits, encoding.block, encoding.scale)]
    assert found[0].centred or not encoding.centred
    blocks = blocks_of(constant, encoding.axis, encoding.block)
    grid = grid_of(blocks, encoding.bits, encoding.scale)
    assert grid is not None
    np.testing.assert_array_equal(scales_of(grid.scales, encoding.scale), grid.scales)
    np.testing.assert_array_equal(np.float32(grid.scales[:, None]) * grid.numbers.astype(np.float32), blocks)
    reach = np.maximum(grid.numbers.max(1), 0) - np.minimum(grid.numbers.min(1), 0)
    assert reach.max() < 1 << encoding.bits


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_scales_of_either_type_are_found(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(5)
    scales = [float(dtype(one)) for one in rng.random(50) * 0.01]
    encoding = Quantised.of(4, 0, 32, centred=True, scale=8 * dtype().itemsize)
    constant = quantised(rng, DIMS, encoding, scales)
    assert encoding in Quantised.find(constant, Use.PRODUCT)
    grid = grid_of(blocks_of(constant, 0, 32), 4)
    assert grid is not None
    whole = np.abs(grid.numbers).max(1) > 7
    assert {float(one) for one in np.abs(grid.scales[whole])} <= {float(np.float32(one)) for one in scales}


def test_a_scale_below_zero_is_found_where_numbers_reach_further_up() -> None:
    numbers = np.tile(np.arange(-7, 9), 8).reshape(4, 32)
    scales = np.array([[0.5], [0.1], [0.3], [0.7]], np.float32)
    grid = grid_of(numbers.astype(np.float32) * scales, 4)
    assert grid is not None
    assert grid.is_centred(4)
    np.testing.assert_array_equal(grid.scales, -scales[:, 0])
    np.testing.assert_array_equal(grid.numbers, -numbers)


def test_numbers_that_have_a_common_factor_have_a_scale_of_16_bits_where_the_quotient_has_one() -> None:
    scale = np.float32(2047 * 2.0**-17)
    numbers = np.zeros((3, 32), np.float32)
    numbers[0, 4], numbers[1, :3], numbers[2, 1:3] = 7, (3, -6, 6), (-5, 5)
    for scale_bits in (16, 32):
        grid = grid_of(numbers * scale, 4, scale_bits)
        assert grid is not None
        np.testing.assert_array_equal(grid.scales[:, None] * grid.numbers.astype(np.float32), numbers * scale)
    assert np.abs(grid_of(numbers * scale, 4, 16).scales).tolist() == [scale] * 3  # type: ignore[union-attr]
    assert grid_of(numbers * np.nextafter(scale, np.float32(1)), 4, 16) is None


def test_all_finite_numbers_of_fp16_are_its_own_and_others_are_not() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = halves[np.isfinite(halves)].astype(np.float32)
    np.testing.assert_array_equal(scales_of(every, 16).view(np.uint32), every.view(np.uint32))
    between = np.nextafter(every, np.float32(np.inf))
    assert not np.any(scales_of(between, 16) == between)
    assert np.isfinite(scales_of(np.array([1e30, -1e30], np.float32), 16)).all()


def test_gpus_read_scales_in_fp32_and_reports_count_the_bytes_that_cpus_read() -> None:
    encoding = Quantised.of(4, 0, 32, centred=True, scale=16)
    constant = quantised(np.random.default_rng(7), DIMS, encoding)
    assert Quantised.read(encoding.word) == encoding
    assert {one.scale for one in Quantised.find(constant, Use.TENSOR_CORES)} == {32}
    assert QuantisedWeights(DIMS, encoding).bytes == 192 * 80 // 2 + 192 // 32 * 80 * 2


def test_blocks_of_zeros_and_of_single_numbers_have_grids() -> None:
    blocks = np.zeros((3, 32), np.float32)
    blocks[1, 5], blocks[2] = -0.37, 1e-38
    grid = grid_of(blocks, 2)
    assert grid is not None
    np.testing.assert_array_equal(grid.scales[:, None] * grid.numbers.astype(np.float32), blocks)


@pytest.mark.parametrize("spoil", ["one value", "noise", "a NaN", "an infinity"])
def test_values_that_are_on_no_grid_are_not_taken_for_quantised_ones(spoil: str) -> None:
    rng = np.random.default_rng(2)
    constant = quantised(rng, DIMS, Quantised.of(4, 0, 32, centred=True))
    if spoil == "noise":
        constant = rng.normal(size=DIMS).astype(np.float32)
    else:
        constant[50, 7] = {"one value": np.nextafter(constant[50, 7] + np.float32(0.001), np.float32(9)),
                           "a NaN": np.nan, "an infinity": np.inf}[spoil]  # fmt: skip
    assert not [one for one in Quantised.find(constant, Use.PRODUCT) if one.bits <= 4]


@pytest.mark.parametrize("encoding", FORMS, ids=str)
def test_a_constant_that_is_moved_onto_grids_is_found_on_them(encoding: Quantised) -> None:
    moved = encoding.pruned(np.random.default_rng(1).normal(size=DIMS).astype(np.float32))
    grid = grid_of(blocks_of(moved, encoding.axis, encoding.block), encoding.bits, encoding.scale)
    assert grid is not None
    assert grid.is_centred(encoding.bits)


@pytest.mark.parametrize(
    "word",
    [
        "quantised_3_0_32_1",
        "quantised_4_9_32_1",
        "quantised_4_0_0_1",
        "quantised_4_0_32_2",
        "quantised_4_0_32_1_3",
        "quantised_4_0_32_1_32",
    ],
)
def test_words_that_stand_for_no_blocks_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="is no encoding of quantised blocks"):
        Quantised.read(word)


def test_one_block_tells_that_values_among_zeros_fit_no_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros fit each grid, so that a constant that is mostly zeros is looked at whole."""
    constant = np.zeros((96, 64), np.float32)
    constant[::2] = np.random.default_rng(3).normal(size=(48, 64))
    rows, on = [], quantised_blocks._on

    def counted(blocks: np.ndarray, peak: np.ndarray, most: np.ndarray | int, bits: int) -> tuple[np.ndarray, ...]:
        rows.append(len(blocks))
        return on(blocks, peak, most, bits)

    monkeypatch.setattr(quantised_blocks, "_on", counted)
    assert grid_of(constant, 8) is None
    assert sum(rows) < 1 << 8  # each grid once, of one block
    constant[::2] = np.float32(0.01) * np.random.default_rng(3).integers(-128, 128, (48, 64)).astype(np.float32)
    assert grid_of(constant, 8) is not None
    constant[94] = np.random.default_rng(4).normal(size=64)
    assert grid_of(constant, 8) is None
