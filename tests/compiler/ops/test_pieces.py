"""References in pieces: what they hold at once, and that a piece is what the whole is."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from compiler.ops import OPERATORS
from compiler.ops.pieces import PIECE_ELEMENTS, InPieces, Pieces, regions
from tests.compiler.ops.single import Attrs, normal, octets, prepare

CASES: tuple[tuple[str, tuple[Any, ...], Attrs], ...] = (
    ("Conv", (normal(1, 2, 4, 9, 7), normal(2, 6, 2, 3, 2), normal(3, 6)), {"group": 2, "pads": (2, 0, 1, 3)}),
    ("Conv", (normal(1, 1, 2, 30), normal(2, 3, 2, 7)), {"strides": (3,), "dilations": (4,), "pads": (20, 40)}),
    ("ConvInteger", (octets(1, np.uint8, 2, 3, 6, 5), octets(2, np.int8, 4, 3, 3, 3)), {"strides": (2, 1)}),
    ("ConvTranspose", (normal(1, 2, 4, 5, 6), normal(2, 4, 3, 3, 2), normal(3, 6)), {"group": 2, "strides": (2, 3)}),
    ("ConvTranspose", (normal(1, 1, 2, 9), normal(2, 2, 3, 4)), {"strides": (5,), "dilations": (3,), "pads": (11, 2)}),
    ("MaxPool", (normal(1, 2, 3, 9, 8),), {"kernel_shape": (3, 2), "pads": (1, 1, 2, 0), "dilations": (2, 3)}),
    ("AveragePool", (normal(1, 2, 3, 9, 8),), {"kernel_shape": (4, 3), "pads": (2, 2, 1, 0), "strides": (2, 3)}),
    ("LpPool", (normal(1, 2, 3, 9, 8),), {"kernel_shape": (4, 3), "pads": (2, 2, 1, 0), "p": 3}),
    ("GlobalAveragePool", (normal(1, 2, 3, 9, 8),), {}),
)


@pytest.mark.parametrize(("op", "arrays", "attrs"), CASES)
def test_a_result_in_pieces_is_that_in_one(
    op: str, arrays: tuple[Any, ...], attrs: Attrs, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, inputs, _ = prepare(OPERATORS[op], arrays, attrs, 1)
    wide = tuple(None if one is None else one.astype(np.float64) if one.dtype == np.float32 else one for one in inputs)
    (whole,) = OPERATORS[op].reference(node, wide)
    for size in (1, 60, 1000):
        monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", size)
        (parts,) = OPERATORS[op].reference(node, wide)
        assert parts.dtype == whole.dtype
        np.testing.assert_allclose(parts, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("extents", [(), (3,), (2, 5), (4, 1, 7), (0, 3)])
@pytest.mark.parametrize("room", [1, 3, 8, 1000])
def test_regions_cover_every_position_once_and_hold_no_more_than_there_is_room_for(
    extents: tuple[int, ...], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", 5 * room)
    seen = np.zeros(extents, int)
    for region in regions(extents, 5):
        assert seen[region].size <= room
        seen[region] += 1
    assert np.all(seen == 1)


def test_whoever_assembles_pieces_hears_how_much_of_the_result_there_is() -> None:
    parts = iter([((slice(0, 1),), np.zeros(1)), ((slice(1, 4),), np.ones(3))])
    pieces = Pieces((4,), np.dtype(np.float64), parts)
    assert [*pieces.assembly()] == [0.25, 1]
    assert pieces.result.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        # Windows that read hardly anything but padding, of which there would be gigabytes.
        ("Conv", ((1, 4, 100), (4, 4, 3)), {"strides": (2**28,), "pads": (2**29, 2**29)}),
        ("MaxPool", ((1, 4, 100),), {"kernel_shape": (3,), "strides": (2**28,), "pads": (2**29, 2**29)}),
        ("AveragePool", ((1, 4, 100),), {"kernel_shape": (3,), "strides": (2**28,), "pads": (2**29, 2**29)}),
        # Results of which all but a few are cut off.
        ("ConvTranspose", ((1, 4, 1000), (4, 4, 3)), {"strides": (10**6,), "pads": (5 * 10**8, 498_990_000)}),
        # Windows that lie over each other.
        ("Conv", ((1, 4, 80, 80), (8, 4, 9, 9)), {}),
        ("AveragePool", ((1, 8, 80, 80),), {"kernel_shape": (9, 9)}),
        ("LpPool", ((1, 8, 80, 80),), {"kernel_shape": (9, 9)}),
    ],
)
def test_no_attribute_makes_a_reference_hold_more_than_operands_results_and_some_pieces(
    op: str, shapes: tuple[tuple[int, ...], ...], attrs: Attrs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", 2**16)
    arrays = [np.ones(shape) for shape in shapes]
    node, inputs, _ = prepare(OPERATORS[op], arrays, attrs, 1)
    tracemalloc.start()
    try:
        with np.errstate(invalid="ignore"):  # the mean of no element
            (result,) = OPERATORS[op].reference(node, inputs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < result.nbytes + 5 * 8 * 2**16
    assert result.size


def test_convolutions_and_pools_are_computed_in_pieces_that_allocators_keep() -> None:
    names = ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "AveragePool", "GlobalAveragePool", "LpPool")
    assert all(isinstance(OPERATORS[name].reference, InPieces) for name in names)
    assert math.log2(8 * PIECE_ELEMENTS) == 23
