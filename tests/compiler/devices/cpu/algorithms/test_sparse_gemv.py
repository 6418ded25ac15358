from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.gemv import gemv_tiles
from compiler.devices.cpu.algorithms.sparse_gemv import sparse_gemv_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.forms.looked_up import LookedUp
from compiler.ir.combined import LEAST_LINES
from compiler.ir.encoding import DENSE
from compiler.ir.kernel import Kernel
from compiler.ir.lookups import lookup_encodings_of
from compiler.ir.machine import Workload
from compiler.ir.packing import Steered
from compiler.ir.parse import parse_workload
from tests.compiler.devices.cpu.algorithms.test_gemv import few_rows
from tests.compiler.devices.cpu.library import LOOPS, Case, Library, bound, draws
from tests.compiler.devices.cpu.wide import in_float64
from tests.compiler.ir.test_combined import packable


@dataclass(frozen=True)
class SparseCase(Case):
    """With what is known of the zeros in its matrix."""

    @property
    def workload(self) -> Workload:
        plain = super().workload
        known = {1: lookup_encodings_of(self.inputs[1])}
        return replace(plain, encodings=tuple((DENSE, *known.get(at, ())) for at in range(len(self.inputs))))


def zeroed(weights: np.ndarray, columns: int, count: int, share: float) -> np.ndarray:
    """Weights of which a share is zero anywhere, or whose columns are combined in `count`, where that is not 0."""
    lines = weights if len(weights) == columns else weights.T
    if count:
        mask = packable(len(lines), lines.shape[1], count)
    else:
        mask = np.random.default_rng(len(lines)).random(lines.shape) >= share
    return np.ascontiguousarray(weights * (mask if len(weights) == columns else mask.T))


def is_large(kernel: Kernel) -> bool:
    """Whether its matrix has as many elements as are asked for zeros, and columns that can be combined."""
    return kernel.inputs[1].type.elements >= 4096 and kernel.outputs[0].type.dims[-1] > LEAST_LINES


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> SparseCase | None:
    """Any product of few rows whose matrix is sparse enough, with as many lanes as to split it into tasks."""
    drawn: Case = draw(few_rows().filter(is_large).flatmap(bound))
    columns = drawn.kernel.outputs[0].type.dims[-1]
    depth = drawn.kernel.inputs[1].type.elements // columns
    count, share = draw(st.sampled_from([0, depth // 4])), draw(st.sampled_from([0.5, 0.8, 0.97, 1.0]))
    inputs = (drawn.inputs[0], zeroed(drawn.inputs[1], columns, count, share), *drawn.inputs[2:])
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    case = SparseCase(drawn.kernel, drawn.buffers, inputs, LOOPS, (1,), cuts)
    options = sparse_gemv_tiles(case.workload, target, draw(st.sampled_from([1, 2])))
    return replace(case, tile=options[0].tile) if options else None


def packing_of(case: SparseCase) -> LookedUp:
    packing = lower("k", case.workload, case.tile, this_machine()).packings[1]
    assert isinstance(packing, LookedUp)
    return packing


def judge(drawn: list[SparseCase], target: CpuTarget) -> None:
    """Within float32 rounding of the product in float64."""
    library = Library.of(drawn, target, optimise="-O1")
    for number, case in enumerate(drawn):
        for got, want in zip(library.run(number, case), in_float64(case.kernel, case.inputs), strict=True):
            scale = float(np.max(np.abs(want), initial=1e-3))
            assert np.max(np.abs(got - want), initial=0.0) <= 4e-6 * scale, f"{case}\n{library.lowered[number].text}"


def test_products_by_sparse_matrices_are_right_in_both_orders_of_inputs() -> None:
    drawn = [case for case in draws(cases(this_machine()), 18) if case is not None]
    found = {packing_of(case).ordered for case in drawn}
    assert found == {False, True}
    judge(drawn, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3"])
def test_products_by_sparse_matrices_are_right_with_vectors_of_eight(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    drawn = [case for case in draws(cases(target), 12) if case is not None]
    assert len(drawn) > 5
    judge(drawn, target)


@cache
def combined_case() -> SparseCase:
    """One whose columns are combined."""
    found = (case for case in draws(cases(this_machine()), 18) if case is not None)
    return next(case for case in found if packing_of(case).ordered)


def test_workloads_parse_back_and_dense_matrices_have_no_tile() -> None:
    case = combined_case()
    assert parse_workload(str(case.workload)) == case.workload
    plain = replace(case.workload, encodings=())
    assert sparse_gemv_tiles(plain, this_machine(), 1) == []
    assert gemv_tiles(plain, this_machine(), 1)
    assert sparse_gemv_tiles(case.workload, resolve("cpu:x86-64-v2"), 1) == []


def test_packed_matrices_and_specimens_name_places_inside_of_a_row() -> None:
    case = combined_case()
    packing = packing_of(case)
    assert isinstance(packing, Steered)
    depth, panel = packing.groups.panels.depth, packing.panel
    _, _, places, steps, end = packing.parts
    for packed in (packing.pack(case.inputs[1]), packing.specimen()):
        assert len(packed) == packing.elements
        starts = packed[: 4 * (packing.count + 1)].view("<i4")
        assert 0 < starts[-1] <= packing.kept
        bases = packed[places : places + 2 * starts[-1]].view("<u2")
        assert int(bases.max()) <= depth - panel
        told = packed[steps : steps + packing.step_bytes * starts[-1]].reshape(-1, packing.step_bytes)[:, 4 * panel :]
        assert int(told.max()) < panel
        assert np.array_equal(np.sort(packed[end:].view("<u2")), np.arange(depth))
