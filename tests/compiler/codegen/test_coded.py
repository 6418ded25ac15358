from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.coded import LEAST_CODED, PLAIN, SCALED, Expansion, coded
from compiler.codegen.weights import Weights
from compiler.encodings.aside import Octets
from compiler.encodings.codebook import CHUNK
from compiler.ir.buffers import Buffer
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType, TensorType


def dense(expansion: Expansion, octets: Octets) -> np.ndarray:
    """uint32[count]: what an expansion makes of a file's bytes."""
    if expansion.bits == PLAIN:
        return np.frombuffer(octets, np.uint32, expansion.count, expansion.place)
    lanes = expansion.lanes
    if expansion.bits == SCALED:
        panels = expansion.count // (expansion.depth * lanes)
        scales = np.frombuffer(octets, np.float32, panels * lanes, expansion.place).reshape(panels, 1, lanes)
        numbers = np.frombuffer(octets, np.int8, expansion.count, expansion.place + scales.nbytes)
        found = scales * numbers.reshape(panels, -1, lanes).astype(np.float32)
        return np.asarray(found.reshape(-1).view(np.uint32))
    books = expansion.count // expansion.depth
    book = np.frombuffer(octets, np.uint32, books << expansion.bits, expansion.place)
    indices = np.frombuffer(octets, np.uint8, offset=expansion.place + book.nbytes)
    at = np.arange(expansion.count)
    each = 8 // expansion.bits
    places = indices[at // each] >> (at % each * expansion.bits).astype(np.uint8) & ((1 << expansion.bits) - 1)
    own = at // (expansion.depth * lanes) * lanes + at % lanes
    return np.asarray(book.reshape(books, -1)[own, places])


def shared(values: int, count: int) -> np.ndarray:
    """Elements of so many values: the first are a zero of each sign, an infinity and a NaN of unusual bits."""
    rng = np.random.default_rng(values)
    book = rng.normal(size=values).astype(np.float32)
    odd = np.array([0x80000000, 0, 0x7F800000, 0x7FC12345], np.uint32).view(np.float32)
    book[: min(values, 4)] = odd[:values]
    return np.asarray(book[rng.permutation(np.resize(np.arange(values), count))])


def placed(weights: Weights, number: int, array: np.ndarray) -> int:
    buffer = Buffer.whole(number, TensorType(DType.F32, array.shape))
    return weights.place(buffer, array, None)


@pytest.mark.parametrize(("values", "bits"), [(1, 1), (2, 1), (3, 2), (16, 4), (17, 8), (256, 8)])
@pytest.mark.parametrize("more", [0, 1, 37])
def test_constants_of_few_values_are_stored_as_indices_to_the_bit(values: int, bits: int, more: int) -> None:
    array = shared(values, LEAST_CODED + more)
    weights = Weights(small=True)
    at = placed(weights, 0, array)
    (one,) = weights.expansions
    assert (at, one.at, one.bits, one.count) == (-weights.made_bytes, at, bits, array.size)
    assert weights.made_bytes % 64 == 0
    assert weights.size <= array.nbytes * bits // 32 + 4 * 256 + 64
    np.testing.assert_array_equal(dense(one, weights.bytes()), array.view(np.uint32))
    assert placed(weights, 0, array) == at, "a constant is stored once"


@pytest.mark.parametrize(("values", "bits"), [(2, 1), (16, 4), (100, 8)])
def test_each_column_of_panels_may_have_a_codebook(values: int, bits: int) -> None:
    """Filters of 40 channels, of which the last panel of 16 has eight: each has its values times its number."""
    depth, channels = 1200, 40
    book = np.random.default_rng(2).normal(size=values)
    places = np.random.default_rng(3).integers(0, values, (channels, depth))
    filters = (book[places] * np.arange(1, channels + 1)[:, None]).astype(np.float32)
    panels = Panels((0,), depth, channels, 16, ((depth, 1), (channels, depth)))
    weights = Weights(small=True)
    buffer = Buffer.whole(0, TensorType(DType.F32, filters.shape))
    weights.place(buffer, filters, panels)
    (one,) = weights.expansions
    assert (one.bits, one.depth, one.lanes, one.count) == (bits, depth, 16, 48 * depth)
    assert weights.size < filters.nbytes * 1.2 * (bits / 32 + (4 << bits) / (4 * depth)) + 64
    packed = panels.pack(filters).reshape(-1).view(np.uint32)
    np.testing.assert_array_equal(dense(one, weights.bytes()), packed)


def scaled(depth: int, channels: int) -> np.ndarray:
    """float32[channels, depth]: numbers of 8 bits, each channel's with a scale of its own, and a channel of zeros."""
    rng = np.random.default_rng(4)
    numbers = rng.integers(-127, 128, (channels, depth)).astype(np.float32)
    return np.asarray(numbers * np.append(rng.uniform(1e-3, 2, channels - 1), 0).astype(np.float32)[:, None])


def test_numbers_of_8_bits_with_a_scale_for_each_column_are_stored_so_to_the_bit() -> None:
    """Too many values in each column of 300 for a codebook to pay."""
    depth, channels = 300, 70
    filters = scaled(depth, channels)
    filters[filters == 0] = 0  # not -0
    panels = Panels((0,), depth, channels, 16, ((depth, 1), (channels, depth)))
    packed = panels.pack(filters)
    weights = Weights(small=True)
    weights.place(Buffer.whole(0, TensorType(DType.F32, filters.shape)), filters, panels)
    (one,) = weights.expansions
    assert (one.bits, one.depth, one.lanes, one.count) == (SCALED, depth, 16, 80 * depth)
    assert weights.size <= 80 * depth + 4 * 80 + 64
    np.testing.assert_array_equal(dense(one, weights.bytes()), packed.reshape(-1).view(np.uint32))
    spoiled = packed.copy()
    for value in (np.nextafter(packed[0, 1, 5, 3], np.float32(9)), np.float32(np.nan), np.float32("inf")):
        spoiled[0, 1, 5, 3] = value
        assert coded(spoiled, panels) is None
    minus_zero = packed.copy()
    minus_zero[0, -1, 0, -1] = -0.0
    assert coded(minus_zero, panels) is None


def test_elements_at_the_end_that_are_a_value_too_many_are_stored_as_they_are() -> None:
    array = np.concatenate([shared(256, 3 * CHUNK), np.full(100, 7, np.float32)])
    weights = Weights(small=True)
    at = placed(weights, 0, array)
    first, rest = weights.expansions
    assert (first.at, first.count, rest.at, rest.bits) == (at, 3 * CHUNK, at + 12 * CHUNK, PLAIN)
    both = np.concatenate([dense(first, weights.bytes()), dense(rest, weights.bytes())])
    np.testing.assert_array_equal(both, array.view(np.uint32))


def test_other_constants_are_stored_as_they_are() -> None:
    rng = np.random.default_rng(1)
    many = rng.normal(size=4 * CHUNK).astype(np.float32)
    late = np.concatenate([shared(16, CHUNK), many])
    for array in (many, late, shared(4, LEAST_CODED - 1), shared(4, 2 * LEAST_CODED).astype(np.float64)):
        assert coded(array) is None
    weights = Weights(small=True)
    assert placed(weights, 0, many) == 0
    assert placed(weights, 1, shared(4, LEAST_CODED)) == -4 * LEAST_CODED
    assert placed(weights, 2, shared(5, LEAST_CODED)) == -8 * LEAST_CODED
    assert len(weights.bytes()) == weights.size


def test_only_programs_that_make_constants_dense_get_indices() -> None:
    weights = Weights()
    assert placed(weights, 0, shared(4, LEAST_CODED)) == 0
    assert (weights.expansions, weights.size) == ([], 4 * LEAST_CODED)


def test_what_an_earlier_program_holds_as_indices_is_not_stored_again() -> None:
    array = shared(16, LEAST_CODED)
    first = Weights(small=True)
    placed(first, 0, array)
    second = Weights(earlier=first, small=True)
    placed(second, 5, array)
    assert second.size == first.size
    assert second.expansions == first.expansions
