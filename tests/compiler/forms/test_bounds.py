from __future__ import annotations

import pytest

from compiler.forms.bounds import beyond_bounds, bound_of, neutral_from, within
from compiler.ir.expr import Apply, Const, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType
from tests.parse import parse_kernel

HEAD = (
    "kernel K(in x: f32[8, 6], in w: f32[6, 4], in r: f32[8, 4], in n: i64[], in m: i64[]; "
    "temp t: f32[8, 4]; out y: f32[8, 4])"
)
PRODUCT = "    t[i, j] = sum<f32> k:6 . mul(x[i, k], w[k, j])"

FOUND = {
    "a choice is the last map": (
        "where(lt(#(i):i64, n[]), t[i, j], 0.0:f32)",
        {"i < n[]": "0.0:f32"},
    ),
    "a map follows": (
        "exp(where(lt(#(i):i64, n[]), t[i, j], 0.0:f32))",
        {"i < n[]": "exp(0.0:f32)"},
    ),
    "what follows reads an input": (
        "add(where(lt(#(i):i64, n[]), t[i, j], 0.0:f32), r[i, j])",
        {"i < n[]": "add(0.0:f32, r[i, j])"},
    ),
    "two axes have a size": (
        "where(lt(#(j):i64, m[]), where(lt(#(i):i64, n[]), t[i, j], 0.0:f32), 0.0:f32)",
        {"j < m[]": "0.0:f32", "i < n[]": "0.0:f32"},
    ),
    "two axes have a size and other numbers beyond": (
        "where(lt(#(j):i64, m[]), where(lt(#(i):i64, n[]), t[i, j], 0.0:f32), 1.0:f32)",
        {"j < m[]": "1.0:f32", "i < n[]": "where(lt(#(j):i64, m[]), 0.0:f32, 1.0:f32)"},
    ),
    "one condition asks for both": (
        "where(and(lt(#(i):i64, n[]), lt(#(j):i64, m[])), t[i, j], 0.0:f32)",
        {"i < n[]": "0.0:f32", "j < m[]": "0.0:f32"},
    ),
    "places are a sum of axes": (
        "where(lt(#(4*i + j):i64, n[]), t[i, j], 0.0:f32)",
        {"4*i + j < n[]": "0.0:f32"},
    ),
    "the other branch needs the product too": (
        "where(lt(#(i):i64, n[]), t[i, j], neg(t[i, j]))",
        {},
    ),
    "the product is read beside the choice": (
        "add(where(lt(#(i):i64, n[]), t[i, j], 0.0:f32), t[i, j])",
        {},
    ),
    "the size is computed": (
        "where(lt(#(i):i64, add(n[], 1:i64)), t[i, j], 0.0:f32)",
        {},
    ),
    "the place falls": (
        "where(lt(#(7 - i):i64, n[]), t[i, j], 0.0:f32)",
        {},
    ),
    "the size is a lower one": (
        "where(ge(#(i):i64, n[]), t[i, j], 0.0:f32)",
        {},
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_bounds_of_a_product(name: str) -> None:
    value, wanted = FOUND[name]
    kernel = parse_kernel(f"{HEAD}\n  for i:8, j:4\n{PRODUCT}\n    y[i, j] = {value}\n")
    kernel.verify()
    found = {f"{one.bound.place} < {one.bound.size}": str(one.stored[0].value) for one in beyond_bounds(kernel)}
    assert found == wanted


def test_a_kernel_with_a_result_that_needs_the_product_everywhere_has_no_bound() -> None:
    text = "kernel K(in x: f32[8, 6], in n: i64[]; out y: f32[8], out z: f32[8])\n  for i:8\n"
    text += "    y[i] = sum<f32> k:6 . x[i, k]\n    z[i] = where(lt(#(i):i64, n[]), y[i], 0.0:f32)\n"
    assert beyond_bounds(parse_kernel(text)) == ()


def test_a_kernel_that_runs_in_sequence_has_no_bound() -> None:
    text = "kernel K(in x: f32[8], in n: i64[]; temp t: f32[8]; out y: f32[8])\n  for seq i:8\n"
    text += "    t[i] = add(x[i], 1.0:f32)\n    y[i] = where(lt(#(i):i64, n[]), t[i], 0.0:f32)\n"
    assert beyond_bounds(parse_kernel(text)) == ()


ROW, COLUMN = Axis("i", 8), Axis("j", 4)
N = Load("n", (), DType.I64)
X = Load("x", (Index.of(ROW),), DType.F32)


def below(axis: Axis) -> Apply:
    return Apply("lt", (Position(Index.of(axis)), N))


def test_within_bounds_choices_are_made_and_others_stay() -> None:
    kernel = parse_kernel(
        f"{HEAD}\n  for i:8, j:4\n{PRODUCT}\n"
        "    y[i, j] = where(and(lt(#(i):i64, n[]), lt(#(j):i64, m[])), "
        "where(lt(#(i):i64, n[]), t[i, j], 0.0:f32), 1.0:f32)\n"
    )
    (bound, _) = (one.bound for one in beyond_bounds(kernel))
    assert str(within(kernel.blocks[1], [bound]).values[0]) == "where(lt(#(j):i64, m[]), t[i, j], 1.0:f32)"


def test_a_value_is_neutral_from_every_size_that_its_choices_name() -> None:
    inputs = frozenset(("n", "x"))
    zero = Const(0.0, DType.F32)
    assert neutral_from(Where(below(ROW), X, zero), ROW, 0.0, inputs) == (N,)
    assert neutral_from(Where(below(ROW), X, zero), ROW, 1.0, inputs) == ()
    assert neutral_from(Where(below(ROW), X, zero), COLUMN, 0.0, inputs) == ()
    assert neutral_from(Where(below(COLUMN), Where(below(ROW), X, zero), zero), ROW, 0.0, inputs) == (N,)
    assert neutral_from(Where(below(COLUMN), Where(below(ROW), X, zero), Const(1.0, DType.F32)), ROW, 0.0, inputs) == ()
    assert neutral_from(X, ROW, 0.0, inputs) == ()


def test_a_size_that_a_kernel_computes_bounds_nothing() -> None:
    assert bound_of(below(ROW), frozenset(("x",))) is None
    assert bound_of(below(ROW), frozenset(("n",))) is not None
