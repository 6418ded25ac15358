"""What the model makes of kernels that any lowering may have."""

from __future__ import annotations

from compiler.devices.cuda.algorithms.loops.tiles import cuda_loop_tiles
from compiler.devices.cuda.target import resolve
from tests.compiler.devices.cuda.on_double import case_of, workload_of

EMBEDDING = """
kernel Gather(in x: f32[{rows}, 64], in ids: i64[8]; out y: f32[8, 64])
  for i:8, j:64
    y[i, j] = x[[ids[i] in 0..7], j]
"""


def test_a_table_costs_the_rows_that_are_gathered() -> None:
    small, large = (
        cuda_loop_tiles(workload_of(case_of(EMBEDDING.format(rows=rows))), resolve("cuda:sm_90"), "fp32")[0].seconds
        for rows in (8, 50000)
    )
    assert small == large
