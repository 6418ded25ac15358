"""Products of which tiles lie beyond sizes that are known while running, on the double of CUDA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cpu.sizes import SCALAR, bounded_case
from tests.compiler.devices.cuda.algorithms.test_contraction import (
    check,
    convolution,
    convolution_cases,
    every_way,
    in_clusters,
    matrix,
    tile_of,
    within,
)
from tests.compiler.devices.cuda.on_double import needs_double


def at(case: Case, *sizes: int) -> Case:
    """A bounded case at sizes."""
    left = list(sizes)
    inputs = tuple(
        np.array(left.pop(0), np.int64) if slot.type == SCALAR else array
        for slot, array in zip(case.kernel.inputs, case.inputs, strict=True)
    )
    return replace(case, inputs=inputs)


@needs_double
@pytest.mark.parametrize("sizes", [(31, 0), (32, 33), (1 << 40, -5)])
def test_tiles_beyond_a_size_are_what_lies_there_whatever_makes_their_sums(sizes: tuple[int, int]) -> None:
    ways = [*every_way(), *in_clusters()]
    products = [
        (at(bounded_case(case, (0, 1)), *sizes), tile) for case, tile in ways if len(case.buffers[-1].type.dims) == 2
    ]
    assert len(products) > 12
    for one in check(products):
        assert "past_step = first_step;" in one.text


@needs_double
@pytest.mark.parametrize("sizes", [(0, 9), (4, 3)])
def test_rows_of_images_beyond_a_size_are_what_lies_there(sizes: tuple[int, int]) -> None:
    check([(at(bounded_case(case, (2, 3)), *sizes), tile) for case, tile in convolution_cases()[:4]])


@needs_double
def test_images_of_a_batch_beyond_a_size_are_what_lies_there() -> None:
    case, tile = (
        within(convolution(8, 16, (13, 13), (3, 3), stride=2, batch=2), 3e-3),
        tile_of("mma", 32, 32, 32, (16, 16)),
    )
    check([(at(bounded_case(case, (0,)), size), tile) for size in (0, 1, 2)])


def test_a_product_without_sizes_waits_for_its_predecessor_where_it_did() -> None:
    case, tile = matrix(40, 96, 48, DType.F16), tile_of("mma", 32, 32, 32, (16, 16))
    assert isinstance(tile, Tile)
    (one,) = check([(within(case, 2e-3), tile)])
    assert one.text.count("tw_grid_dependency_wait()") == 1
