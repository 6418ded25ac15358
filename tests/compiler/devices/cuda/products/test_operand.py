"""What operands of products allow on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cuda.products.operand import access_of, half_of
from compiler.forms.contraction import Contraction, as_contraction
from compiler.forms.normal_form import Slots
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.parse import parse_kernel

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
PRODUCT = """
kernel MatMul(in x: f32[12, {k}], in w: f32[{k}, 16]; out y: f32[12, 16])
  for i:12, j:16
    y[i, j] = sum<f32> k:{k} . mul({a}, w[k, j])
"""


def workload(
    k: int = 64,
    a: str = "x[i, k]",
    elements: tuple[DType | None, DType | None] = (F16, F16),
    offset: int = 0,
    constant: tuple[bool, bool] = (False, True),
) -> Workload:
    kernel = parse_kernel(PRODUCT.format(k=k, a=a))
    x, w, y = (Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    inputs = (replace(x, element=elements[0], offset=offset), replace(w, element=elements[1]))
    return Workload(kernel, inputs, (y,), constant)


def view(of: Workload) -> Contraction:
    found = as_contraction(of)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("k", "offset", "memory", "element", "count", "is_copy"),
    [
        (64, 0, F16, F16, 8, True),
        (64, 4, F16, F16, 4, True),
        (64, 2, F16, F16, 2, True),
        (64, 1, F16, F16, 1, False),
        (36, 0, F16, F16, 4, True),
        (37, 0, F16, F16, 1, False),
        (64, 0, None, F32, 4, True),
        (64, 1, None, F32, 1, False),
        (64, 0, None, F16, 4, False),
        (64, 0, F16, F32, 4, False),
    ],
)
def test_pieces_are_as_long_as_rows_and_alignment_allow(
    k: int, offset: int, memory: DType | None, element: DType, count: int, is_copy: bool
) -> None:
    one = workload(k, elements=(memory, F16), offset=offset)
    access = access_of(view(one).a, view(one).k[-1], Slots(one), element)
    assert (access.count, access.is_copy) == (count, is_copy)


def test_a_fused_prologue_is_computed_from_pieces() -> None:
    one = workload(a="max(add(x[i, k], w[0, 0]), 0.0:f32)")
    access = access_of(view(one).a, view(one).k[-1], Slots(one), F16)
    assert (access.count, len(access.loads), access.is_copy) == (8, 2, False)


def test_an_operand_that_lies_across_k_is_read_element_by_element() -> None:
    one = workload()
    assert access_of(view(one).b, view(one).k[-1], Slots(one), F16).count == 1


def test_a_guard_along_k_splits_pieces() -> None:
    one = workload(a="where(lt(#(k):i64, 60:i64), x[i, k], 0.0:f32)")
    assert access_of(view(one).a, view(one).k[-1], Slots(one), F16).count == 1


def test_tensor_cores_take_16_bits_where_rounding_loses_nothing_or_the_job_permits_it() -> None:
    prologue = "max(x[i, k], 0.0:f32)"
    for one, exact, rounded in (
        (workload(), F16, F16),
        (workload(elements=(BF16, BF16)), BF16, BF16),
        (workload(elements=(None, F16)), None, F16),
        (workload(elements=(F16, None)), None, None),
        (workload(elements=(F16, None), constant=(False, False)), None, F16),
        (workload(a=prologue), None, F16),
        (workload(elements=(None, None)), None, None),
        (workload(elements=(F16, BF16)), None, None),
    ):
        assert half_of(view(one), one, exact=True) is exact, one
        assert half_of(view(one), one, exact=False) is rounded, one
