from __future__ import annotations

import numpy as np

from compiler.devices.cuda.algorithms.recurrent.chains import Chain, UnitColumns, as_chains, initial_of, source_of
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.parse import parse_kernel

LAYER = """
kernel Gated(in x: f32[5, 2, 3], in w: f32[12, 3], in r: f32[12, 6]; \
temp xs: f32[2, 12], temp hs: f32[2, 12], temp h: f32[2, 6]; out y: f32[5, 2, 6])
  for seq t:5, b:2
    for m:12: xs[b, m] = sum<f32> i:3 . mul(x[t, b, i], w[m, i])
    for m:12: hs[b, m] = sum<f32> k:6 . mul({state}, r[m, k])
    for j:6: h[b, j] = mul(add(xs[b, j], hs[b, j]), tanh(add(xs[b, j + 6], hs[b, {other}])))
    for j:6: y[t, b, j] = h[b, j]
"""
STATE = "where(gt(#(t):i64, 0:i64), h[b, k], 0.5:f32)"


def chains(state: str = STATE, other: str = "j + 6") -> tuple[Chain, ...] | None:
    kernel = parse_kernel(LAYER.format(state=state, other=other))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return as_chains(Workload(kernel, buffers[:3], buffers[3:], (False, True, True)))


def test_a_gated_layer_is_a_chain_whose_state_alone_is_exchanged() -> None:
    (chain,) = chains() or ()
    assert chain.units == 6
    assert chain.exchanged == {"h"}
    assert chain.temps == {"xs": 2, "hs": 2, "h": 1}
    recurrent = chain.products[1]
    assert source_of(recurrent).slot == "h"
    assert str(initial_of(recurrent)) == "0.5:f32"
    assert chain.view.ahead == {"xs"}


def test_a_unit_that_looks_at_another_ones_gate_is_no_chain() -> None:
    assert chains(other="j + 5") is None
    assert chains(other="11 - j") is None


def test_a_state_that_is_computed_on_the_way_into_the_product_is_no_chain() -> None:
    assert chains(state="where(gt(#(t):i64, 0:i64), tanh(h[b, k]), 0.5:f32)") is None
    assert chains(state="where(gt(#(t):i64, 1:i64), h[b, k], 0.5:f32)") is None


def test_columns_are_packed_by_block_depth_gate_and_unit() -> None:
    w = np.arange(2 * 6 * 3, dtype=np.float32).reshape(12, 3)  # [gate, unit] x k
    packing = UnitColumns(((0, 3, 2, 1, 3),), units=6, blocks=2, share=4, dtype=DType.F16)
    packed = packing.pack(w).reshape(2, 3, 2, 4)
    assert packed.dtype == np.float16
    assert packed.size == packing.elements
    for block, k, gate, unit in np.ndindex(packed.shape):
        number = 4 * block + unit
        assert packed[block, k, gate, unit] == (w[6 * gate + number, k] if number < 6 else 0)


def test_parts_of_one_matrix_lie_one_after_the_other() -> None:
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    packing = UnitColumns(((0, 6, 1, 1, 6), (12, 6, 1, 1, 6)), units=2, blocks=1, share=4)
    packed = packing.pack(w)
    assert packing.first(1) == 24
    np.testing.assert_array_equal(packed[24:].reshape(6, 4)[:, :2], w[2:].T)
