from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.gemv import gemv_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, this_machine
from compiler.encodings.encoding import DENSE, Encodings
from compiler.encodings.int24 import INT24
from compiler.forms.gemv import MAX_ROWS, as_gemv
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.library import Case, Library, bound, draws
from tests.compiler.devices.cpu.wide import in_float64

F32 = DType.F32


def f32(*dims: int) -> TensorType:
    return TensorType(F32, dims)


def at(*axes: Axis) -> tuple[Index, ...]:
    return tuple(map(Index.of, axes))


@st.composite
def few_rows(draw: st.DrawFn, most: int = MAX_ROWS) -> Kernel:
    """Up to `most` rows times a matrix, either operand transposed.

    A map may be taken into the rows, others come after the product.
    """
    rows, columns = draw(st.integers(1, most)), draw(st.sampled_from([2, 5, 16, 40, 65, 130, 300]))
    deep = draw(st.sampled_from([1, 3, 16, 37, 400, 700]))
    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", deep)
    flip_a, flip_b, mapped = (draw(st.booleans()) for _ in range(3))
    a_index, b_index = (k, m) if flip_a else (m, k), (n, k) if flip_b else (k, n)
    a: Expr = Load("x", at(*a_index), F32)
    a = Apply("tanh", (a,)) if mapped else a
    b = Load("w", at(*b_index), F32)
    out, place = Slot("y", f32(rows, columns)), at(m, n)
    inputs = [
        Slot("x", f32(*(axis.extent for axis in a_index))),
        Slot("w", f32(*(axis.extent for axis in b_index))),
    ]
    product = Block((), (Apply("mul", (a, b)),), (Store("y", place),), (k,), "sum", F32)
    if not draw(st.booleans()):
        return Kernel("Product", tuple(inputs), (out,), (product,), shared=(m, n))
    inputs.append(Slot("bias", f32(columns)))
    biased = Apply("add", (Load("t", place, F32), Load("bias", at(n), F32)))
    blocks = (
        replace(product, stores=(Store("t", place),)),
        Block((), (Apply("max", (biased, Const(0.1, F32))),), (Store("y", place),)),
    )
    return Kernel("Product", tuple(inputs), (out,), blocks, (Slot("t", out.type),), (m, n))


