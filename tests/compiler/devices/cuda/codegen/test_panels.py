"""B packed block tile by block tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda.codegen.panels import BlockPanels, SummedPanels, rounded_to_tf32, swizzled
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType


def matrices(batches: int, depth: int, columns: int) -> tuple[np.ndarray, Panels]:
    """B[batch, k, n], and where it lies in it."""
    constant = np.random.default_rng(0).uniform(-1, 1, (batches, depth, columns)).astype(np.float32)
    starts = tuple(batch * depth * columns for batch in range(batches))
    return constant, Panels(starts, depth, columns, 0, ((depth, columns), (columns, 1)))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_a_block_finds_each_of_its_columns_as_a_row_along_k(dtype: DType) -> None:
    constant, matrix = matrices(2, 20, 11)
    packing = BlockPanels(matrix, 8, 16, dtype)
    assert packing.shape == (2, 2, 2, 8, 16)
    packed = packing.pack(constant)
    assert (packed.size, packed.dtype) == (packing.elements, dtype.numpy)
    whole = np.zeros((2, 32, 16), dtype.numpy)
    whole[:, :20, :11] = constant.astype(dtype.numpy)
    for place in np.ndindex(*packing.shape):
        batch, across, down, column, k = place
        assert packed.reshape(packing.shape)[place] == whole[batch, down * 16 + k, across * 8 + column]


@pytest.mark.parametrize("depth", [64, 128])
def test_behind_bytes_stand_sums_of_columns_before_each_step(depth: int) -> None:
    _, matrix = matrices(2, 300, 11)
    constant = np.random.default_rng(1).integers(-128, 128, (2, 300, 11)).astype(np.int8)
    plain = BlockPanels(matrix, 8, depth, DType.I8, swizzled=True)
    packing = SummedPanels(matrix, 8, depth, DType.I8, swizzled=True)
    packed = packing.pack(constant)
    assert packed.size == packing.elements
    assert packed.dtype == np.int8
    np.testing.assert_array_equal(packed[: packing.tiles_bytes], plain.pack(constant))
    down = packing.shape[2]
    sums = packed[packing.tiles_bytes :].view("<i4").reshape(2, 2, down + 1, 8)
    for batch, tile, step, column in np.ndindex(2, 2, down + 1, 8):
        own = constant[batch, : step * depth, tile * 8 + column : tile * 8 + column + 1].astype(int)
        assert sums[batch, tile, step, column] == own.sum()
    assert sums[:, :, -1].any()


def test_a_transposed_constant_is_packed_as_what_it_means() -> None:
    constant, matrix = matrices(1, 20, 11)
    transposed = Panels((0,), 20, 11, 0, ((20, 1), (11, 20)))
    packed = BlockPanels(transposed, 8, 16, DType.F32).pack(constant[0].T.copy())
    np.testing.assert_array_equal(packed, BlockPanels(matrix, 8, 16, DType.F32).pack(constant))


@pytest.mark.parametrize("depth", [64, 32])
def test_chunks_of_swizzled_rows_are_exchanged_as_the_tensor_maps_of_the_manual_do(depth: int) -> None:
    """Bits 4 to 6 of an address, or 4 and 5 where rows have 64 bytes, are combined with those from bit 7 on."""
    constant, matrix = matrices(1, 2 * depth, 24)
    plain = BlockPanels(matrix, 24, depth, DType.F16)
    exchanged = replace(plain, swizzled=True)
    assert exchanged.elements == plain.elements
    before, after = plain.pack(constant).reshape(2, -1), exchanged.pack(constant).reshape(2, -1)
    address = np.arange(24 * depth) * 2
    place = address ^ ((address >> 7) & (depth // 8 - 1)) << 4
    np.testing.assert_array_equal(after[:, place // 2], before)


def test_swizzling_twice_changes_nothing() -> None:
    tiles = np.random.default_rng(0).integers(0, 1000, (2, 3, 16, 64)).astype(np.int16)
    assert (swizzled(tiles) != tiles).any()
    np.testing.assert_array_equal(swizzled(swizzled(tiles)), tiles)


def test_tf32_keeps_ten_bits_rounded_to_nearest_and_ties_away_from_zero() -> None:
    one = np.float32(2.0**-10)
    given = np.array([1 + one / 2, -1 - one / 2, 1 + one / 2 - 2.0**-23, 1 + one, np.inf, -np.inf, 0, 1e38], np.float32)
    want = np.array([1 + one, -1 - one, 1, 1 + one, np.inf, -np.inf, 0, rounded_to_tf32(given)[-1]], np.float32)
    np.testing.assert_array_equal(rounded_to_tf32(given), want)
    assert abs(rounded_to_tf32(given)[-1] / 1e38 - 1) < 2**-11
    assert not (rounded_to_tf32(given)[:4].view(np.uint32) & 0x1FFF).any()
    assert np.isnan(rounded_to_tf32(np.array([np.nan], np.float32))[0])


def test_packed_operands_of_tf32_products_are_rounded() -> None:
    constant, matrix = matrices(1, 16, 8)
    plain, rounded = (BlockPanels(matrix, 8, 16, DType.F32, as_tf32).pack(constant) for as_tf32 in (False, True))
    assert (plain != rounded).any()
    np.testing.assert_array_equal(rounded, rounded_to_tf32(plain))
