"""Constants packed for sparse tensor cores, read back as the PTX ISA describes fragments and metadata."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from compiler.devices.cuda.codegen.sparse_panels import SparsePanels, SummedSparsePanels
from compiler.encodings.two_of_four import TwoOfFour
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from tests.cuda_double.layouts import G, T, k_major, packed, sparse_byte_fragments, sparse_fragments


def panels(depth: int, columns: int, tile: tuple[int, int], element: DType = DType.F16) -> SparsePanels:
    """Of a constant [k, n]; a tile has so many columns and elements of k."""
    matrix = Panels((0,), depth, columns, 0, ((depth, columns), (columns, 1)))
    return SparsePanels(matrix, tile[0], tile[1], element)


def weights(depth: int, columns: int, seed: int = 1) -> np.ndarray:
    """Exactly two of each four are not zero, any two."""
    return TwoOfFour.of(0).pruned(np.random.default_rng(seed).uniform(1, 2, (depth, columns)).astype(np.float32))


@pytest.mark.parametrize("element", [DType.F16, DType.BF16])
def test_a_warp_finds_its_fragments_and_metadata_where_the_manual_has_them(element: DType) -> None:
    packing = panels(128, 32, (32, 128), element)
    constant = weights(128, 32)
    octets = packing.pack(constant)
    assert octets.dtype == np.uint8
    assert octets.size == packing.elements
    rows = octets[: 32 * packing.row_bytes].reshape(32, packing.row_bytes).view(np.uint16)
    words = octets[32 * packing.row_bytes :].view("<u4").reshape(2, 2, 32)  # 16 columns, 64 of k, lanes
    dtype = np.float16 if element is DType.F16 else ml_dtypes.bfloat16
    for first in (0, 16):
        for step in range(4):
            a = constant.T[first : first + 16, 32 * step : 32 * step + 32].astype(dtype)
            registers, _, metadata = sparse_fragments(a, np.zeros((32, 8), dtype), step % 2)
            given = rows[first : first + 16, 16 * step : 16 * step + 16]
            loaded = [
                packed(given[(G + row)[:, None], T[:, None] * 2 + [0, 1] + at]) for at in (0, 8) for row in (0, 8)
            ]
            np.testing.assert_array_equal(np.stack(loaded), registers)
            holders = step % 2 == T // 2
            np.testing.assert_array_equal(words[first // 16, step // 2][holders], metadata[holders])


def byte_weights(depth: int, columns: int) -> np.ndarray:
    """The same of signed bytes."""
    random = np.random.default_rng(4)
    dense: np.ndarray = random.integers(1, 128, (depth, columns)) * random.choice([-1, 1], (depth, columns))
    return TwoOfFour.of(0).pruned(dense.astype(np.int8))


def test_a_warp_finds_its_bytes_and_metadata_where_the_manual_has_them() -> None:
    packing = panels(128, 32, (32, 128), DType.I8)
    constant = byte_weights(128, 32)
    octets = packing.pack(constant)
    assert octets.size == packing.elements == 32 * 128 * 10 // 16
    rows = octets[: 32 * packing.row_bytes].reshape(32, packing.row_bytes).view(np.int8)
    words = octets[32 * packing.row_bytes :].view("<u4").reshape(2, 2, 32)  # 16 columns, 64 of k, lanes
    for first in (0, 16):
        for step in range(2):
            a = constant.T[first : first + 16, 64 * step : 64 * step + 64]
            registers, _, metadata = sparse_byte_fragments(a, np.zeros((64, 8), np.int8))
            given = rows[first : first + 16, 32 * step : 32 * step + 32]
            loaded = [
                packed(given[(G + row)[:, None], T[:, None] * 4 + np.arange(4) + at])
                for at in (0, 16)
                for row in (0, 8)
            ]
            np.testing.assert_array_equal(np.stack(loaded), registers)
            np.testing.assert_array_equal(words[first // 16, step], metadata)


def test_words_of_bytes_are_those_of_cutlass() -> None:
    """`host_reorder.h` puts the word of row r and of 32 columns, two a row, where a lane loads it from."""
    constant = byte_weights(64, 16)
    words = panels(64, 16, (16, 64), DType.I8).pack(constant)[16 * 32 :].view("<u4")
    places = [np.flatnonzero(group) for group in constant.T.reshape(-1, 4)]
    nibbles = np.array([first | second << 2 for first, second in places], np.uint32).reshape(16, 2, 8)
    given = (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32)  # [rows, 32 columns]
    reordered = np.zeros((16, 2), np.uint32)
    for row in range(16):
        for column in range(2):
            at, to = row % 8 * 2 + row // 8, column
            if at % 2 != column:
                at, to = (at + 1, 0) if column else (at - 1, 1)
            reordered[at, to] = given[row, column]
    np.testing.assert_array_equal(words, reordered.reshape(-1))


def test_words_are_those_of_cutlass_in_another_order() -> None:
    """Its tools (`host_reorder.h`) put the 16 bits of row r and of 16 columns where a warp of 32 rows loads them from.

    There lanes 0 and 1 of a group have the first 16 rows, and 2 and 3 the others: the selector says which.
    """
    constant = weights(64, 32, seed=5)
    words = panels(64, 32, (32, 64)).pack(constant)[32 * 64 :].view("<u4").reshape(2, 32)
    places = [np.flatnonzero(group) for group in constant.T.reshape(-1, 4)]
    nibbles = np.array([first | second << 2 for first, second in places], np.uint32).reshape(32, 4, 4)
    halves = (nibbles << np.arange(0, 16, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32)  # [rows, 16 columns]
    for pair in range(2):
        reordered = np.zeros((32, 2), np.uint32)
        for row in range(32):
            for column in range(2):
                at, to = row % 8 * 4 + row // 8, column
                if at % 2 != column:
                    at, to = (at + 1, 0) if column else (at - 1, 1)
                reordered[at, to] = halves[row, 2 * pair + column]
        loaded = (reordered[:, 0] | reordered[:, 1] << 16).reshape(8, 2, 2)  # group, 16 rows, 16 columns
        ours = words.reshape(2, 8, 2, 2)[:, :, pair]
        np.testing.assert_array_equal(ours, loaded.transpose(1, 0, 2))


def unpacked(packing: SparsePanels, octets: np.ndarray) -> np.ndarray:
    """float[k, n] with what fills the last tiles, element by element."""
    _, across, down, size = packing.shape
    found = np.zeros((down * packing.depth, across * packing.columns), np.float32)
    for number, tile in enumerate(octets.reshape(-1, size)):
        given = tile[: packing.columns * packing.row_bytes].view(np.float16).reshape(packing.columns, -1)
        words = tile[packing.columns * packing.row_bytes :].view("<u4")
        for column in range(packing.columns):
            for at in range(packing.depth // 2):
                lane = column % 8 * 4 + at % 32 // 8
                word = words[(column // 16 * (packing.depth // 64) + at // 32) * 32 + lane]
                place = int(word) >> (column // 8 % 2 * 16 + at % 8 * 2) & 3
                row = number % down * packing.depth + at // 2 * 4 + place
                found[row, number // down * packing.columns + column] += given[column, at]
    return found


def test_sizes_that_tiles_do_not_divide_and_groups_with_fewer_weights_are_kept() -> None:
    packing, constant = panels(84, 37, (16, 64)), weights(84, 37)
    constant[12:24, :5] = 0
    constant[40:44, 7] = 0, 0, 0, 3
    found = unpacked(packing, packing.pack(constant))
    np.testing.assert_array_equal(found[:84, :37], constant.astype(np.float16))
    assert not found[84:].any()
    assert not found[:, 37:].any()


def test_every_pair_of_places_is_ordered_and_distinct() -> None:
    packing = panels(64, 16, (16, 64))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    for which in ([], *[[i] for i in range(4)], *map(list, pairs)):
        constant = np.zeros((64, 16), np.float32)
        for place in which:
            constant[place::4] = place + 1
        words = packing.pack(constant)[16 * 64 :].view("<u4")
        indices = words[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
        assert set(np.unique(indices)) <= {i | j << 2 for i, j in pairs}
        np.testing.assert_array_equal(unpacked(packing, packing.pack(constant))[:64], constant)


def test_bytes_of_sizes_that_tiles_do_not_divide_are_kept() -> None:
    packing, constant = panels(84, 37, (16, 64), DType.I8), byte_weights(84, 37)
    constant[12:24, :5] = 0
    constant[40:44, 7] = 0, 0, 0, -128
    found = unpacked_bytes(packing, packing.pack(constant))
    np.testing.assert_array_equal(found[:84, :37], constant)
    assert not found[84:].any()
    assert not found[:, 37:].any()


def unpacked_bytes(packing: SparsePanels, octets: np.ndarray) -> np.ndarray:
    """The same as `unpacked`, of bytes."""
    _, across, down, size = packing.shape
    found = np.zeros((down * packing.depth, across * packing.columns), np.int64)
    for number, tile in enumerate(octets.reshape(-1, size)):
        given = tile[: packing.columns * packing.row_bytes].view(np.int8).reshape(packing.columns, -1)
        words = tile[packing.columns * packing.row_bytes :].view("<u4")
        for column in range(packing.columns):
            for at in range(packing.depth // 2):
                lane = column % 8 * 4 + at % 32 // 16 * 2 + column // 8 % 2
                word = words[(column // 16 * (packing.depth // 64) + at // 32) * 32 + lane]
                place = int(word) >> at % 16 * 2 & 3
                row = number % down * packing.depth + at // 2 * 4 + place
                found[row, number // down * packing.columns + column] += given[column, at]
    return found


@pytest.mark.parametrize("element", [DType.F16, DType.I8])
def test_a_third_weight_among_four_is_refused(element: DType) -> None:
    constant = weights(64, 16)
    constant[8:12, 3] = 1
    with pytest.raises(ValueError, match="more than two of four"):
        panels(64, 16, (16, 64), element).pack(constant)


def test_a_specimen_of_bytes_has_metadata_that_the_hardware_takes() -> None:
    packing = panels(200, 70, (32, 128), DType.I8)
    found = unpacked_bytes(packing, packing.specimen())
    assert ((found != 0).reshape(-1, 4, found.shape[1]).sum(1) == 2).all()
    assert np.abs(found).max() <= 127


def test_a_specimen_has_metadata_that_the_hardware_takes() -> None:
    packing = panels(200, 70, (32, 128))
    specimen = packing.specimen()
    assert specimen.dtype == np.uint8
    assert specimen.size == packing.elements
    found = unpacked(packing, specimen)
    assert ((found != 0).reshape(-1, 4, found.shape[1]).sum(1) == 2).all()
    np.testing.assert_array_equal(specimen, packing.specimen())


def test_behind_bytes_stand_sums_of_columns_before_each_step() -> None:
    constant = np.trunc(60 * weights(300, 70)).astype(np.int8)
    matrix = Panels((0,), 300, 70, 0, ((300, 70), (70, 1)))
    plain, packing = (kind(matrix, 64, 128, DType.I8, True) for kind in (SparsePanels, SummedSparsePanels))
    packed_, specimen = packing.pack(constant), packing.specimen()
    assert packed_.size == specimen.size == packing.elements
    assert isinstance(packing, SummedSparsePanels)
    np.testing.assert_array_equal(packed_[: packing.tiles_bytes], plain.pack(constant))
    np.testing.assert_array_equal(specimen[: packing.tiles_bytes], plain.specimen())
    sums = packed_[packing.tiles_bytes :].view("<i4").reshape(2, 4, 64)
    for step in range(4):
        want = constant[: step * 128].sum(0, dtype=np.int32)
        np.testing.assert_array_equal(sums[:, step].reshape(-1)[:70], want)
    assert sums[:, -1].any()


def test_swizzled_rows_lie_as_descriptors_of_wgmma_read_them() -> None:
    constant = weights(64, 64)
    plain, exchanged = (replace(panels(64, 64, (64, 64)), swizzled=one).pack(constant) for one in (False, True))
    rows = plain[: 64 * 64].view(np.float16).reshape(64, 32)
    laid_out, _, _ = k_major(rows, 64)
    np.testing.assert_array_equal(exchanged[: 64 * 64], laid_out)
    np.testing.assert_array_equal(exchanged[64 * 64 :], plain[64 * 64 :])  # metadata are read by lanes
    assert (exchanged != plain).any()
