"""Which operand of a product is B, whose columns lie side by side in vectors."""

from __future__ import annotations

import pytest

from compiler.forms.contraction import as_contraction
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from tests.parse import parse_kernel

LAST = Layout.channels_last(3)
PLAIN = Layout.plain(3)
POSITIONS, CHANNELS = 64, 32
CONVOLVED = """
kernel "Conv+Add"(in x: f32[1, 48, 64], in w: f32[32, 48], in r: f32[1, 32, 64]; temp t: f32[1, 32, 64];
                  out y: f32[1, 32, 64])
  for n:1, k:32, p:64
    t[n, k, p] = sum<f32> c:48 . mul(x[n, c, p], w[k, c])
    y[n, k, p] = add(t[n, k, p], r[n, k, p])
"""


@pytest.mark.parametrize(
    ("operand", "residual", "result", "columns"),
    [
        (LAST, LAST, LAST, CHANNELS),
        (PLAIN, PLAIN, PLAIN, POSITIONS),
        (LAST, PLAIN, PLAIN, POSITIONS),
        (LAST, LAST, PLAIN, CHANNELS),
        (LAST, PLAIN, LAST, CHANNELS),
        (PLAIN, LAST, PLAIN, POSITIONS),
    ],
)
def test_columns_are_what_most_of_what_is_read_and_stored_has_innermost(
    operand: Layout, residual: Layout, result: Layout, columns: int
) -> None:
    kernel = parse_kernel(CONVOLVED)
    layouts = (operand, Layout.plain(2), residual, result)
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(
        Buffer.whole(at, slot.type, layout) for at, (slot, layout) in enumerate(zip(slots, layouts, strict=True))
    )
    view = as_contraction(Workload(kernel, buffers[:3], buffers[3:], (False, True, False)))
    assert view is not None
    assert view.columns == columns
