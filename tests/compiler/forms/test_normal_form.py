"""Kernels in the form that lowering works on: what temporaries keep, and that a kernel in that form stays itself."""

from __future__ import annotations

from dataclasses import replace

from compiler.forms.normal_form import block_positions, contract_temps
from compiler.ir.expr import Apply
from compiler.ir.index import Index
from tests.parse import parse_kernel

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


def test_the_address_of_a_load_is_worked_out_once_however_often_a_value_holds_it() -> None:
    block = parse_kernel(CHAIN).blocks[0]
    value = block.values[0]
    for _ in range(6):
        value = Apply("add", (value, value))
    asked: list[tuple[str, tuple[Index, ...]]] = []

    def address(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        asked.append((slot, index))
        return slot, index[0] * 8 + index[1]

    found = block_positions(replace(block, values=(value, *block.values[1:])), address)
    assert len(found) == len(block.stores) + 2**6
    assert asked == [(block.stores[0].slot, block.stores[0].index), ("x", value.loads[0].index)]


def test_a_contracted_kernel_is_returned_as_it_is() -> None:
    for text in (CHAIN, ACROSS):
        once = contract_temps(parse_kernel(text))
        once.verify()
        assert contract_temps(once) is once
