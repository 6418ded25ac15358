"""What C may compute coarser than expressions say, and what lies in memory."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from compiler.forms.numerics import EXACT, Numerics, gelu_of
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.parse import parse_kernel

X = Load("x", (), DType.F32)
ERF = Apply("erf", (X,))
HALF, ONE, ROOT = (Const(value, DType.F32) for value in (0.5, 1.0, math.sqrt(0.5)))


def gelu(x: Expr, root: Expr = ROOT) -> Expr:
    """X / 2 (1 + erf(x root))."""
    return Apply("mul", (Apply("mul", (x, HALF)), Apply("add", (Apply("erf", (Apply("mul", (x, root)),)), ONE))))


def workload(*elements: DType | None) -> Workload:
    """Of inputs a and b and outputs y and z, whose elements in memory are these."""
    kernel = parse_kernel("""
kernel f(in a: f32[4], in b: f32[4]; out y: f32[4], out z: f32[4])
  for i:4
    y[i] = add(a[i], b[i])
    z[i] = a[i]
""")
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = [
        replace(Buffer.whole(at, slot.type), element=element)
        for at, (slot, element) in enumerate(zip(slots, elements, strict=True))
    ]
    return Workload(kernel, tuple(buffers[:2]), tuple(buffers[2:]), (False, False))


@pytest.mark.parametrize(
    ("elements", "rounds"),
    [
        ((None, None, None, None), False),
        ((DType.BF16, None, None, None), False),
        ((None, None, DType.BF16, None), False),
        ((None, DType.BF16, DType.BF16, DType.BF16), True),
        ((None, None, DType.F16, DType.F16), False),
    ],
)
def test_results_are_rounded_where_all_of_them_are_in_bf16(elements: tuple[DType | None, ...], rounds: bool) -> None:
    numerics = Numerics.of(workload(*elements))
    assert numerics.rounds == rounds
    assert numerics.elements == {name: one for name, one in zip("abyz", elements, strict=True) if one}
    assert not numerics.folds_gelu


def test_functions_are_shorter_where_results_are_rounded_and_gelu_is_one_where_that_pays() -> None:
    whole = gelu(X)
    assert isinstance(whole, Apply)
    tanh = Apply("tanh", (X,))
    short = Numerics(rounds=True)
    assert EXACT.function(ERF) == ("erf", (X,))
    assert short.function(ERF) == ("erf_bf16", (X,))
    assert short.function(tanh) == ("tanh", (X,))
    assert short.function(whole) == ("mul", whole.args)
    assert replace(short, folds_gelu=True).function(whole) == ("gelu_bf16", (X,))
    assert Numerics(folds_gelu=True).function(whole) == ("mul", whole.args)


def test_gelu_is_found_by_its_definition_alone() -> None:
    assert gelu_of(gelu(X)) == X
    assert gelu_of(gelu(X, Const(0.7, DType.F32))) is None
    assert gelu_of(ERF) is None
