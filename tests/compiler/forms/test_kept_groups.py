from __future__ import annotations

import numpy as np
import pytest

from compiler.encodings.blocks import Blocks, block_encodings_of
from compiler.encodings.encoding import Use
from compiler.encodings.picks import Picks, pick_encodings_of
from compiler.encodings.zeros import CLASSES
from compiler.forms.groups import Groups
from compiler.forms.kept_groups import KeptGroups, PickedFloats, PickedGroups, block_fill, pick_fill, recurrent_fill
from compiler.ir.packing import Panels, Steered
from compiler.ir.tensor import DType
from tests.compiler.encodings.test_combined import packable

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
    encoding = next(
        one
        for one in block_encodings_of(constant, 2 if dtype is DType.BF16 else 4)
        if isinstance(one, Blocks) and one.lines == 1
    )
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


def of_steps(packing: PickedGroups, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """B[k, columns] as the steps say it, and the sums."""
    begin, sums, places, steps, _ = packing.parts
    starts = packed[begin:sums].view("<i4")[: packing.count + 1]
    bases = packed[places:steps].view("<u2")
    dtype, group = packing.groups.dtype, packing.groups.group
    whole = np.zeros((packing.groups.panels.depth, packing.count * packing.panel), dtype.numpy)
    for panel in range(packing.count):
        for step in range(starts[panel], starts[panel + 1]):
            octets = packed[steps + step * packing.step_bytes :][: packing.step_bytes].reshape(
                2, packing.panel, group, -1
            )
            weights = np.ascontiguousarray(octets[0]).view(dtype.numpy)[..., 0]
            if packing.by_bytes:
                which = octets[1, :, :, 0] // dtype.bytes
            else:
                which = np.ascontiguousarray(octets[1]).view(f"<u{dtype.bytes}")[..., 0]
            for column, at in np.argwhere(weights != 0):
                k = bases[step] + which[column, at]
                assert whole[k, panel * packing.panel + column] == 0
                whole[k, panel * packing.panel + column] = weights[column, at]
    return whole[:, :COLUMNS], packed[sums:places]


@pytest.mark.parametrize(
    ("dtype", "panel", "window", "by_bytes"),
    [(DType.I8, 16, 64, True), (DType.I8, 4, 16, True), (DType.BF16, 32, 32, False), (DType.BF16, 8, 8, True)],
)
def test_steps_have_every_weight_once(dtype: DType, panel: int, window: int, by_bytes: bool) -> None:
    random = np.random.default_rng(6)
    drawn = random.integers(-100, 100, (DEPTH, COLUMNS)) * (random.random((DEPTH, COLUMNS)) < 0.15)
    constant = drawn.astype(np.float32 if dtype is DType.BF16 else np.int8)
    groups = Groups(panels(panel), dtype, sums=dtype is DType.I8)
    known = [one for one in pick_encodings_of(constant, groups.group) if isinstance(one, Picks)]
    (fill,) = {found for one in known if (found := pick_fill(groups, one, constant.shape, window)) is not None}
    packing = PickedGroups(groups, fill, window=window, by_bytes=by_bytes)
    got, sums = of_steps(packing, packing.pack(constant))
    np.testing.assert_array_equal(got.astype(np.float32), constant.astype(np.float32))
    if groups.sums:
        wanted = constant.astype(np.int32).sum(0)
        np.testing.assert_array_equal(sums.view("<i4")[:COLUMNS], wanted)
    specimen = packing.specimen()
    starts = specimen[: 4 * (packing.count + 1)].view("<i4")
    assert 0.7 * packing.kept < starts[-1] <= packing.kept


@pytest.mark.parametrize(("panel", "window"), [(16, 16), (32, 32), (8, 8), (4, 16)])
def test_single_floats_are_each_in_one_step_with_the_byte_that_picks_its_factor(panel: int, window: int) -> None:
    random = np.random.default_rng(7)
    gates = (random.normal(size=(2, COLUMNS, DEPTH)) * (random.random((2, COLUMNS, DEPTH)) < 0.15)).astype(np.float32)
    starts = (0, COLUMNS * DEPTH)
    groups = Groups(Panels(starts, DEPTH, COLUMNS, panel, ((DEPTH, 1), (COLUMNS, DEPTH))), DType.F32)
    known = [one for one in Picks.find(gates, Use.RECURRENCE) if one.window == window]
    (fill,) = (recurrent_fill(groups, one, gates.shape) for one in known)
    assert fill is not None
    packing = PickedFloats(groups, fill, window=window)
    packed = packing.pack(gates)
    assert packed.nbytes == packing.elements < gates.nbytes
    begin, _, places, steps, _ = packing.parts
    first = packed[begin:].view("<i4")[: packing.count + 1]
    bases, size = packed[places:].view("<u2"), packing.kept * panel
    weights = packed[steps : steps + 4 * size].view("<f4").reshape(-1, panel)
    which = packed[packing.told : packing.told + size].reshape(-1, panel)
    whole = np.zeros((packing.count, panel, DEPTH), np.float32)
    for at in range(packing.count):
        for step in range(first[at], first[at + 1]):
            np.add.at(whole[at], (np.arange(panel), bases[step] + which[step]), weights[step])
    np.testing.assert_array_equal(whole.reshape(2, -1, DEPTH)[:, :COLUMNS], gates)
    assert packing.specimen().shape == packed.shape
    narrow = Groups(Panels((0,), 4, COLUMNS, panel, ((4, 1), (COLUMNS, 4))), DType.F32)
    assert recurrent_fill(narrow, known[0], (COLUMNS, 4)) is None, "no window lies in so few inputs"


def test_floats_of_combined_columns_lie_in_their_order_which_is_packed_behind_them() -> None:
    depth, columns, panel, window = 256, 160, 16, 16
    matrix = np.asarray(packable(columns, depth, 64).T * np.random.default_rng(8).uniform(1, 2, (depth, columns)))
    constant = matrix.astype(np.float32)
    groups = Groups(Panels((0,), depth, columns, panel, ((depth, columns), (columns, 1))), DType.F32)
    known = [one for one in pick_encodings_of(constant, 1) if isinstance(one, Picks) and one.ordered]
    assert all(recurrent_fill(groups, one, constant.shape) is None for one in known), "gates have no order of inputs"
    (fill,) = {found for one in known if (found := pick_fill(groups, one, constant.shape, window)) is not None}
    packing = PickedFloats(groups, fill, window=window, ordered=True)
    packed = packing.pack(constant)
    _, _, places, steps, end = packing.parts
    order = packed[end:].view("<u2")
    np.testing.assert_array_equal(np.sort(order), np.arange(depth))
    first, bases = packed[: 4 * (packing.count + 1)].view("<i4"), packed[places:].view("<u2")
    weights = packed[steps : steps + 4 * packing.kept * panel].view("<f4").reshape(-1, panel)
    which = packed[packing.told :][: packing.kept * panel].reshape(-1, panel)
    whole = np.zeros((packing.count, panel, depth), np.float32)
    for at in range(packing.count):
        for step in range(first[at], first[at + 1]):
            np.add.at(whole[at], (np.arange(panel), order[bases[step] + which[step]]), weights[step])
    np.testing.assert_array_equal(whole.reshape(-1, depth)[:columns].T, constant)
    specimen = packing.specimen()
    assert len(specimen) == len(packed)
    np.testing.assert_array_equal(np.sort(specimen[end:].view("<u2")), np.arange(depth))


def test_a_specimen_has_as_many_steps_as_there_is_room_for() -> None:
    packing = KeptGroups(Groups(panels(16), DType.I8, sums=True), CLASSES // 4)
    assert isinstance(packing, Steered)
    specimen = packing.specimen()
    np.testing.assert_array_equal(specimen, packing.specimen())
    starts = specimen[: 4 * (packing.count + 1)].view("<i4")
    assert starts[-1] == packing.kept
    got, _ = unpacked(packing, specimen)
    assert int((got != 0).any(2).sum()) == packing.kept


def test_a_constant_of_zeros_has_no_steps() -> None:
    packing = PickedGroups(Groups(panels(16), DType.I8, sums=True), CLASSES // 4, window=64)
    packed = packing.pack(np.zeros((DEPTH, COLUMNS), np.int8))
    assert len(packed) == packing.elements
    assert not packed.any()


def test_more_than_there_is_room_for_is_refused() -> None:
    with pytest.raises(AssertionError, match="how much is kept"):
        KeptGroups(Groups(panels(16), DType.I8), 1).pack(np.ones((DEPTH, COLUMNS), np.int8))


def test_steps_are_those_of_a_constant_in_the_order_of_k() -> None:
    taps = Groups(Panels((0,), DEPTH, COLUMNS, 16, ((6, 12), (12, 1), (COLUMNS, 72))), DType.I8)
    fills = (9, 10)
    assert pick_fill(taps, Picks.of(0, 2, 4, 64, fills), (COLUMNS, 6, 12), 64) == 9
    assert pick_fill(taps, Picks.of(0, 2, 4, 64, fills), (COLUMNS, 6, 12), 16) is None
    innermost = Groups(Panels((0,), DEPTH, COLUMNS, 16, ((12, 6), (6, 1), (COLUMNS, 72))), DType.I8)
    assert pick_fill(innermost, Picks.of(0, 1, 4, 64, fills), (COLUMNS, 12, 6), 64) is None
    swapped = Groups(Panels((0,), DEPTH, COLUMNS, 16, ((3, 1), (2, 3), (12, 6), (COLUMNS, 72))), DType.I8)
    assert pick_fill(swapped, Picks.of(0, 1, 4, 64, fills), (COLUMNS, 12, 2, 3), 64) is None
    straight = Groups(Panels((0,), DEPTH, COLUMNS, 16, ((2, 3), (3, 1), (12, 6), (COLUMNS, 72))), DType.I8)
    assert pick_fill(straight, Picks.of(0, 1, 4, 64, fills), (COLUMNS, 12, 2, 3), 64) == 9


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


def recurrent(starts: tuple[int, ...], gates: int, panel: int = 16) -> Groups:
    """Matrices of so many gates and DEPTH inputs, each beginning at a start."""
    return Groups(Panels(starts, DEPTH, gates, panel, ((DEPTH, 1), (gates, DEPTH))), DType.F32)


def test_several_matrices_are_kept_one_after_the_other() -> None:
    random = np.random.default_rng(7)
    blocks = (random.random((2, 3, DEPTH)) < 0.2).repeat(16, 1)[:, :COLUMNS]
    weights = (random.normal(size=blocks.shape) * blocks).astype(np.float32)
    (encoding,) = Blocks.find(weights, Use.RECURRENCE)
    assert isinstance(encoding, Blocks)
    groups = recurrent((COLUMNS * DEPTH, 0), COLUMNS)
    fill = recurrent_fill(groups, encoding, weights.shape)
    assert fill is not None
    packing = KeptGroups(groups, fill)
    assert packing.count == 6
    got, _ = unpacked(packing, packing.pack(weights))
    np.testing.assert_array_equal(got.reshape(6, -1), groups.pack(weights))


@pytest.mark.parametrize(
    ("groups", "dims", "fits"),
    [
        (recurrent((0,), 64), (1, 64, DEPTH), True),
        (recurrent((32 * DEPTH, 0), 32), (1, 64, DEPTH), True),
        (recurrent((0,), 40), (1, 40, DEPTH), True),
        (recurrent((0, 40 * DEPTH), 40), (1, 80, DEPTH), False),
        (recurrent((0,), 32), (1, 64, DEPTH), False),
        (recurrent((0, 0), 32), (1, 64, DEPTH), False),
        (Groups(recurrent((0,), 64).panels, DType.BF16), (1, 64, DEPTH), False),
    ],
    ids=["whole", "in pieces", "last panel narrow", "between blocks", "part", "twice", "pairs"],
)
def test_recurrent_weights_are_kept_where_panels_are_blocks(groups: Groups, dims: tuple[int, ...], fits: bool) -> None:
    assert recurrent_fill(groups, Blocks.of(1, 2, 1, (7, 8, 9)), dims) == (8 if fits else None)
    assert recurrent_fill(groups, Blocks.of(2, 1, 1, (7, 8, 9)), dims) is None
