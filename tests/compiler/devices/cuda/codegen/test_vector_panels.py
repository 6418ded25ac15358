"""Constants packed without what neighbouring columns leave out together, read back as a kernel reads them."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cuda.codegen.panels import rounded_to_tf32
from compiler.devices.cuda.codegen.vector_panels import ALIGNMENT, VectorPanels
from compiler.ir.packing import Panels, Steered
from compiler.ir.tensor import DType

DEPTH, COLUMNS, PANEL = 144, 40, 16


def panels(group: int, fill: int, element: DType = DType.F16, as_tf32: bool = False) -> VectorPanels:
    """Of a constant [k, n], in steps of 32 elements of k."""
    matrix = Panels((0,), DEPTH, COLUMNS, 0, ((DEPTH, COLUMNS), (COLUMNS, 1)))
    return VectorPanels(matrix, PANEL, 32, group, fill, element, as_tf32)


def read(packing: VectorPanels, octets: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """float64[k, n] of a packed constant, and how many steps each panel has."""
    starts_at, numbers_at, tiles_at, _ = packing.parts
    starts = octets[starts_at:].view("<i4")[: packing.count + 1]
    numbers = octets[numbers_at:].view("<u2")
    dense = np.zeros((DEPTH + packing.group, packing.count * PANEL))
    for panel in range(packing.count):
        for step in range(starts[panel], starts[panel + 1]):
            tile = octets[tiles_at + step * packing.tile_bytes :][: packing.tile_bytes].view(packing.element.numpy)
            for at, number in enumerate(numbers[step * packing.step_groups :][: packing.step_groups]):
                columns = tile.reshape(PANEL, -1)[:, at * packing.group : (at + 1) * packing.group]
                places = slice(number * packing.group, (number + 1) * packing.group)
                dense[places, panel * PANEL : (panel + 1) * PANEL] += columns.T.astype(np.float64)
    assert not dense[DEPTH:].any(), "a number that stands for no group has zeros"
    return dense[:DEPTH], np.diff(starts).tolist()


@pytest.mark.parametrize(("group", "steps"), [(1, [1, 0, 5]), (2, [1, 0, 5]), (8, [1, 0, 5])])
@pytest.mark.parametrize("element", [DType.F16, DType.F32, DType.I8])
def test_what_is_kept_is_read_back_and_an_empty_panel_has_no_step(group: int, steps: list[int], element: DType) -> None:
    constant = np.random.default_rng(1).uniform(1, 2, (DEPTH, COLUMNS)).astype(np.float32)
    constant[:, 16:32] = 0
    constant[16:, :16] = 0
    constant[:16, :15] = 0
    constant = np.trunc(80 * constant)
    packing = panels(group, 48, element)
    octets = packing.pack(constant)
    assert octets.dtype == np.uint8
    assert octets.size == packing.elements
    assert not any(part % ALIGNMENT for part in packing.parts)
    dense, found = read(packing, octets)
    np.testing.assert_array_equal(dense[:, :COLUMNS], constant.astype(element.numpy))
    assert found == steps


def test_more_than_the_encoding_says_is_refused() -> None:
    constant = np.ones((DEPTH, COLUMNS), np.float32)
    assert panels(8, 64).pack(constant).size == panels(8, 64).elements
    with pytest.raises(ValueError, match="54 groups are not zero, 27 at most"):
        panels(8, 32).pack(constant)


def test_elements_are_rounded_as_tensor_cores_take_them() -> None:
    constant = np.random.default_rng(2).normal(size=(DEPTH, COLUMNS)).astype(np.float32)
    dense, _ = read(panels(4, 64, DType.F32, True), panels(4, 64, DType.F32, True).pack(constant))
    np.testing.assert_array_equal(dense[:, :COLUMNS], rounded_to_tf32(constant))
    assert (dense[:, :COLUMNS] != constant).any()


@pytest.mark.parametrize(("group", "element"), [(1, DType.F16), (8, DType.F16), (8, DType.I8)])
def test_a_specimen_has_about_as_many_steps_in_each_panel(group: int, element: DType) -> None:
    packing = panels(group, 20, element)
    assert isinstance(packing, Steered)
    dense, steps = read(packing, packing.specimen())
    assert len(set(steps)) == 1
    blocks = dense.reshape(DEPTH // group, group, packing.count, PANEL).any((1, 3)).sum()
    assert blocks == packing.kept
    np.testing.assert_array_equal(packing.specimen(), packing.specimen())
