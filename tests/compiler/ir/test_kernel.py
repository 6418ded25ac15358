from __future__ import annotations

import re
from dataclasses import replace

import pytest

from compiler.errors import VerifyError
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.tensor import DType, TensorType
from tests.parse import parse_kernel

ROW = Axis("i", 4)
X = Load("x", (Index.of(ROW),), DType.F32)


def kernel(text: str) -> Kernel:
    return parse_kernel(f"kernel f(in x: f32[4], in at: i64[4]; temp t: f32[4]; out y: f32[4]) {text}")


def with_value(value: Expr, store: str = "y") -> Kernel:
    good = kernel("for i:4 y[i] = x[i]")
    return replace(good, blocks=(Block((), (value,), (Store(store, (Index.of(ROW),)),)),))


def test_a_sound_kernel_passes() -> None:
    kernel("for i:4 t[i] = exp(x[i]) y[i] = t[i]").verify()
    kernel("for i:4: y[i] = x[[at[i] in 0..3]]").verify()
    kernel("for seq i:4 t[i] = y[i - 1] y[i] = t[i]").verify()
    kernel("y[0] = sum<f32> i:4 . x[i]").verify()


def test_a_temporary_is_private_to_the_points_of_axes_it_is_never_indexed_by() -> None:
    k = parse_kernel(
        "kernel f(in x: f32[4, 3]; temp t: f32[], temp u: f32[3], temp v: f32[]; out y: f32[4, 3])"
        " for i:4, j:3 t[] = x[i, 0] u[j] = t[] v[] = exp(x[0, 0]) y[i, j] = add(u[j], v[])"
    )
    k.verify()
    i = Axis("i", 4)
    assert k.private == {"t": {i}, "u": {i}, "v": set()}


def test_a_value_of_private_temporaries_is_not_stored_at_one_place() -> None:
    with pytest.raises(VerifyError, match=r"stores one y\[0\] for all of \['i'\], in no order"):
        kernel("for i:4 t[0] = x[i] y[0] = t[0]").verify()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("for i:4: y[i] = t[i]", "reads ['t'] before a block stores it"),
        ("for i:4: t[i] = x[i]", "no block stores ['y']"),
        ("for i:4 for i:4: y[i] = x[i]", "uses an axis twice"),
        ("for i:4 for i:3: y[i] = x[i]", "uses an axis twice"),
        ("for i:4 y[i] = sum<f32> i:4 . x[i]", "uses an axis twice"),
        ("for i:4: y[i], t[i] = x[i]", "has 1 values for 2 stores"),
        ("for i:4: y[i], t[i] = sum<f32> j:4 . x[i], x[j]", "sum combines 1 values"),
        ("for i:4: y[i] = argmax_first<f32> j:4 . x[j]", "argmax_first combines 2 values"),
        ("for i:4: y[i] = median<f32> j:4 . x[j]", "reduces by median, which is no monoid"),
        ("for i:4: x[i] = y[i]", "stores into the input x"),
        ("for i:4: y[i, i] = x[i]", "indexes y: f32[4] with 2 positions"),
        ("for i:4: y[i] = x[]", "indexes x: f32[4] with 0 positions"),
        ("for i:4: y[i] = at[i]", "stores i64 into `y: f32[4]`"),
        ("for i:4: y[i] = add(x[i], at[i])", "mixes dtypes ['f32', 'i64']"),
        ("for i:4: y[i] = where(x[i], x[i], x[i])", "has a condition of dtype f32, not bool"),
        ("for i:4: y[i] = where(True:bool, x[i], 1:i64)", "mixes dtypes f32 and i64"),
        ("for i:4, j:2: y[i] = x[j]", "stores one y[i] for all of ['j'], in no order"),
        ("for i:4, j:2 y[i] = add(x[i], cast(#(j):i64):f32)", "stores one y[i] for all of ['j'], in no order"),
    ],
)
def test_an_ill_formed_kernel_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(VerifyError, match=re.escape(complaint)) as refusal:
        kernel(text).verify()
    assert "kernel f(in x: f32[4]" in str(refusal.value), "the kernel around the fault is shown"


def test_a_slot_named_twice_is_refused() -> None:
    slot = Slot("x", TensorType(DType.F32, (4,)))
    with pytest.raises(VerifyError, match="names a slot twice"):
        Kernel("f", (slot,), (slot,), ()).verify()
    with pytest.raises(VerifyError, match="routine top_k names a slot twice"):
        Routine("TopK", "top_k", (slot,), (slot,)).verify()


def test_an_undeclared_slot_is_refused_wherever_it_is_mentioned() -> None:
    with pytest.raises(VerifyError, match="mentions z, which is not declared"):
        with_value(Load("z", (Index.of(ROW),), DType.F32)).verify()
    with pytest.raises(VerifyError, match="mentions z, which is not declared"):
        with_value(X, store="z").verify()


def test_a_load_declared_with_another_dtype_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"`x\[i\]` is declared f64 but x: f32\[4\]"):
        with_value(Load("x", (Index.of(ROW),), DType.F64)).verify()


def test_an_unknown_function_is_refused_even_inside_another() -> None:
    with pytest.raises(VerifyError, match=r"`sqr\(x\[i\]\)` is no function of 1 arguments"):
        with_value(Apply("exp", (Apply("sqr", (X,)),))).verify()
    with pytest.raises(VerifyError, match="is no function of 1 arguments"):
        with_value(Apply("add", (X,))).verify()


def test_axes_from_nowhere_are_refused() -> None:
    stray = Index.of(Axis("q", 4))
    with pytest.raises(VerifyError, match=r"reads axis \['q'\], which is no axis of it"):
        with_value(Load("x", (stray,), DType.F32)).verify()
    good = kernel("for i:4 y[i] = x[i]")
    with pytest.raises(VerifyError, match=r"stores at \['q'\], which is no axis of it"):
        replace(good, blocks=(Block((), (X,), (Store("y", (stray,)),)),)).verify()


def test_a_reduction_needs_both_a_monoid_and_an_accumulator() -> None:
    good = kernel("for i:4 y[i] = sum<f32> j:4 . x[j]")
    (block,) = good.blocks
    for broken in (
        replace(block, monoid=""),
        replace(block, accumulator=None),
        replace(block, monoid="", accumulator=None),
    ):
        with pytest.raises(VerifyError, match="needs a monoid and an accumulator, or no reduction"):
            replace(good, blocks=(broken,)).verify()


def test_sequential_axes_must_be_axes_in_the_same_order() -> None:
    good = kernel("for i:4 y[i] = x[i]")
    with pytest.raises(VerifyError, match="sequential axes that are not shared"):
        replace(good, sequential=(Axis("t", 3),)).verify()
    (block,) = good.blocks
    with pytest.raises(VerifyError, match="sequential axes that are not axes of it"):
        replace(good, blocks=(replace(block, sequential=(ROW,)),)).verify()


def test_faults_in_a_stored_index_are_found() -> None:
    with pytest.raises(VerifyError, match=r"mixes dtypes \['i64', 'f32'\]"):
        kernel("for i:4: y[[add(at[i], x[i]) in 0..3]] = x[i]").verify()


def test_blocks_tell_what_they_read_and_write() -> None:
    (block,) = kernel("for i:4: y[[at[i] in 0..3]], t[i] = x[i], 1.0:f32").blocks
    assert block.reads == {"x", "at"}
    assert block.writes == {"y", "t"}


def test_a_cast_makes_the_stored_dtype_right() -> None:
    wide = Where(Const(True, DType.BOOL), Cast(Cast(X, DType.F64), DType.F32), X)
    with_value(wide).verify()
