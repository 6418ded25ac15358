from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tensor import DType, TensorType
from compiler.ops import contraction, einsum
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import Attrs, check, compare, normal, octets, prepare, scalar
from tests.peers import signed_weights

RECORDS = {operator.name: operator for operator in (*contraction.OPERATORS, *einsum.OPERATORS)}


@st.composite
def operands(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    batch = draw(st.lists(st.integers(1, 3), max_size=3))
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    shapes = []
    for last in ((m, k), (k, n)):
        kept = batch[draw(st.integers(0, len(batch))) :]
        shapes.append((*(extent if draw(st.booleans()) else 1 for extent in kept), *last))
    if draw(st.integers(0, 5)) == 0:
        shapes[0] = (k,)
    if draw(st.integers(0, 5)) == 0:
        shapes[1] = (k,)
    return shapes[0], shapes[1]


@given(operands())
@settings(max_examples=100)
def test_MatMul_multiplies_like_numpy_for_all_ranks(shapes: tuple[Any, ...]) -> None:
    a, b = normal(1, *shapes[0]), normal(2, *shapes[1])
    np.testing.assert_allclose(check(RECORDS["MatMul"], [a, b])[0], np.matmul(a, b), rtol=1e-4, atol=1e-5)
    compare(RECORDS["MatMul"], [a, b])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float64, np.float16])
def test_MatMul_keeps_its_dtype(dtype: Any) -> None:
    a, b = (normal(seed, 3, 4) * 10 for seed in (1, 2))
    y = check(RECORDS["MatMul"], [np.abs(a).astype(dtype), np.abs(b.T).astype(dtype)], rtol=1e-3)[0]
    assert y.dtype == dtype


@given(st.booleans(), st.booleans(), st.sampled_from([1.0, 0.5]), st.sampled_from([1.0, 0.0, 0.25]), st.integers(0, 6))
@settings(max_examples=60)
def test_Gemm_scales_transposes_and_adds(
    transposed_a: bool, transposed_b: bool, alpha: float, beta: float, c: int
) -> None:
    a, b = normal(1, 3, 4), normal(2, 4, 5)
    shape = [None, (), (5,), (3, 1), (1, 5), (3, 5), (1, 1)][c]
    arrays = [a.T.copy() if transposed_a else a, b.T.copy() if transposed_b else b]
    if shape is not None:
        arrays.append(normal(3, *shape))
    attrs: Attrs = {"alpha": alpha, "beta": beta, "transA": int(transposed_a), "transB": int(transposed_b)}
    compare(RECORDS["Gemm"], arrays, attrs)


def test_a_Gemm_without_epilogue_is_one_block() -> None:
    node, _, types = prepare(RECORDS["Gemm"], [normal(1, 2, 3), normal(2, 3, 4), normal(3, 4)], {"beta": 0.0}, 1)
    kernel = RECORDS["Gemm"].define(node, types, RECORDS["Gemm"].infer(node, types))
    assert len(kernel.blocks) == 1  # type: ignore[union-attr]


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("abcd,cde->abe", (2, 3, 4, 5), (4, 5, 2)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("...ij,...jk", (2, 1, 3, 4), (5, 4, 2)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("bA, bA -> b", (2, 3), (2, 3)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
    ("...,...->...", (2, 3), (3,)),
    ("b...->...b", (2, 3, 4)),
    ("ij,ij->i", (2, 3), (1, 3)),
]


@pytest.mark.parametrize("problem", EQUATIONS, ids=[str(problem[0]) for problem in EQUATIONS])
def test_Einsum_agrees_with_numpy(problem: tuple[Any, ...]) -> None:
    equation, *shapes = problem
    arrays = [normal(seed, *shape) for seed, shape in enumerate(shapes)]
    ours = check(RECORDS["Einsum"], arrays, {"equation": equation})[0]
    np.testing.assert_allclose(ours, np.einsum(equation.replace(" ", ""), *arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->ii", [(2, 3)]),
        ("ij->k", [(2, 3)]),
        ("i,j", [(2,)]),
        ("ijk->i", [(2, 3)]),
        ("i;", [(2,)]),
    ],
)
def test_Einsum_refuses_an_equation_that_does_not_fit(equation: str, shapes: list[Any]) -> None:
    node, _, types = prepare(RECORDS["Einsum"], [normal(1, *shape) for shape in shapes], {"equation": equation}, 1)
    with pytest.raises(Unsupported):
        RECORDS["Einsum"].infer(node, types)


@pytest.mark.parametrize("a_zero", [None, (), (4,)])
@pytest.mark.parametrize("b_zero", [None, (), (5,)])
def test_MatMulInteger_is_exact(a_zero: tuple[Any, ...] | None, b_zero: tuple[Any, ...] | None) -> None:
    a, b = octets(1, np.uint8, 4, 3), signed_weights(np.random.default_rng(2), 3, 5)
    points = [
        None if a_zero is None else octets(3, np.uint8, *a_zero),
        None if b_zero is None else octets(4, np.int8, *b_zero),
    ]
    y = check(RECORDS["MatMulInteger"], [a, b, *points])[0]
    left = a.astype(int) - (0 if points[0] is None else points[0].astype(int).reshape(-1, 1))
    np.testing.assert_array_equal(y, left @ (b.astype(int) - (0 if points[1] is None else points[1].astype(int))))
    if a_zero != (4,):
        compare(RECORDS["MatMulInteger"], [a, b, *points])


def test_MatMulInteger_takes_a_zero_point_for_each_row_of_each_batch() -> None:
    a, b = octets(1, np.uint8, 2, 4, 3), octets(2, np.uint8, 2, 3, 5)
    check(RECORDS["MatMulInteger"], [a, b, octets(3, np.uint8, 2, 4, 1), octets(4, np.uint8, 2, 1, 5)])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_QLinearMatMul_rounds_and_saturates_like_onnxruntime(
    dtype: Any, per_column: bool, batch: tuple[Any, ...]
) -> None:
    a, b = octets(1, dtype, *batch, 4, 3), signed_weights(np.random.default_rng(2), 3, 5)
    scale = np.linspace(0.01, 0.02, 5, dtype=np.float32) if per_column else scalar(0.013)
    zero = np.zeros(5, np.int8) if per_column else np.array(1, np.int8)
    arrays = [a, scalar(0.02), np.array(3, dtype), b, scale, zero, scalar(0.05), np.array(7, dtype)]
    compare(RECORDS["QLinearMatMul"], arrays)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("MatMul", ((2, 3), (4, 5))),
        ("MatMul", ((), (3,))),
        ("MatMul", ((2, 3, 4), (3, 4, 5))),
        ("Gemm", ((2, 3, 4), (4, 5))),
        ("Gemm", ((2, 3), (3, 4), (3,))),
    ],
)
def test_a_product_refuses_operands_that_do_not_fit(name: str, shapes: tuple[Any, ...]) -> None:
    node, _, _ = prepare(RECORDS[name], [np.zeros(shape, np.float32) for shape in shapes], {}, 1)
    with pytest.raises(Unsupported):
        RECORDS[name].infer(node, tuple(TensorType(DType.F32, shape) for shape in shapes))
