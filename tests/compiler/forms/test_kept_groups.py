from __future__ import annotations

import numpy as np
import pytest

from compiler.forms.groups import Groups
from compiler.forms.kept_groups import KeptGroups, block_fill
from compiler.ir.blocks import Blocks, block_encodings_of
from compiler.ir.packing import Panels, Steered
from compiler.ir.tensor import DType
from compiler.ir.zeros import CLASSES

DEPTH, COLUMNS = 72, 40


def matrix(dtype: type, share: float = 0.2) -> np.ndarray:
    """[depth, columns] with blocks of 4 x 8, of which a share is kept."""
    random = np.random.default_rng(5)
    mask = (random.random((DEPTH // 4, COLUMNS // 8)) < share).repeat(4, 0).repeat(8, 1)
    return np.asarray((random.integers(1, 100, (DEPTH, COLUMNS)) * mask).astype(dtype))


def panels(panel: int) -> Panels:
    return Panels((0,), DEPTH, COLUMNS, panel, ((DEPTH, COLUMNS), (COLUMNS, 1)))


def unpacked(packing: KeptGroups, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All groups, as they would be packed, and the sums, from what is kept."""
    begin, sums, places, steps, _ = packing.parts
    starts = packed[begin:sums].view("<i4")[: packing.count + 1]
    which = packed[places:steps].view("<u2")
    size = 4 * packing.panel * packing.kept
    values = packed[steps : steps + size].view(packing.groups.dtype.numpy).reshape(packing.kept, -1)
    whole = np.zeros((packing.count, packing.groups.groups, values.shape[1]), values.dtype)
    for panel in range(packing.count):
        rows = slice(starts[panel], starts[panel + 1])
        whole[panel, which[rows]] = values[rows]
    return whole, packed[sums:places]


@pytest.mark.parametrize("dtype", [DType.I8, DType.I16, DType.BF16])
@pytest.mark.parametrize("panel", [8, 16, 32])
def test_what_is_kept_is_all_that_is_not_zero(dtype: DType, panel: int) -> None:
    constant = matrix(np.float32 if dtype is DType.BF16 else np.int8)
    groups = Groups(panels(panel), dtype, sums=dtype is DType.I8)
    encoding = next(one for one in block_encodings_of(constant) if isinstance(one, Blocks) and one.lines == 1)
    fill = block_fill(groups, encoding, constant.shape)
    assert fill is not None
    packing = KeptGroups(groups, fill)
    packed = packing.pack(constant)
    dense = groups.pack(constant)
    got, sums = unpacked(packing, packed)
    size = got[0].size
    np.testing.assert_array_equal(got.reshape(len(dense), -1), dense[:, :size])
    if groups.sums:
        wanted = np.ascontiguousarray(dense[:, size:]).view(np.uint8).reshape(-1)
        np.testing.assert_array_equal(sums[: wanted.size], wanted)
    assert packed.nbytes == packing.elements < dense.nbytes


def test_a_specimen_has_as_many_steps_as_there_is_room_for() -> None:
    packing = KeptGroups(Groups(panels(16), DType.I8, sums=True), CLASSES // 4)
    assert isinstance(packing, Steered)
    specimen = packing.specimen()
    np.testing.assert_array_equal(specimen, packing.specimen())
    starts = specimen[: 4 * (packing.count + 1)].view("<i4")
    assert starts[-1] == packing.kept
    got, _ = unpacked(packing, specimen)
    assert int((got != 0).any(2).sum()) == packing.kept


def test_more_than_there_is_room_for_is_refused() -> None:
    with pytest.raises(AssertionError, match="how much is kept"):
        KeptGroups(Groups(panels(16), DType.I8), 1).pack(np.ones((DEPTH, COLUMNS), np.int8))


@pytest.mark.parametrize(
    ("groups", "encoding", "dims"),
    [
        (Groups(panels(16), DType.I8, shift=128), Blocks.of(1, 0, 4, (9, 9, 9)), (DEPTH, COLUMNS)),
        (Groups(panels(16), DType.I8, run=8), Blocks.of(1, 0, 4, (9, 9, 9)), (DEPTH, COLUMNS)),
        (Groups(panels(16), DType.I8), Blocks.of(0, 1, 4, (9, 9, 9)), (DEPTH, COLUMNS)),
        (Groups(panels(16), DType.I8), Blocks.of(1, 0, 4, (9, 9, 9)), (2 * DEPTH, COLUMNS)),
        (Groups(panels(16), DType.I8), Blocks.of(1, 0, 2, (9, 9, 9)), (DEPTH, COLUMNS)),
        (
            Groups(Panels((0,), DEPTH, COLUMNS, 16, ((36, 2), (2, 1), (COLUMNS, 72))), DType.I8),
            Blocks.of(0, 1, 4, (9, 9, 9)),
            (COLUMNS, 36, 2),
        ),
    ],
    ids=["moved", "runs", "lines", "part", "narrow groups", "taps innermost"],
)
def test_panels_that_are_no_blocks_of_an_encoding_have_none(
    groups: Groups, encoding: Blocks, dims: tuple[int, ...]
) -> None:
    assert block_fill(groups, encoding, dims) is None
