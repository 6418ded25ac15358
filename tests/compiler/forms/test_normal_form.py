"""Kernels in the form that lowering works on: what temporaries keep, and that a kernel in that form stays itself."""

from __future__ import annotations

from compiler.forms.normal_form import contract_temps
from compiler.ir.parse import parse_kernel

CHAIN = """
kernel Chain(in x: f32[4, 8]; temp t: f32[4, 8]; out y: f32[4, 8])
  for i:4, j:8
    t[i, j] = mul(x[i, j], 2.0:f32)
    y[i, j] = max(t[i, j], 0.0:f32)
"""
ACROSS = """
kernel Across(in x: f32[4, 8]; temp t: f32[4, 8]; out y: f32[4, 8])
  for i:4
    for j:8: t[i, j] = mul(x[i, j], 2.0:f32)
    for j:8: y[i, j] = sum<f32> k:8 . t[i, k]
"""


def test_a_temporary_keeps_the_dimensions_that_blocks_read_elsewhere_than_they_store() -> None:
    assert [temp.type.dims for temp in contract_temps(parse_kernel(CHAIN)).temps] == [()]
    assert [temp.type.dims for temp in contract_temps(parse_kernel(ACROSS)).temps] == [(8,)]


def test_a_contracted_kernel_is_returned_as_it_is() -> None:
    for text in (CHAIN, ACROSS):
        once = contract_temps(parse_kernel(text))
        once.verify()
        assert contract_temps(once) is once
