from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.coded_gemv import coded_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.encodings.codebook import Codebook
from compiler.forms.gemv import MAX_ROWS
from compiler.ir.expr import Apply, Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Slot, Store
from tests.compiler.devices.cpu.algorithms.encoded_rows import MATRIX, EncodedCase, agrees, in_encoding
from tests.compiler.devices.cpu.algorithms.test_gemv import F32, at, f32, few_rows
from tests.compiler.devices.cpu.library import Case, Library, bound, draws

CodedCase = EncodedCase[Codebook]


def coded(case: Case, codebook: Codebook, matrix: np.ndarray, target: CpuTarget, lanes: int = 1) -> CodedCase | None:
    """The case with this matrix under the codebook's tile; None where no tile is offered."""
    return in_encoding(case, codebook, matrix, coded_tiles, target, lanes)


def clustered(rng: np.random.Generator, dims: tuple[int, ...], codebook: Codebook) -> np.ndarray:
    """A matrix of as many values as the codebook's indices tell apart, zero among them; in each line its own."""
    indices = rng.integers(0, 1 << codebook.bits, dims)
    books = rng.normal(size=(1 if codebook.axis is None else dims[codebook.axis], 1 << codebook.bits))
    books[:, 0] = 0
    if codebook.axis is None:
        return np.asarray(books[0][indices].astype(np.float32))
    line = np.arange(dims[codebook.axis]).reshape([-1 if axis == codebook.axis else 1 for axis in range(len(dims))])
    return np.asarray(books[line, indices].astype(np.float32))


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget, bits: tuple[int, ...] = (1, 2, 4, 8)) -> CodedCase:
    """Up to MAX_ROWS rows, either operand transposed, maps before and after, any codebook, tasks cut anywhere."""
    case: Case = draw(few_rows().flatmap(bound))
    case = replace(case, constant=(MATRIX,), cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    codebook = Codebook.of(draw(st.sampled_from(bits)), draw(st.sampled_from([None, 0, 1])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    matrix = clustered(rng, case.inputs[MATRIX].shape, codebook)
    found = coded(case, codebook, matrix, target, draw(st.sampled_from([1, 2])))
    assume(found is not None)
    assert found is not None
    return found


def test_products_by_looked_up_weights_are_right_for_every_codebook() -> None:
    target = this_machine()
    drawn = draws(cases(target), 60)
    assert {case.encoding.bits for case in drawn} >= {1, 2, 4}
    assert {case.encoding.axis for case in drawn} == {None, 0, 1}
    agrees(drawn, target)


@pytest.mark.parametrize("profile", ["cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_products_by_looked_up_weights_are_right_with_other_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    agrees(draws(cases(target, (1, 2, 4)), 12), target)


def test_bytes_are_looked_up_only_where_the_machine_has_instructions_for_it() -> None:
    case = draws(bound(product(1, 256, 64)), 1)[0]
    matrix = clustered(np.random.default_rng(3), case.inputs[MATRIX].shape, Codebook.of(8))
    for profile, offered in (("cpu:x86-64-v4", False), ("cpu:x86-64-v3", False), ("cpu:x86-64-v4-bf16", True)):
        assert (coded(case, Codebook.of(8), matrix, resolve(profile)) is not None) is offered
        assert coded(case, Codebook.of(4), matrix, resolve(profile)) is not None


def product(rows: int, depth: int, columns: int) -> Kernel:
    """x[rows, depth] times w[columns, depth], transposed."""
    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", depth)
    block = Block((), (Apply("mul", (Load("x", at(m, k), F32), Load("w", at(n, k), F32))),), (Store("y", at(m, n)),),
                  (k,), "sum", F32)  # fmt: skip
    slots = Slot("x", f32(rows, depth)), Slot("w", f32(columns, depth))
    return Kernel("Product", slots, (Slot("y", f32(rows, columns)),), (block,), (), (m, n))


@pytest.mark.parametrize(("bits", "axis"), [(1, None), (2, None), (4, None), (4, 0), (8, None)])
@pytest.mark.parametrize("rows", range(1, MAX_ROWS + 1))
def test_sums_of_whole_numbers_are_those_of_the_dense_matrix_to_the_bit(bits: int, axis: int | None, rows: int) -> None:
    """Whole numbers that float32 holds: no order of sums rounds, so that a wrong weight shows whatever its size."""
    rng = np.random.default_rng(bits + rows)
    case = draws(bound(product(rows, 7000 if axis is None else 300, 19)), 1)[0]
    matrix = np.rint(2 * clustered(rng, case.inputs[MATRIX].shape, Codebook.of(bits, axis)))
    x = rng.integers(-8, 9, case.inputs[0].shape).astype(np.float32)
    found = coded(replace(case, inputs=(x, matrix)), Codebook.of(bits, axis), matrix, this_machine())
    if found is None:
        pytest.skip("this machine looks up no bytes")
    (got,) = Library.of([found], this_machine(), optimise="-O1").run(0, found)
    np.testing.assert_array_equal(got, x @ matrix.T)


def test_no_codebook_of_rows_serves_a_product_that_sums_over_them() -> None:
    case = draws(bound(product(1, 256, 64)), 1)[0]
    matrix = clustered(np.random.default_rng(4), (64, 256), Codebook.of(4, 1))
    assert coded(case, Codebook.of(4, 1), matrix, this_machine()) is None
    assert coded(case, Codebook.of(4, 0), matrix, this_machine()) is not None
    assert coded_tiles(replace(case, constant=(MATRIX,)).workload, this_machine(), 1) == []
