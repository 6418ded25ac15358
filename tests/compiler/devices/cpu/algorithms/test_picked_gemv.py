"""Products of few rows by a matrix with zeros in blocks and anywhere, beside float64; which tiles there are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.gemv import gemv_tiles
from compiler.devices.cpu.algorithms.picked_gemv import KEPT, PICKED, picked_gemv_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.encodings import find
from compiler.encodings.combined import LEAST_LINES
from compiler.encodings.encoding import DENSE, Use
from compiler.encodings.zeros import leaves_out
from compiler.forms.gemv import MAX_ROWS, SPARSE_ROWS
from compiler.forms.kept_groups import PickedFloats
from compiler.ir.expr import Apply, Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.packing import Steered
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.algorithms.test_gemv import agrees, at, f32, few_rows
from tests.compiler.devices.cpu.library import Case, Library, bound, draws
from tests.compiler.encodings.test_combined import packable

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
MATRIX = 1
"""Its position among the inputs."""


@dataclass(frozen=True)
class PrunedCase(Case):
    """With what is known of the zeros in the matrix."""

    @property
    def workload(self) -> Workload:
        known = find(self.inputs[MATRIX], Use.FEW_ROWS)
        each = ((DENSE, *known) if position == MATRIX else (DENSE,) for position in range(len(self.inputs)))
        return replace(super().workload, encodings=tuple(each))


def pruned(case: Case, share: float, block: int, lines: int, seed: int) -> PrunedCase:
    """The case with about a share of the matrix kept, in blocks of so many along the axis of columns, `lines`."""
    matrix = np.moveaxis(case.inputs[MATRIX], lines, 0)
    mask = np.random.default_rng(seed).random((-(-len(matrix) // block), *matrix.shape[1:])) < share
    return masked(case, mask.repeat(block, 0)[: len(matrix)], lines)


def combined(case: Case, lines: int) -> PrunedCase:
    """The case with a matrix whose columns, as its other axis has them, can be combined to a quarter."""
    depth = case.inputs[MATRIX].size // case.inputs[MATRIX].shape[lines]
    matrix = np.moveaxis(case.inputs[MATRIX], lines, 0)
    return masked(case, packable(len(matrix), depth, depth // 4).reshape(matrix.shape), lines)


def masked(case: Case, mask: np.ndarray, lines: int) -> PrunedCase:
    """The case with a matrix of which bool[lines, ...] says what is kept; the axis of columns is `lines`."""
    kept = np.moveaxis(np.moveaxis(case.inputs[MATRIX], lines, 0) * mask, 0, lines)
    inputs = tuple(
        np.ascontiguousarray(kept, np.float32) if position == MATRIX else one
        for position, one in enumerate(case.inputs)
    )
    return PrunedCase(case.kernel, case.buffers, inputs, constant=(MATRIX,), cuts=case.cuts)


def product(rows: int, deep: int, columns: int, share: float, block: int = 1) -> PrunedCase:
    """y = x w with w[k, columns]."""
    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", deep)
    value = Apply("mul", (Load("x", at(m, k), DType.F32), Load("w", at(k, n), DType.F32)))
    block_of = Block((), (value,), (Store("y", at(m, n)),), (k,), "sum", DType.F32)
    slots = (Slot("x", f32(rows, deep)), Slot("w", f32(deep, columns)))
    kernel = Kernel("Product", slots, (Slot("y", f32(rows, columns)),), (block_of,), (), (m, n))
    return pruned(draws(bound(kernel), 1)[0], share, block, 1, 3)


def is_large(kernel: Kernel) -> bool:
    """Whether its matrix has as many columns as are asked to be combined, and much to combine in each."""
    columns = kernel.outputs[0].type.dims[-1]
    return columns > LEAST_LINES and kernel.inputs[MATRIX].type.elements >= 256 * columns


@st.composite
def drawn(draw: st.DrawFn, target: CpuTarget) -> Case:
    """Any product of few rows, with few weights left, under any tile, with as many lanes as to split it into tasks."""
    can_be_combined = draw(st.booleans())
    rows = few_rows(draw(st.sampled_from([MAX_ROWS, SPARSE_ROWS])))
    case: Case = draw((rows.filter(is_large) if can_be_combined else rows).flatmap(bound))
    case = replace(case, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    columns = case.inputs[MATRIX].shape.index(case.kernel.shared[1].extent)
    block, share = draw(st.sampled_from([1, 1, 8, 16, 32])), draw(st.sampled_from([0.0, 0.05, 0.2]))
    seed = draw(st.integers(0, 2**16))
    one = combined(case, columns) if can_be_combined else pruned(case, share, block, columns, seed)
    options = picked_gemv_tiles(one.workload, target, draw(st.sampled_from([1, 2])))
    assume(options)
    return replace(one, tile=draw(st.sampled_from(options)).tile)


def is_ordered(case: Case, target: CpuTarget) -> bool:
    """Whether rows are brought into another order."""
    packing = lower("k", case.workload, case.tile, target).packings[MATRIX]
    return isinstance(packing, PickedFloats) and packing.ordered


@pytest.mark.parametrize("profile", HERE)
def test_products_without_their_zeros_are_those_of_float64(profile: str) -> None:
    target = resolve(profile)
    found = draws(drawn(target), 24)
    assert {case.tile.algorithm for case in found} == {KEPT, PICKED}
    assert {is_ordered(case, target) for case in found} == {False, True}
    assert {case.kernel.shared[0].extent > MAX_ROWS for case in found} == {False, True}
    agrees(found, target)


@pytest.mark.parametrize("profile", HERE)
@pytest.mark.parametrize("block", [1, 32])
def test_rows_that_registers_do_not_hold_go_through_a_panel_in_turn(block: int, profile: str) -> None:
    target = resolve(profile)
    found: list[Case] = []
    for rows in (5, 13, SPARSE_ROWS - 1):
        case = product(rows, 160, 96, 0.1, block)
        found += [replace(case, tile=one.tile) for one in picked_gemv_tiles(case.workload, target, 1)]
    assert {case.tile.extent("register", "m") < case.kernel.shared[0].extent for case in found} == {False, True}
    agrees(found, target)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("block", [1, 32])
def test_the_more_zeros_the_less_time_is_foreseen(block: int, profile: CpuTarget) -> None:
    each = []
    for share in (0.02, 0.1, 0.25):
        workload = product(1, 512, 512, share, block).workload
        options = picked_gemv_tiles(workload, profile, 1)
        assert options
        assert all(leaves_out(option.tile.algorithm) for option in options)
        dense = min(option.seconds for option in gemv_tiles(workload, profile, 1))
        each.append(min(option.seconds for option in options) / dense)
    assert each == sorted(each)
    assert each[0] < 0.6


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (product(1, 128, 128, 0.25), {PICKED}),
        (product(MAX_ROWS, 128, 128, 0.1, 32), {KEPT, PICKED}),
        (product(SPARSE_ROWS, 128, 128, 0.25), {PICKED}),
        (product(SPARSE_ROWS + 1, 128, 128, 0.1), set()),
        (product(1, 128, 128, 0.7), set()),
        (product(1, 128, 4, 0.1), set()),
        (product(1, 12, 256, 0.25), set()),
    ],
    ids=["anywhere", "blocks", "more rows", "many rows", "few zeros", "few weights", "no window"],
)
def test_tiles_are_offered_where_zeros_are_known(case: PrunedCase, found: set[str]) -> None:
    target = next(profile for profile in PROFILES if profile.vector_floats == 16)
    assert {option.tile.algorithm for option in picked_gemv_tiles(case.workload, target, 1)} == found


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_combined_columns_take_fewer_steps_than_as_many_zeros_anywhere(profile: CpuTarget) -> None:
    anywhere = product(1, 512, 512, 0.25)
    case = combined(anywhere, 1)
    assert parse_workload(str(case.workload)) == case.workload
    each = []
    for one in (case, anywhere):
        tiles = [option.tile for option in picked_gemv_tiles(one.workload, profile, 1)]
        packings = [lower("k", one.workload, tile, profile).packings[MATRIX] for tile in tiles]
        each.append(min(packing.elements for packing in packings))
    assert each[0] < 0.9 * each[1]


def test_several_lanes_share_the_columns_and_packed_weights_are_smaller() -> None:
    target = next(profile for profile in PROFILES if profile.vector_floats == 16)
    case = product(1, 256, 512, 0.1)
    (tile, *_) = (one.tile for one in picked_gemv_tiles(case.workload, target, 2) if one.tile.algorithm == PICKED)
    lowered = lower("k0_product", case.workload, tile, target)
    assert lowered.tiles > 1
    packing = lowered.packings[MATRIX]
    assert isinstance(packing, Steered)
    assert packing.elements < 0.35 * case.inputs[MATRIX].nbytes
    assert packing.specimen().shape == packing.pack(case.inputs[MATRIX]).shape


@pytest.mark.parametrize("profile", HERE[:1])
def test_a_nan_that_only_zero_weights_of_a_block_meet_stays_out_of_the_result(profile: str) -> None:
    target = resolve(profile)
    case = product(1, 128, 128, 0.1, 32)
    x, matrix = (one.copy() for one in case.inputs)
    x[:, 5], matrix[5] = np.nan, 0
    case = replace(case, inputs=(x, matrix))
    tile = next(one.tile for one in picked_gemv_tiles(case.workload, target, 1) if one.tile.algorithm == KEPT)
    case = replace(case, tile=tile)
    (got,) = Library.of([case], target, "-O1").run(0, case)
    assert np.isfinite(got).all()