def second_in_24_bits(inputs: int) -> tuple[Encodings, ...]:
    """The encodings of a product's inputs, of which the second one is the matrix."""
    return tuple((DENSE, INT24) if position == 1 else (DENSE,) for position in range(inputs))


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Case:
    """Any tile, with as many lanes as to split it into tasks; the matrix in 24 bits where drawn."""
    case: Case = draw(few_rows().flatmap(bound))
    case = replace(case, constant=(1,), cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    workload = replace(case.workload, encodings=second_in_24_bits(len(case.kernel.inputs)))
    options = gemv_tiles(workload, target, draw(st.sampled_from([1, 2])))
    assume(options)
    return replace(case, tile=draw(st.sampled_from(options)).tile)


def agrees(drawn: list[Case], target: CpuTarget) -> None:
    """Within float32 rounding of the product in float64.

    24-bit numbers within a thousandth of a percent of the largest.
    """
    library = Library.of(drawn, target, optimise="-O1")
    for number, case in enumerate(drawn):
        wide = in_float64(case.kernel, case.inputs)
        for got, want in zip(library.run(number, case), wide, strict=True):
            scale = float(np.max(np.abs(want), initial=1e-3))
            slack = 1e-5 if case.tile.algorithm == "gemv24" else 4e-6
            assert np.max(np.abs(got - want), initial=0.0) <= slack * scale, f"{case}\n{library.lowered[number].text}"


def test_products_of_few_rows_are_right_under_every_tile() -> None:
    drawn = draws(cases(this_machine()), 60)
    assert {case.tile.algorithm for case in drawn} == {"gemv", "gemv24"}
    agrees(drawn, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_products_of_few_rows_are_right_with_narrower_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    agrees(draws(cases(target), 15), target)


def test_a_matrix_of_24_bit_numbers_gives_what_float32_gives_for_numbers_that_fit() -> None:
    """Numbers of a half type within 2^-12 of the largest are kept exactly, so that only sums round."""
    rng = np.random.default_rng(5)
    m, n, k = Axis("m", 1), Axis("n", 96), Axis("k", 64)
    product = Apply("mul", (Load("x", at(m, k), F32), Load("w", at(k, n), F32)))
    block = Block((), (product,), (Store("y", at(m, n)),), (k,), "sum", F32)
    kernel = Kernel(
        "Product", (Slot("x", f32(1, 64)), Slot("w", f32(64, 96))), (Slot("y", f32(1, 96)),), (block,), (), (m, n)
    )
    weights = rng.uniform(0.25, 1, (64, 96)).astype(np.float16).astype(np.float32)
    x = rng.integers(-8, 9, (1, 64)).astype(np.float32)
    template = draws(bound(kernel), 1)[0]
    case = replace(template, inputs=(x, weights), constant=(1,))
    workload = replace(case.workload, encodings=second_in_24_bits(2))
    (tile,) = (p.tile for p in gemv_tiles(workload, this_machine(), 1) if p.tile.algorithm == "gemv24")
    library = Library.of([replace(case, tile=tile)], this_machine(), optimise="-O1")
    np.testing.assert_array_equal(library.run(0, replace(case, tile=tile))[0], x @ weights)


def test_24_bits_are_offered_only_where_the_workload_says_that_they_may_be() -> None:
    case = next(case for case in draws(cases(this_machine()), 40) if as_gemv(case.workload))
    assert {p.tile.algorithm for p in gemv_tiles(case.workload, this_machine(), 1)} == {"gemv"}
    allowed = replace(case.workload, encodings=second_in_24_bits(len(case.kernel.inputs)))
    inexact = [p for p in gemv_tiles(allowed, this_machine(), 1) if p.tile.algorithm == "gemv24"]
    assert len(inexact) == 1
    assert inexact[0].error > 0


def one_row(depth: int, columns: int) -> Workload:
    """One row times such a matrix, which may be held in 24 bits."""
    m, n, k = Axis("m", 1), Axis("n", columns), Axis("k", depth)
    value = Apply("mul", (Load("x", at(m, k), F32), Load("w", at(k, n), F32)))
    product = Block((), (value,), (Store("y", at(m, n)),), (k,), "sum", F32)
    inputs = (Slot("x", f32(1, depth)), Slot("w", f32(depth, columns)))
    kernel = Kernel("Product", inputs, (Slot("y", f32(1, columns)),), (product,), (), (m, n))
    buffers = tuple(Buffer.whole(number, slot.type) for number, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return replace(Case(kernel, buffers, (), constant=(1,)).workload, encodings=second_in_24_bits(2))


def in_24_bits_first(target: CpuTarget, depth: int, columns: int) -> bool:
    """Whether the model puts 24 bits first for one row times such a matrix."""
    return gemv_tiles(one_row(depth, columns), target, 1)[0].tile.algorithm == "gemv24"


@pytest.mark.parametrize(("profile", "in_a_cache"), [("cpu:x86-64-v4", True), ("cpu:x86-64-v2", False)])
def test_what_widening_takes_counts_where_vectors_are_short_and_the_matrix_stays_in_a_cache(
    profile: str, in_a_cache: bool
) -> None:
    target = next(one for one in PROFILES if one.name == profile)
    assert in_24_bits_first(target, 1024, 1024) == in_a_cache
    assert in_24_bits_first(target, 4096, 4096)


def test_a_matrix_beyond_the_caches_arrives_from_where_the_constants_of_the_whole_model_stay() -> None:
    plain = resolve("cpu:x86-64-v4-bf16")
    target = replace(plain, rates=replace(plain.rates, in_memory=True))
    few, many = one_row(128, 1024), one_row(960, 1280)
    assert [one.seconds for one in gemv_tiles(few, target, 1)] == [one.seconds for one in gemv_tiles(few, plain, 1)]
    from_memory = {one.tile.algorithm: one.seconds for one in gemv_tiles(many, target, 1)}
    read_s = 1e-9 * 960 * 1280 * 3 / target.rates.memory_per_ns
    assert read_s < from_memory["gemv24"] < 1.01 * read_s
    for one in (plain, target):
        proposed = legal_tiles(many, one, 1, "bf16")
        assert min(proposed, key=lambda option: option.seconds).tile.algorithm == "bf16"


def test_more_rows_and_matrices_that_are_no_constants_are_refused() -> None:
    case = next(case for case in draws(cases(this_machine()), 40) if as_gemv(case.workload))
    assert as_gemv(replace(case.workload, constant=(False,) * len(case.kernel.inputs))) is None
    lowered = lower("k0_case", case.workload, Tile("gemv", case.tile.levels), this_machine())
    assert set(lowered.packings) == {1}
