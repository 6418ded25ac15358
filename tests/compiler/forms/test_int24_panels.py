from __future__ import annotations

import numpy as np

from compiler.forms.int24_panels import Int24Panels
from compiler.ir.packing import Panels


def unpacked(packing: Int24Panels, octets: np.ndarray) -> np.ndarray:
    """float64[panels, depth, panel]: what packed bytes stand for."""
    depth, panel = packing.panels.depth, packing.panels.panel
    found = []
    for piece in octets.reshape(-1, packing.panel_bytes):
        numbers = np.zeros((depth, panel, 4), np.uint8)
        numbers[:, :, 1:] = piece[: 3 * depth * panel].reshape(depth, panel, 3)
        factors = piece[3 * depth * panel :].view("<f4").astype(np.float64)
        found.append(numbers.view("<i4")[:, :, 0] * 2.0**-31 * factors)
    return np.stack(found)


def packing_of(depth: int, columns: int, panel: int) -> Int24Panels:
    return Int24Panels(Panels((0,), depth, columns, panel, ((depth, columns), (columns, 1))))


def test_elements_are_off_by_at_most_two_to_the_minus_23_of_the_largest_of_their_column() -> None:
    rng = np.random.default_rng(1)
    matrix = (rng.normal(size=(50, 40)) * np.exp2(rng.integers(-40, 40, 40))).astype(np.float32)
    packing = packing_of(50, 40, 16)
    packed = packing.pack(matrix)
    assert packed.dtype == np.uint8
    assert packed.size == packing.elements
    got = unpacked(packing, packed).transpose(1, 0, 2).reshape(50, -1)
    assert (got[:, 40:] == 0).all()
    assert (np.abs(got[:, :40] - matrix) <= 2.0**-23 * np.abs(matrix).max(0)).all()


def test_elements_that_came_from_a_half_type_are_kept_as_they_are() -> None:
    rng = np.random.default_rng(2)
    matrix = rng.uniform(-1, 1, (64, 16)).astype(np.float16).astype(np.float32)
    matrix[np.abs(matrix) < 2.0**-12] = 0
    packing = packing_of(64, 16, 16)
    np.testing.assert_array_equal(unpacked(packing, packing.pack(matrix))[0], matrix)


def test_the_largest_of_both_signs_zeros_and_subnormals_are_kept() -> None:
    matrix = np.array([[1.0, -1.0, 0.0, 1e-40], [-1.0, 0.5, -0.0, -1e-40]], np.float32)
    packing = packing_of(2, 4, 4)
    got = unpacked(packing, packing.pack(matrix))[0]
    np.testing.assert_allclose(got[:, :3], matrix[:, :3], rtol=2.0**-23)
    np.testing.assert_allclose(got[:, 3], matrix[:, 3], rtol=1e-4)
