"""Tiles for a few rows times a constant matrix on a GPU: which are legal, and which the model likes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cuda.algorithms.gemv import SHARED_BYTES, cuda_gemv_tiles
from compiler.devices.cuda.target import PROFILES
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from tests.compiler.devices.cuda.on_double import case_of
from tests.parse import parse_kernel

H200 = next(target for target in PROFILES if target.architecture == "sm_90a")
PRODUCT = """
kernel Gemm(in x: f32[{rows}, {depth}], in w: f32[{columns}, {depth}]; out y: f32[{rows}, {columns}])
  for m:{rows}, n:{columns}
    y[m, n] = sum<f32> k:{depth} . mul(x[m, k], w[n, k])
"""


def product(rows: int, columns: int, depth: int) -> Workload:
    kernel = parse_kernel(PRODUCT.format(rows=rows, columns=columns, depth=depth))
    small = case_of(PRODUCT.format(rows=1, columns=2, depth=2), constant=(1,), element=DType.F16).workload
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(
        replace(buffer, type=slot.type, strides=(slot.type.dims[1], 1))
        for buffer, slot in zip((*small.inputs, *small.outputs), slots, strict=True)
    )
    return Workload(kernel, buffers[:2], buffers[2:], (False, True))


def blocks(tile: Tile, columns: int) -> int:
    of_block = tile.extent("block", "threads") // tile.extent("warp", "lanes") * tile.extent("thread", "n")
    return -(-columns // of_block) * tile.extent("grid", "k", 1)


@pytest.mark.parametrize(("columns", "depth"), [(1000, 1280), (1000, 2048), (4096, 4096), (1280, 960)])
def test_the_best_tile_of_a_classifier_keeps_most_multiprocessors_busy(columns: int, depth: int) -> None:
    first = cuda_gemv_tiles(product(1, columns, depth), H200, "fp16")[0].tile
    assert blocks(first, columns) >= H200.multiprocessors // 2, first


def test_few_columns_over_a_long_k_are_shared_out_between_blocks() -> None:
    options = cuda_gemv_tiles(product(1, 10, 65536), H200, "fp16")
    assert options[0].tile.extent("grid", "k") > 1
    assert all(4 * 65536 / option.tile.extent("grid", "k", 1) < SHARED_BYTES for option in options)


def test_more_rows_than_registers_hold_and_matrices_that_vary_are_left_to_others() -> None:
    assert cuda_gemv_tiles(product(4, 64, 64), H200, "fp16")
    assert not cuda_gemv_tiles(product(5, 64, 64), H200, "fp16")
    assert not cuda_gemv_tiles(replace(product(1, 64, 64), constant=(False, False)), H200, "fp16")
