from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from compiler.codegen.weights import Weights
from compiler.forms.winograd import TransformedPanels
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType, Layout


class Placed:
    """As much of a buffer as placing asks for."""

    def __init__(self, number: int, rank: int) -> None:
        self.id = number
        self.layout = Layout.plain(rank)
        self.dtype = DType.F32


def place(weights: Weights, number: int, array: np.ndarray) -> int:
    buffer: Any = Placed(number, array.ndim)
    return weights.place(buffer, array, None)


def read(weights: Weights, at: int, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(weights.bytes(), np.float32, like.size, at).reshape(like.shape)


def test_a_later_program_finds_what_earlier_ones_hold_and_adds_the_rest_behind() -> None:
    random = np.random.default_rng(1)
    a, b, c = (random.standard_normal((3, size)).astype(np.float32) for size in (5, 7, 9))
    first = Weights()
    at_a, at_b = place(first, 0, a), place(first, 1, b)
    whole = first.bytes()
    second = Weights(earlier=first)
    assert second.size == first.size
    assert place(second, 0, b) == at_b, "another program's ids mean other constants"
    at_c = place(second, 1, c)
    assert at_c == first.size
    third = Weights(earlier=second)
    assert [place(third, id, one) for id, one in enumerate((c, a, b))] == [at_c, at_a, at_b]
    assert third.bytes() == second.bytes()
    assert second.bytes()[: len(whole)] == whole == first.bytes()
    for at, one in ((at_a, a), (at_b, b), (at_c, c)):
        np.testing.assert_array_equal(read(third, at, one), one)


def test_a_program_stores_a_constant_once_and_equal_ones_of_its_own_as_often_as_they_are() -> None:
    ones = np.ones((2, 2), np.float32)
    weights = Weights(alignment=32)
    assert place(weights, 0, ones) == place(weights, 0, ones) == 0
    assert place(weights, 1, ones) == 32
    assert len(weights.bytes()) == weights.size == 64


def test_a_constant_without_elements_takes_no_place() -> None:
    weights = Weights()
    none, one = np.ones((0, 2), np.float32), np.ones(1, np.float32)
    assert place(weights, 0, none) == place(weights, 1, one) == 0
    assert read(weights, 0, one) == one


@pytest.mark.parametrize("first", ["filters", "panels"])
def test_filters_of_a_transformed_form_and_panels_of_another_form_are_held_once(first: str) -> None:
    """In either order: the second is made of the first when the program is loaded."""
    array = np.random.default_rng(2).standard_normal((64, 64, 3, 3)).astype(np.float32)
    source = ((1, 0), (9, 1), (64, 9), (64, 576))
    filters = TransformedPanels(1, 64, 64, 16, ((4, 3), (4, 3)), source)
    packings: list[Any] = [filters, Panels((0,), 9 * 64, 64, 16, source)]
    weights = Weights(small=True)
    buffer: Any = Placed(0, array.ndim)
    sizes = []
    for packing in packings if first == "filters" else packings[::-1]:
        weights.place(buffer, array, packing)
        sizes.append(weights.size)
    assert sizes[1] - sizes[0] < array.nbytes // 8, "no more than the numbers of the transform"
    (repacking,) = weights.repackings
    assert {repacking.held.panel, repacking.packing.panel} == {16, 64}


def test_a_file_that_was_asked_for_holds_its_constants_in_place_of_them() -> None:
    size = 1 << 20
    tracemalloc.start()
    try:
        first = Weights()
        place(first, 0, np.arange(size, dtype=np.float32))
        second = Weights(earlier=first)
        place(second, 0, np.ones(size, np.float32))
        kept = [first.bytes()]
        kept = [second.bytes()]
        assert tracemalloc.get_traced_memory()[0] < 2.1 * 4 * size
        assert second.bytes() == kept[0]
        assert first.bytes() == kept[0][: first.size]
    finally:
        tracemalloc.stop()
