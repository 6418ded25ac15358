from __future__ import annotations

import numpy as np
import pytest

from compiler.encodings.quantised import Quantised
from compiler.forms.quantised_panels import QuantisedPanels
from compiler.ir.packing import Panels
from tests.compiler.encodings.test_quantised import quantised

LANES, VECTORS = 4, 2


def packing(depth: int, columns: int, bits: int, block: int, *, centred: bool, scale: int = 32) -> QuantisedPanels:
    """Of a matrix [depth, columns]."""
    panels = Panels((0,), depth, columns, LANES * VECTORS, ((depth, columns), (columns, 1)))
    return QuantisedPanels(panels, LANES, bits, block, centred, scale)


def unpacked(packed: np.ndarray, form: QuantisedPanels) -> np.ndarray:
    """The matrix of what `pack` gives, read byte by byte as its docstring says."""
    panel, bits = LANES * VECTORS, form.bits
    matrix = np.zeros((form.chunks * form.taken, -(-form.panels.columns // panel) * panel), np.float64)
    for place, chunk in enumerate(packed.reshape(-1, form.chunk_bytes)):
        group, first = place // form.chunks * panel, place % form.chunks * form.taken
        behind = form.code_bytes + form.scale // 8 * panel
        scales = chunk[form.code_bytes : behind].view(f"<f{form.scale // 8}")
        zeros = np.full(panel, 1 << (bits - 1)) if form.centred else chunk[behind:]
        for k in range(form.taken):
            word, part = divmod(k, 32 // bits)
            shift = bits * (part // 4)
            for column in range(panel):
                byte = chunk[(word * panel + column) * 4 + part % 4]
                code = (int(byte) >> shift) & ((1 << bits) - 1)
                matrix[first + k, group + column] = float(scales[column]) * (code - int(zeros[column]))
    return matrix[: form.panels.depth, : form.panels.columns]


@pytest.mark.parametrize("scale", [16, 32])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(
    ("bits", "block", "depth"), [(2, 16, 40), (4, 32, 96), (4, 32, 70), (8, 16, 48), (4, 70, 70), (8, 600, 600)]
)
def test_what_is_packed_reads_as_the_matrix(bits: int, block: int, depth: int, centred: bool, scale: int) -> None:
    encoding = Quantised.of(bits, 0, block, centred=centred, scale=scale)
    matrix = quantised(np.random.default_rng(depth), (depth, 19), encoding)
    form = packing(depth, 19, bits, block, centred=centred, scale=scale)
    packed = form.pack(matrix)
    assert packed.dtype == np.uint8
    assert len(packed) == form.elements
    np.testing.assert_array_equal(np.float32(unpacked(packed, form)), matrix)


def test_a_matrix_takes_the_bytes_of_its_codes_and_scales() -> None:
    form = packing(1024, 64, 4, 32, centred=True)
    assert form.elements == 1024 * 64 // 2 + 1024 // 32 * 64 * 4
    assert packing(1024, 64, 4, 32, centred=False, scale=16).elements == 1024 * 64 // 2 + 1024 // 32 * 64 * 3


def test_values_on_no_grid_are_refused() -> None:
    noise = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    with pytest.raises(ValueError, match="no grid of 4 bits"):
        packing(64, 8, 4, 32, centred=True).pack(noise)
    apart = quantised(np.random.default_rng(0), (64, 8), Quantised.of(4, 0, 32, centred=False))
    with pytest.raises(ValueError, match="not centred"):
        packing(64, 8, 4, 32, centred=True).pack(apart)
